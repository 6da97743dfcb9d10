// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which of a fixed number of rows belongs to which running request.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// A predictor's memory of each request is a row of its arrays; this says which. Where more requests run than there are
/// rows, the one that was used least recently leaves, but none that was used in the running step.
/// Threads: compatible. Nothing allocates after construction. Memory: 32 to 40 bytes a row.
class live_sequences {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t most_rows = 4096;

  /// Pre: 1 <= rows <= most_rows.
  explicit live_sequences(std::size_t rows)
      : rows_(rows),
        places_(std::bit_ceil(2 * rows), 0),
        shift_(32 - std::countr_zero(places_.size())) {
    HOTSET_ASSERT(rows >= 1 && rows <= most_rows);
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }
  /// The request's row, or none. Complexity: O(1) expected.
  [[nodiscard]] std::size_t find(sequence_id sequence) const noexcept {
    for (auto at = place_of(sequence); places_[at] != 0; at = after(at))
      if (rows_[places_[at] - 1U].sequence == sequence) return places_[at] - 1U;
    return none;
  }
  /// The request's row, or one that becomes its own: the first that is free, else that of the request used least recently.
  /// `close(row)` is called before another's row is taken, `open(row)` when it is the new request's.
  /// Returns: none where every row was used in this step. Complexity: O(1) expected, O(rows) for a new request.
  template <class Close, class Open>
  [[nodiscard]] std::size_t enter(sequence_id sequence, step_id step, Close close,
                                  Open open) noexcept {
    auto row = find(sequence);
    if (row == none) {
      row = oldest(step);
      if (row == none) return none;
      if (is_live(row)) {
        close(row);
        leave(row);
      }
      rows_[row].sequence = sequence;
      place(row);
      open(row);
    }
    rows_[row].used = ++clock_;
    rows_[row].step = step;
    return row;
  }
  /// The row is free again. Pre: it belongs to a request. Complexity: O(rows).
  void leave(std::size_t row) noexcept {
    HOTSET_ASSERT(is_live(row));
    rows_[row].used = 0;
    std::fill(places_.begin(), places_.end(), 0U);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (is_live(r)) place(r);
  }
  /// Pre: row < rows().
  [[nodiscard]] bool is_live(std::size_t row) const noexcept { return rows_[row].used != 0; }

 private:
  struct holder {
    std::uint64_t used = 0;  ///< 0: free
    step_id step = 0;
    sequence_id sequence = 0;
  };

  [[nodiscard]] std::size_t place_of(sequence_id sequence) const noexcept {
    return (sequence * 0x9e3779b1U) >> shift_;
  }
  [[nodiscard]] std::size_t after(std::size_t place) const noexcept {
    return (place + 1) & (places_.size() - 1);
  }
  void place(std::size_t row) noexcept {
    auto at = place_of(rows_[row].sequence);
    while (places_[at] != 0) at = after(at);
    places_[at] = static_cast<std::uint32_t>(row + 1);
  }
  [[nodiscard]] std::size_t oldest(step_id step) const noexcept {
    std::size_t found = none;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (is_live(r) && rows_[r].step == step) continue;
      if (found == none || rows_[r].used < rows_[found].used) found = r;
    }
    return found;
  }

  std::vector<holder> rows_;
  std::vector<std::uint32_t> places_;  ///< row + 1, 0: empty; a power of two, at most half full
  int shift_;
  std::uint64_t clock_ = 0;
};

}  // namespace hotset
