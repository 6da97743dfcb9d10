// SPDX-License-Identifier: Apache-2.0
#pragma once
/// LRU stack of any number of keys, stored as a row of bits in time.
///
/// Rule: a bit is set at the time of each key's last touch. A key's distance is the number of set bits from its last
///   touch on. Ones are counted in four steps: within a word of 64 bits, in the earlier words of its group, in the
///   earlier groups of its span, and in the earlier spans. The second and third counts are stored and corrected all
///   at once; the fourth is a Fenwick tree. When time is full, it is compacted: touches keep their order.
/// Source: Bennett and Kruskal 1975; a tree over spans of 32,768 touches, instead of over touches, is ours.
/// Cost: O(1 + log(keys / 8192)) per distance and per touch, some cache lines; compaction O(1) per touch, amortised.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Memory: 4 bytes per key, and about 6 bits for each key that may be live.
class recency_bitmap {
 public:
  /// Most keys that can be live: four times as many touches are held.
  static constexpr std::size_t most_keys = std::size_t{1} << 29;

  recency_bitmap() = default;
  /// Touches allocate nothing.
  explicit recency_bitmap(std::size_t keys) : recency_bitmap(keys, keys) {}
  /// live: number of keys that are expected to be touched and not forgotten. More live keys take more memory. Pre:
  /// keys <= most_keys.
  recency_bitmap(std::size_t keys, std::size_t live) : last_(keys, never) {
    HOTSET_ASSERT(keys <= most_keys);
    // A compaction reads every key, live or not.
    resize(std::max({std::size_t{1}, 4 * live, keys / 4}));
  }

  /// Distinct keys touched since this key was, itself included; 0: never touched. Pre: key < keys.
  [[nodiscard]] std::uint32_t distance(std::size_t key) const noexcept {
    const auto touched = last_[key];
    return touched == never ? 0 : live_ - ones_before(touched);
  }
  /// Moves the key to the front. Pre: key < keys.
  void touch(std::size_t key) {
    if (now_ == end_) compact();
    const auto touched = last_[key];
    if (touched != never) clear(touched);
    live_ += touched == never ? 1U : 0U;
    set(key);
  }
  /// Makes the key as if it was never touched.
  void forget(std::size_t key) noexcept {
    if (last_[key] == never) return;
    clear(last_[key]);
    last_[key] = never;
    --live_;
  }
  /// Keys touched and not forgotten.
  [[nodiscard]] std::size_t live() const noexcept { return live_; }

 private:
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t word_bits = 64;
  static constexpr std::uint32_t group_words = 16;
  static constexpr std::uint32_t span_groups = 32;
  static constexpr std::uint32_t group_bits = word_bits * group_words;
  static constexpr std::uint32_t span_bits = group_bits * span_groups;

  /// Ones in the parts before each part of a whole. Parts that no touch has reached are not counted yet.
  template <std::size_t Parts>
  struct alignas(2 * Parts) running_counts {
    std::array<std::uint16_t, Parts> before{};
    /// Subtracts from four counts at a time. A compiler might otherwise subtract one by one, and the loads that
    /// follow would stall. A part that is not counted yet may borrow from a later one, which is not counted either.
    void take_one_from(std::uint32_t part) noexcept {
      static_assert(std::endian::native == std::endian::little, "later parts in higher bits");
      const auto* const after = one_from_here.data() + (Parts - 1 - part);
      for (std::size_t i = 0; i < Parts; i += 4) {
        std::uint64_t counts = 0;
        std::uint64_t ones = 0;
        std::memcpy(&counts, &before[i], sizeof counts);
        std::memcpy(&ones, after + i, sizeof ones);
        counts -= ones;
        std::memcpy(&before[i], &counts, sizeof counts);
      }
    }
    /// Zeros, then as many ones: an offset into it gives what to subtract from each part.
    static constexpr auto one_from_here = [] {
      std::array<std::uint16_t, 2 * Parts> row{};
      for (std::size_t i = Parts; i < row.size(); ++i) row[i] = 1;
      return row;
    }();
  };

  void resize(std::size_t touches) {
    const auto spans = (touches + span_bits - 1) / span_bits;
    words_.assign(spans * span_groups * group_words, 0);
    groups_.assign(spans * span_groups, {});
    spans_.assign(spans, {});
    tree_.assign(spans + 1, 0);
    end_ = static_cast<std::uint32_t>(spans * span_bits);
    now_ = 0;
    open_ = 0;
  }

