// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Routing of each remembered row and layer, stored twice as bits: by row (the experts of a row) and by expert (the
/// rows of an expert).
///
/// Similarities are counted from the planes by expert.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction.
class routed_rows {
 public:
  using row_id = std::uint16_t;

  /// Pre: rows is a multiple of 64.
  routed_rows(std::size_t layers, std::size_t experts, std::size_t rows)
      : experts_(experts),
        rows_(rows),
        words_((experts + 127) / 128 * 2),
        sets_(layers * rows * words_, 0),
        planes_(layers * experts * (rows / 64), 0) {}

  /// 64-bit words of an expert set, an even number.
  [[nodiscard]] std::size_t words() const noexcept { return words_; }
  /// Experts that a row routed in a layer, one bit each. Shape: [words()].
  [[nodiscard]] std::span<const std::uint64_t> set(std::size_t layer, row_id row) const noexcept {
    return std::span(sets_).subspan((layer * rows_ + row) * words_, words_);
  }
  /// Rows that routed an expert of a layer, one bit each. Shape: [rows / 64].
  [[nodiscard]] const std::uint64_t* plane(std::size_t layer, std::size_t expert) const noexcept {
    return planes_.data() + (layer * experts_ + expert) * (rows_ / 64);
  }

  /// Replaces the row's experts in the layer by `ids`; ids outside the model are ignored. Shape of ids: [any].
  /// Complexity: O(ids), one cache line for each expert of the row before and after.
  void write(std::size_t layer, row_id row, id_view<expert_id> ids) noexcept {
    const auto bit = std::uint64_t{1} << (row % 64);
    auto* const bits = sets_.data() + (layer * rows_ + row) * words_;
    each_member(set(layer, row), [&](std::size_t e) { word_of(layer, e, row) &= ~bit; });
    std::fill_n(bits, words_, std::uint64_t{0});
    for (const auto id : ids) {
      const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
      if (e >= experts_) continue;
      bits[e / 64] |= std::uint64_t{1} << (e % 64);
      word_of(layer, e, row) |= bit;
    }
  }
  /// Removes the row's experts in the layer.
  void clear(std::size_t layer, row_id row) noexcept { write(layer, row, {}); }
  void clear_all() noexcept {
    for (auto* bits : {&sets_, &planes_}) std::ranges::fill(*bits, std::uint64_t{0});
  }

 private:
  [[nodiscard]] std::uint64_t& word_of(std::size_t layer, std::size_t expert, row_id row) noexcept {
    return planes_[(layer * experts_ + expert) * (rows_ / 64) + row / 64];
  }

  std::size_t experts_;
  std::size_t rows_;
  std::size_t words_;
  aligned_vector<std::uint64_t> sets_;    ///< [layers, rows, words]
  aligned_vector<std::uint64_t> planes_;  ///< [layers, experts, rows / 64], the same bits
};

}  // namespace hotset
