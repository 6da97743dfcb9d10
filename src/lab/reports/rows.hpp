// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results as rows of named values, written as JSON, CSV or a table.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lab/reports/folded_text.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {

/// One result: values under their names in JSON and CSV. Null: not measured.
using row = nlohmann::ordered_json;

/// Format of a column's values in a table. Null is "-".
struct cell {
  enum kind : std::uint8_t {
    number,  ///< right-aligned; text unchanged
    word,    ///< left-aligned text
    bytes,   ///< one unit for the column, named in its title
  } as = number;
  int digits = 0;     ///< digits after the point, for fractions
  double scale = 1;   ///< factor; 100: a share in percent
  bool some = false;  ///< 0 is shown as "-", too
};

/// A column of a table over rows.
struct column {
  const char* name;   ///< name in --columns
  const char* key;    ///< member of a row
  const char* title;  ///< includes the unit, except for bytes
  cell shown{};
  int rank = 0;  ///< the highest rank is removed first; rank 0 is never removed
  /// Shown if a row has this member with a value other than 0. "": always shown; if_named: only if --columns names
  /// it.
  const char* where = "";
  const char* plain = "";  ///< default word, not mentioned when all rows have it
};
/// Value of column::where for columns shown only on request.
inline constexpr const char* if_named = "?";

[[nodiscard]] std::vector<std::string> names_of(std::span<const column> columns);

/// Width and columns of a table.
struct table_view {
  std::size_t width = 0;  ///< width of the screen; 0: unlimited
  /// Names in order; empty: as many columns as fit; {"all"}: every column with a value.
  std::vector<std::string> columns;
};
/// Errors: usage_error for an unknown column; called before a table is made.
void check_columns(const table_view& view, std::vector<std::string> known);

/// A header and one line per row. A final line names the columns that did not fit. Words common to all rows are
/// stated once in a line above the table, except for columns of rank 0.
/// Errors: usage_error for a column of the view that is unknown.
[[nodiscard]] std::string to_table(std::span<const column> columns, std::span<const row> rows,
                                   const table_view& view);

/// A header of the keys and one line per row. Null is an empty field.
[[nodiscard]] std::string to_csv(const std::vector<std::string>& keys, std::span<const row> rows);

/// {head..., "list": [rows]} with one line per row, without a final line end.
[[nodiscard]] std::string to_json_lines(const row& head, const char* list,
                                        std::span<const row> rows);
/// Returns the only text, or an array of all texts with one line each.
[[nodiscard]] std::string one_or_array(std::span<const std::string> texts);

/// Returns the value; null if there is none.
template <class Value>
[[nodiscard]] row or_null(const std::optional<Value>& value) {
  return value ? row(*value) : row(nullptr);
}
/// Returns part / whole, or null if `whole` is 0.
[[nodiscard]] row share_of(std::uint64_t part, std::uint64_t whole);

}  // namespace hotset::lab