  /// Without the popcnt instruction, which the oldest x86-64 lacks, std::popcount is a function call.
  static std::uint32_t ones(std::uint64_t word) noexcept {
#if defined(__POPCNT__) || !defined(__x86_64__)
    return static_cast<std::uint32_t>(std::popcount(word));
#else
    word -= (word >> 1U) & 0x5555555555555555U;
    word = (word & 0x3333333333333333U) + ((word >> 2U) & 0x3333333333333333U);
    word = (word + (word >> 4U)) & 0x0f0f0f0f0f0f0f0fU;
    return static_cast<std::uint32_t>((word * 0x0101010101010101U) >> 56U);
#endif
  }

  [[nodiscard]] std::uint32_t ones_before(std::uint32_t position) const noexcept {
    const auto word = words_[position / word_bits];
    return ones(word & ((std::uint64_t{1} << (position % word_bits)) - 1)) +
           groups_[position / group_bits].before[position / word_bits % group_words] +
           spans_[position / span_bits].before[position / group_bits % span_groups] +
           ones_in_spans_before(position / span_bits);
  }
  /// The span that is being filled is not in the tree yet.
  [[nodiscard]] std::uint32_t ones_in_spans_before(std::uint32_t span) const noexcept {
    if (span == open_span()) return live_ - open_;
    std::uint32_t total = 0;
    for (auto i = span; i > 0; i &= i - 1) total += tree_[i];
    return total;
  }
  void add_to_tree(std::uint32_t span, std::uint32_t count) noexcept {
    for (auto i = span + 1; i < tree_.size(); i += i & (0U - i)) tree_[i] += count;
  }
  /// Span of the last touch. Time may have reached the next span, which a touch has yet to open.
  [[nodiscard]] std::uint32_t open_span() const noexcept {
    return now_ == 0 ? 0 : (now_ - 1) / span_bits;
  }

  void clear(std::uint32_t position) noexcept {
    words_[position / word_bits] &= ~(std::uint64_t{1} << (position % word_bits));
    groups_[position / group_bits].take_one_from(position / word_bits % group_words);
    spans_[position / span_bits].take_one_from(position / group_bits % span_groups);
    if (const auto span = position / span_bits; span == open_span())
      --open_;
    else
      add_to_tree(span, 0U - 1U);
  }

  void set(std::size_t key) noexcept {
    if (now_ % word_bits == 0) open_word();
    words_[now_ / word_bits] |= std::uint64_t{1} << (now_ % word_bits);
    ++open_;
    last_[key] = now_++;
  }
  /// Time has reached a new word: stores the counts before it.
  void open_word() noexcept {
    if (now_ % span_bits == 0 && now_ != 0) {
      add_to_tree(now_ / span_bits - 1, open_);
      open_ = 0;
    }
    auto& in_span = spans_[now_ / span_bits].before[now_ / group_bits % span_groups];
    if (now_ % group_bits == 0) in_span = static_cast<std::uint16_t>(open_);
    groups_[now_ / group_bits].before[now_ / word_bits % group_words] =
        static_cast<std::uint16_t>(open_ - in_span);
  }

  /// Replaces every key's last touch by its rank among the live ones, whose bits come first.
  void compact() {
    for (auto& touched : last_)
      if (touched != never) touched = ones_before(touched);
    resize(std::max<std::size_t>(end_, std::size_t{4} * live_));
    while (now_ < live_) {
      open_word();
      const auto here = std::min(word_bits, live_ - now_);
      words_[now_ / word_bits] = ~std::uint64_t{0} >> (word_bits - here);
      open_ += here;
      now_ += here;
    }
  }

  std::vector<std::uint32_t> last_;  ///< [key] time of its last touch
  std::vector<std::uint64_t> words_;
  std::vector<running_counts<group_words>> groups_;
  std::vector<running_counts<span_groups>> spans_;
  std::vector<std::uint32_t> tree_;  ///< Fenwick tree of the ones in closed spans
  std::uint32_t now_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t open_ = 0;  ///< ones in the span of the last touch
};

}  // namespace hotset
