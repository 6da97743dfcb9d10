// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results as rows of named values, and the three ways to write them: JSON, CSV and a table.

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

/// One result: values under the names that JSON and CSV give them. Null: not measured.
using row = nlohmann::ordered_json;

/// The form of a column's values in a table. Null is "-".
struct cell {
  enum kind : std::uint8_t {
    number,  ///< to the right; text as it is
    word,    ///< text, to the left
    bytes,   ///< in one unit for the column, which the title then names
  } as = number;
  int digits = 0;     ///< behind the point; of numbers that are not whole
  double scale = 1;   ///< 100: a share in percent
  bool some = false;  ///< 0 is "-", too
};

/// A column of a table over rows.
struct column {
  const char* name;   ///< as --columns takes it
  const char* key;    ///< the member of a row
  const char* title;  ///< with the unit, but for bytes
  cell shown{};
  int rank = 0;  ///< the highest are left out first; those of 0 stay
  /// Shown if a row has this member and it is not 0. "": always shown; if_named: only if --columns names it.
  const char* where = "";
  const char* plain = "";  ///< words: the value that goes without saying
};
/// A value of column::where.
inline constexpr const char* if_named = "?";

[[nodiscard]] std::vector<std::string> names_of(std::span<const column> columns);

/// The width and the columns of a table.
struct table_view {
  std::size_t width = 0;  ///< of the screen; 0: as wide as need be
  /// By name, in this order; empty: what fits; {"all"}: whatever says something.
  std::vector<std::string> columns;
};
/// Errors: usage_error for a column that is none of them, before there is a table.
void check_columns(const table_view& view, std::vector<std::string> known);

/// A header and a line for each row; what there was no room for is named in a line below.
/// Words that all rows have in common are said once, in a line above the table, but for columns of rank 0.
/// Errors: usage_error for a column of the view that is none of these.
[[nodiscard]] std::string to_table(std::span<const column> columns, std::span<const row> rows,
                                   const table_view& view);

/// A header of the keys and a line for each row. Null is an empty field.
[[nodiscard]] std::string to_csv(const std::vector<std::string>& keys, std::span<const row> rows);

/// {head..., "list": [rows]} with a line for each row, without a line's end.
[[nodiscard]] std::string to_json_lines(const row& head, const char* list,
                                        std::span<const row> rows);
/// The only text, or an array of all with a line for each.
[[nodiscard]] std::string one_or_array(std::span<const std::string> texts);

/// The value; null if there is none.
template <class Value>
[[nodiscard]] row or_null(const std::optional<Value>& value) {
  return value ? row(*value) : row(nullptr);
}
/// part / whole, or null if `whole` is 0.
[[nodiscard]] row share_of(std::uint64_t part, std::uint64_t whole);

}  // namespace hotset::lab
