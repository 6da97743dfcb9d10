// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which of a fixed number of rows belongs to which running request.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// A predictor's memory of each request is a row of its arrays; this says which. Where more requests run than there are
/// rows, the one that was used least recently leaves, but none that was used in the running step.
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
  /// The request's row, or none. Complexity: O(rows); a single request has row 0.
  [[nodiscard]] std::size_t find(sequence_id sequence) const noexcept {
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].sequence == sequence && is_live(r)) return r;
    return none;
  }
  /// The request's row, or one that becomes its own: the first that is free, else that of the request used least recently.
  /// `close(row)` is called before another's row is taken, `open(row)` when it is the new request's.
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
  /// The row is free again. Pre: it belongs to a request.
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
