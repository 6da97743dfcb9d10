// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Parsers of routing recorded as text by other tools. Each parses text in memory; messages name `file` and the line.

#include <string>
#include <string_view>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// The route CSV of BigMoeOnEdge: turn,phase,step,layer,slot,expert,weight[,residency,expert_bytes].
///
/// A turn is a sequence. Its prompt tokens (phase 0) are one step, each decoded token is one. Header comments are
/// used if present: n_expert, n_expert_used, model, expert_bytes of each layer. Otherwise the shape is the smallest
/// that holds the rows, and the bytes are those read on a miss. Layers without routing are left out; metadata
/// "layers" keeps the original numbers. Errors: trace_error, also for a file that ends before its last token's last
/// rank.
[[nodiscard]] routing_trace parse_bigmoe_route_csv(std::string_view text, const std::string& file,
                                                   const open_trace_options& options = {});

/// One routed expert per row: layer,expert[,weight], the output of a llama.cpp evaluation callback.
///
/// recorded_rows::divide splits the rows into tokens. Two consecutive passes over a single layer cannot be
/// distinguished.
/// Errors: trace_error.
[[nodiscard]] routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                                   const open_trace_options& options = {});

/// One JSON object per line, with keys named by the field map. With a layer, experts are a token's, or
/// [tokens][experts]. Without one they are a token's [layers][experts] or a request's [tokens][layers][experts]; the
/// latter also in base64, as "routed_experts" in answers of engines. Records before the first route are left out.
/// Errors: trace_error.
[[nodiscard]] routing_trace parse_json_lines(std::string_view text, const std::string& file,
                                             const open_trace_options& options = {});

/// A CSV with columns named by the field map: a header and rows, divided by commas, else semicolons, else tabs; a
/// field with the divider in it is quoted.
///
/// A row has one expert of a token in a layer, or all: as "3 17 22", "[3, 17, 22]" or "3|17|22", or in columns that
/// the field names as "e0..e5"; -1 is absent. Rows with their own token may come in any order: rows of one token and
/// layer are joined in file order, or by rank. With one expert per row, token or rank decides which rows form a
/// token: a rank that does not rise begins a new one. Default names may be singular: expert, weight. Other columns
/// are ignored. Errors: trace_error.
[[nodiscard]] routing_trace parse_column_csv(std::string_view text, const std::string& file,
                                             const open_trace_options& options = {});

/// Whether a header has columns for the layer and the experts ("expert" counts as "experts").
[[nodiscard]] bool looks_like_column_csv(std::string_view header, const field_map& fields = {});

/// Whether two lines have the same number of columns, at least 2.
[[nodiscard]] bool have_same_columns(std::string_view header, std::string_view row);

/// Names of "e0..e5"; empty unless the field names such a range.
[[nodiscard]] std::vector<std::string> columns_of(std::string_view field);

/// Notes columns that seem to be of tokens or requests, if the fields have their default names and the header lacks
/// them.
void note_unread_fields(reading_notes* notes, const field_map& fields, std::string_view header);

/// Options that probably read a file with these names: "--format csv --field layer=block,experts=e0..e5". A name that
/// nothing hints at is "NAME".
[[nodiscard]] std::string suggested_fields(std::string_view header,
                                           std::string_view format = "csv");

}  // namespace hotset::lab
