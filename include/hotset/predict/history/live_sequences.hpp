// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Assigns a fixed number of rows to running requests.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// A predictor keeps one row of its arrays for each request; this class maps requests to rows. If more requests run
/// than there are rows, the least recently used request loses its row, unless it was used in the running step.
/// Threads: compatible. Nothing allocates after construction. Memory: 24 bytes a row.
class live_sequences {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t most_rows = 4096;

  /// Pre: 1 <= rows <= most_rows.
  explicit live_sequences(std::size_t rows) : rows_(rows) {
    HOTSET_ASSERT(rows >= 1 && rows <= most_rows);
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }
  /// Returns the request's row, or none. Complexity: O(rows); a single request has row 0.
  [[nodiscard]] std::size_t find(sequence_id sequence) const noexcept {
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].sequence == sequence && is_live(r)) return r;
    return none;
  }
  /// Returns the request's row, or assigns one: the first free row, else the row of the least recently used request.
  /// Calls `close(row)` before a row is taken from another request, and `open(row)` when the new request has it.
  /// Returns: none if every row was used in this step. Complexity: O(rows).
  template <class Close, class Open>
  [[nodiscard]] std::size_t enter(sequence_id sequence, step_id step, Close close,
                                  Open open) noexcept {
    auto row = find(sequence);
    if (row == none) {
      row = oldest(step);
      if (row == none) return none;
      if (is_live(row)) close(row);
      rows_[row].sequence = sequence;
      open(row);
    }
    rows_[row].used = ++clock_;
    rows_[row].step = step;
    return row;
  }
  /// Frees the row. Pre: a request has it.
  void leave(std::size_t row) noexcept {
    HOTSET_ASSERT(is_live(row));
    rows_[row].used = 0;
  }
  /// Pre: row < rows().
  [[nodiscard]] bool is_live(std::size_t row) const noexcept { return rows_[row].used != 0; }

 private:
  struct holder {
    std::uint64_t used = 0;  ///< 0: free
    step_id step = 0;
    sequence_id sequence = 0;
  };

  [[nodiscard]] std::size_t oldest(step_id step) const noexcept {
    std::size_t found = none;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (is_live(r) && rows_[r].step == step) continue;
      if (found == none || rows_[r].used < rows_[found].used) found = r;
    }
    return found;
  }

  std::vector<holder> rows_;
  std::uint64_t clock_ = 0;
};

}  // namespace hotset
