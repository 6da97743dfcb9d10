// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An LRU stack of any number of keys, as a row of bits in time.
///
/// Rule: a bit is set where some key was touched last, and a key's distance is the number of bits from its last touch on.
/// Bits are counted within a word of 64 and, by a Fenwick tree, in the words before it. Full time is compacted: touches keep their
/// order.
/// Source: Bennett and Kruskal 1975; a tree over words, and not over touches, is ours.
/// Cost: O(log(live keys / 16)) a distance and a touch; compaction O(log(live keys)) a touch, amortised.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Memory: 4 bytes a key, and about 6 bits for each that may be live.
class recency_bitmap {
 public:
  /// Most keys that can be live: four times as many touches are held.
  static constexpr std::size_t most_keys = std::size_t{1} << 29;

  recency_bitmap() = default;
  /// Touches allocate nothing.
  explicit recency_bitmap(std::size_t keys) : recency_bitmap(keys, keys) {}
  /// live: how many keys are likely to be touched and not forgotten. Touches of more take more memory. Pre: keys <= most_keys.
  recency_bitmap(std::size_t keys, std::size_t live) : last_(keys, never) {
    HOTSET_ASSERT(keys <= most_keys);
    // A compaction looks at every key, live or not.
    resize(std::max({std::size_t{1}, 4 * live, keys / 4}));
  }

  /// Distinct keys touched since this one, itself included; 0: never touched. Pre: key < keys.
  [[nodiscard]] std::uint32_t distance(std::size_t key) const noexcept {
    return last_[key] == never ? 0 : ones_from(last_[key]);
  }
  /// Moves the key to the front. Pre: key < keys.
  void touch(std::size_t key) {
    if (now_ == words_.size() * word_bits) compact();
    forget(key);
    if (const auto word = now_ / word_bits; word != open_) {
      add(open_, ones(words_[open_]));
      open_ = word;
    }
    words_[open_] |= bit(now_);
    last_[key] = now_++;
    ++live_;
  }
  /// The key is as one never touched.
  void forget(std::size_t key) noexcept {
    const auto touched = last_[key];
    if (touched == never) return;
    words_[touched / word_bits] &= ~bit(touched);
    if (touched / word_bits != open_) add(touched / word_bits, 0U - 1U);
    last_[key] = never;
    --live_;
  }
  /// Keys touched and not forgotten.
  [[nodiscard]] std::size_t live() const noexcept { return live_; }

 private:
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t word_bits = 64;

  static std::uint32_t ones(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(std::popcount(word));
  }
  static std::uint64_t bit(std::uint32_t position) noexcept {
    return std::uint64_t{1} << (position % word_bits);
  }
  [[nodiscard]] std::uint32_t ones_from(std::uint32_t position) const noexcept {
    const auto word = position / word_bits;
    const auto here = ones(words_[word] >> (position % word_bits));
    if (word == open_) return here;
    std::uint32_t so_far = 0;  // ones in this word and those before it
    for (auto i = word + 1; i > 0; i &= i - 1) so_far += tree_[i];
    return here + live_ - so_far;
  }
  void add(std::uint32_t word, std::uint32_t count) noexcept {
    for (auto i = word + 1; i < tree_.size(); i += i & (0U - i)) tree_[i] += count;
  }
  void resize(std::size_t touches) {
    words_.assign((touches + word_bits - 1) / word_bits, 0);
    tree_.assign(words_.size() + 1, 0);
  }
  /// Every key's last touch becomes its place among the live ones, whose bits are the first.
  void compact() {
    for (auto& touched : last_)
      if (touched != never) touched = live_ - ones_from(touched);
    resize(std::max<std::size_t>(words_.size() * word_bits, std::size_t{4} * live_));
    std::fill_n(words_.begin(), live_ / word_bits, ~std::uint64_t{0});
    if (live_ % word_bits != 0) words_[live_ / word_bits] = bit(live_) - 1;
    now_ = live_;
    open_ = live_ == 0 ? 0 : (live_ - 1) / word_bits;
    for (std::uint32_t word = 0; word < open_; ++word) add(word, word_bits);
  }

  std::vector<std::uint32_t> last_;  ///< by key: when it was touched last
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> tree_;  ///< Fenwick tree of the ones in the words before the open one
  std::uint32_t now_ = 0;
  std::uint32_t open_ = 0;  ///< the word of the last touch
  std::uint32_t live_ = 0;
};

}  // namespace hotset
