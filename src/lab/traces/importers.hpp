// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Readers of routing that others recorded as text. Each parses text in memory; messages name `file` and the line.

#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// The route CSV of BigMoeOnEdge: turn,phase,step,layer,slot,expert,weight[,residency,expert_bytes].
///
/// A turn is a sequence. Its prompt tokens (phase 0) are one step, each decoded token is one. Header comments are used if
/// they are there: n_expert, n_expert_used, model, expert_bytes of each layer. Else the shape is the smallest that holds
/// the rows, and the bytes are those read on a miss. Layers that route nothing are left out; metadata "layers" keeps the
/// original numbers. Errors: trace_error, also for a file that ends before its last token's last rank.
[[nodiscard]] routing_trace parse_bigmoe_route_csv(std::string_view text, const std::string& file,
                                                   const open_trace_options& options = {});

/// One routed expert a row: layer,expert[,weight], as llama.cpp's evaluation callback dumps it.
///
/// Rows are divided into tokens by recorded_rows::divide. Two passes in a row over a single layer cannot be told apart.
/// Errors: trace_error.
[[nodiscard]] routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                                   const open_trace_options& options = {});

/// One JSON object a line, with keys named by the field map. Errors: trace_error.
[[nodiscard]] routing_trace parse_json_lines(std::string_view text, const std::string& file,
                                             const open_trace_options& options = {});

/// A CSV of any columns, named by the field map: a header and rows, divided by commas, else semicolons, else tabs; a field
/// that has the divider in it stands in quotes.
///
/// A row has one expert of a token in a layer, or all, as "3 17 22", "[3, 17, 22]" or "3|17|22", or in columns that the
/// field names as "e0..e5"; -1 is absent. Rows with a token of their own may come in any order: those of one token and
/// layer are joined in the order of the file, or by rank. If experts stand one a row, token or rank says which of them
/// belong together: a rank that does not rise begins a token. Names that the map leaves as they are may be singular:
/// expert, weight. Other columns are left alone. Errors: trace_error.
[[nodiscard]] routing_trace parse_column_csv(std::string_view text, const std::string& file,
                                             const open_trace_options& options = {});

/// Whether a header has columns of the layer and of the experts ("expert" stands for "experts").
[[nodiscard]] bool looks_like_column_csv(std::string_view header, const field_map& fields = {});

/// Whether two lines have the same number of columns, 2 or more.
[[nodiscard]] bool have_same_columns(std::string_view header, std::string_view row);

/// The options that are likely to read a CSV with this header: "--format csv --field layer=block,experts=e0..e5".
[[nodiscard]] std::string suggested_fields(std::string_view header);

}  // namespace hotset::lab
