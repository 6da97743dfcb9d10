// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tables for people: as wide as the terminal, with the columns that were asked for.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/errors.hpp"

namespace hotset::lab {

/// Columns of the terminal that standard output is, of COLUMNS if that is set, or 100 if there is none.
[[nodiscard]] std::size_t output_width();

/// How a table is to be shown.
struct table_view {
  std::size_t width = 0;  ///< of the screen; 0: as wide as need be
  /// By name, in this order; empty: what fits; {"all"}: whatever says something.
  std::vector<std::string> columns;
};

/// Errors: usage_error for a column that is none of them, before there is a table.
void check_columns(const table_view& view, std::vector<std::string> known);

/// Columns of one height, and which of them go first when there is no room.
class text_table {
 public:
  /// A title and its cells.
  struct column {
    std::string name;     ///< as --columns takes it
    std::string title;    ///< with the unit
    bool text = false;    ///< to the left
    int rank = 0;         ///< the highest go first; those of 0 stay
    bool telling = true;  ///< says something here; others are shown when they are named
    std::vector<std::string> cells;
  };

  void add(column one) { columns_.push_back(std::move(one)); }
  /// Of a table that is made row by row: a cell for each column.
  void add_row(std::vector<std::string> cells);

  /// A header and a line for each row; what there was no room for is named in a line below.
  /// Errors: usage_error for a column that is none.
  [[nodiscard]] std::string render(const table_view& view) const;
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::vector<column> columns_;
};

/// "label      value", a line of its own whose value begins at column 19.
[[nodiscard]] std::string labelled(std::string_view label, std::string_view value);

/// Breaks a line of more than `width` characters at spaces; the lines that follow begin with `indent` spaces.
[[nodiscard]] std::string folded_line(std::string_view line, std::size_t width, std::size_t indent);
/// Breaks lines of more than `width` characters. What follows stands below the value: behind "label      value",
/// "note: " or "name: ". Lines that begin with a space stay: they are tables, or to be pasted. Width 0: no breaks.
[[nodiscard]] std::string folded(const std::string& text, std::size_t width);

}  // namespace hotset::lab
