// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What each remembered row routed in each layer, as bits in two orders: the experts of a row, and the rows of an expert.
///
/// The experts of a row stand together, and are written at once. The rows of an expert are what similarities are counted from; their bits
/// lie in as many cache lines as a row has experts, so that a layer's are brought up to date when they are asked for, and a visit whose
/// similarities nobody needs does not touch them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/aligned_vector.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction.
class routed_rows {
 public:
  using row_id = std::uint16_t;
  static constexpr std::size_t most_noted = 16;  ///< rows of a layer whose old experts are kept

  /// Pre: rows is a multiple of 64.
  routed_rows(std::size_t layers, std::size_t experts, std::size_t rows)
      : experts_(experts),
        rows_(rows),
        words_(words_for(experts)),
        sets_(layers * rows * words_, 0),
        planes_(layers * experts * (rows / 64), 0),
        behind_(layers * (rows / 64), 0),
        noted_count_(layers, 0),
        noted_rows_(layers * most_noted, 0),
        noted_sets_(layers * most_noted * words_, 0) {}

  /// 64-bit words of a set of experts, an even number.
  [[nodiscard]] std::size_t words() const noexcept { return words_; }
  /// What a row routed in a layer, a bit an expert. Shape: [words()].
  [[nodiscard]] std::span<const std::uint64_t> set(std::size_t layer, row_id row) const noexcept {
    return std::span(sets_).subspan((layer * rows_ + row) * words_, words_);
  }
  /// Who routed an expert of a layer, a bit a row. Shape: [rows / 64].
  /// Pre: bring_up_to_date(layer) since the last write to it.
  [[nodiscard]] const std::uint64_t* plane(std::size_t layer, std::size_t expert) const noexcept {
    return planes_.data() + (layer * experts_ + expert) * blocks();
  }

  /// The row routed these and no others; ids that are no expert's are left out. Shape of ids: [any].
  void write(std::size_t layer, row_id row, id_view<expert_id> ids) noexcept {
    clear(layer, row);
    auto* const bits = set_of(layer, row);
    for (const auto id : ids) {
      const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
      if (e < experts_) bits[e / 64] |= std::uint64_t{1} << (e % 64);
    }
  }
  /// The row routed nothing.
  void clear(std::size_t layer, row_id row) noexcept {
    note(layer, row);
    std::fill_n(set_of(layer, row), words_, std::uint64_t{0});
  }
  void clear_all() noexcept {
    for (auto* bits : {&sets_, &planes_}) std::ranges::fill(*bits, std::uint64_t{0});
    std::ranges::fill(behind_, std::uint64_t{0});
    std::ranges::fill(noted_count_, std::uint8_t{0});
  }
  /// Complexity: O(experts of a row) for each row that was written since; beyond most_noted of them O(experts) for each 64 rows more.
  void bring_up_to_date(std::size_t layer) noexcept {
    const std::size_t count = noted_count_[layer];
    if (count == 0) return;
    noted_count_[layer] = 0;
    if (count <= most_noted)
      move_noted(layer, count);
    else
      move_blocks(layer);
  }

 private:
  static constexpr std::uint64_t words_for(std::uint64_t experts) noexcept {
    return (experts + 127) / 128 * 2;
  }
  static std::uint64_t bit_of(row_id row) noexcept { return std::uint64_t{1} << (row % 64); }

  [[nodiscard]] std::size_t blocks() const noexcept { return rows_ / 64; }
  [[nodiscard]] std::uint64_t* set_of(std::size_t layer, row_id row) noexcept {
    return sets_.data() + (layer * rows_ + row) * words_;
  }
  /// The word that has the row's bit in the layer's first plane; planes are blocks() words apart.
  [[nodiscard]] std::uint64_t* word_of_planes(std::size_t layer, std::size_t block) noexcept {
    return planes_.data() + layer * experts_ * blocks() + block;
  }
  /// The row's bits in the planes are not those of its set any more.
  void note(std::size_t layer, row_id row) noexcept {
    auto& rows = behind_[layer * blocks() + row / 64];
    if ((rows & bit_of(row)) != 0) return;
    rows |= bit_of(row);
    auto& count = noted_count_[layer];
    if (count < most_noted) {
      const auto at = layer * most_noted + count;
      noted_rows_[at] = row;
      std::copy_n(set_of(layer, row), words_, noted_sets_.data() + at * words_);
    }
    if (count <= most_noted) ++count;
  }
  void move_noted(std::size_t layer, std::size_t count) noexcept {
    for (auto at = layer * most_noted; at < layer * most_noted + count; ++at) {
      const auto row = noted_rows_[at];
      each_word(layer, row, noted_sets_.data() + at * words_,
                [others = ~bit_of(row)](std::uint64_t& word) { word &= others; });
      put(layer, row);
      behind_[layer * blocks() + row / 64] &= ~bit_of(row);
    }
  }
  void move_blocks(std::size_t layer) noexcept {
    for (std::size_t b = 0; b < blocks(); ++b) {
      auto& rows = behind_[layer * blocks() + b];
      if (rows == 0) continue;
      auto* const word = word_of_planes(layer, b);
      for (std::size_t e = 0; e < experts_; ++e) word[e * blocks()] &= ~rows;
      for (; rows != 0; rows &= rows - 1)
        put(layer, static_cast<row_id>(b * 64 + static_cast<std::size_t>(std::countr_zero(rows))));
    }
  }
  void put(std::size_t layer, row_id row) noexcept {
    each_word(layer, row, set_of(layer, row),
              [bit = bit_of(row)](std::uint64_t& word) { word |= bit; });
  }
  /// Calls change(word) for the word of the row in the plane of each expert of a set.
  template <class Change>
  void each_word(std::size_t layer, row_id row, const std::uint64_t* set, Change change) noexcept {
    auto* const first = word_of_planes(layer, row / 64);
    for (std::size_t w = 0; w < words_; ++w)
      for (auto left = set[w]; left != 0; left &= left - 1)
        change(first[(w * 64 + static_cast<std::size_t>(std::countr_zero(left))) * blocks()]);
  }

  std::size_t experts_;
  std::size_t rows_;
  std::size_t words_;
  aligned_vector<std::uint64_t> sets_;     ///< [layers, rows, words]
  aligned_vector<std::uint64_t> planes_;   ///< [layers, experts, rows / 64], the same bits
  std::vector<std::uint64_t> behind_;      ///< [layers, rows / 64] a bit a row: not in planes_ yet
  std::vector<std::uint8_t> noted_count_;  ///< [layer] rows behind; above most_noted: or more
  std::vector<row_id> noted_rows_;  ///< [layers, most_noted] the first that came to be behind
  std::vector<std::uint64_t> noted_sets_;  ///< [layers, most_noted, words] what planes_ has of them
};

}  // namespace hotset
