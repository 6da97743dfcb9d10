// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routing from a CSV of any columns, with names of the reader's choosing.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"
#include "lab/traces/field_map.hpp"

namespace hotset::lab {

/// Whether a header has columns of the layer and of the experts ("expert" stands for "experts").
[[nodiscard]] bool looks_like_column_csv(std::string_view header, const field_map& fields = {});

/// Whether two lines have as many columns, 2 or more.
[[nodiscard]] bool have_same_columns(std::string_view header, std::string_view row);

/// The options that are likely to read a CSV with this header: "--format csv --field layer=block,experts=e0..e5".
[[nodiscard]] std::string suggested_fields(std::string_view header);

/// A header and rows, divided by commas, else semicolons, else tabs; a field that has the divider in it stands in quotes.
/// A row has one expert of a token in a layer, or all, as "3 17 22", "[3, 17, 22]" or "3|17|22", or in
/// columns that the field names as "e0..e5"; -1 is absent. Rows with a token
/// of their own may come in any order: those of one token and layer are joined in the order of the file, or by rank. Where
/// experts stand one a row, token or rank says which of them belong together: a rank that does not rise begins a token.
/// Names that the map leaves as they are may be singular: expert, weight. Other columns are left alone.
/// Errors: trace_error naming the line.
[[nodiscard]] routing_trace read_column_csv(const std::filesystem::path& path,
                                            const field_map& fields = {}, std::int32_t experts = 0,
                                            reading_notes* notes = nullptr);

/// Parses text in memory; messages name `file`. `experts` 0: the highest id + 1.
[[nodiscard]] routing_trace parse_column_csv(std::string_view text, const std::string& file,
                                             const field_map& fields = {}, std::int32_t experts = 0,
                                             reading_notes* notes = nullptr);

}  // namespace hotset::lab
