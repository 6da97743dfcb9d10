// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cleans up the rows of a trace after reading: filled rows, dense layers, and new steps.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// The recording's number of each layer: metadata "layers", else 0, 1, 2, ...
[[nodiscard]] std::vector<std::int32_t> layer_numbers(const routing_trace& trace);
/// Sets metadata "layers", or removes it if the numbers are 0, 1, 2, ...
void keep_layer_numbers(routing_trace& trace, const std::vector<std::int32_t>& layers);

/// Whether two ids of 0 or more are equal.
template <class Ids>
[[nodiscard]] bool names_twice(const Ids& ids) {
  for (auto id = ids.begin(); id != ids.end(); ++id)
    if (static_cast<std::int64_t>(*id) >= 0 && std::find(ids.begin(), id, *id) != id) return true;
  return false;
}

/// A row is one token in one layer. A router names each expert at most once per row. A row with an expert twice is
/// therefore filler (zeros of a dense layer or of a lost prompt, padding), and all its ids become absent.
/// Errors: trace_error if no row is routed.
void empty_filled_rows(routing_trace& trace, const std::string& file, reading_notes* notes);

/// Notes layers that name one expert in all of their at least 8 rows, if the trace is of top-1 and others differ: zeros
/// of dense layers look so.
void note_constant_layers(const routing_trace& trace, reading_notes* notes);

/// Removes layers without any routed row, which are dense, if any layer is routed. Metadata "layers" keeps the
/// numbers of the others. Predictions refer to layers by distance and are dropped with them.
void leave_out_dense_layers(routing_trace& trace, reading_notes* notes = nullptr);

/// Keeps only layers whose numbers are in a range. Predictions are dropped. Errors: trace_error if none is.
void keep_layers(routing_trace& trace, std::span<const layer_range> wanted,
                 const std::string& file);

/// Keeps only the first tokens.
void keep_first(routing_trace& trace, std::size_t tokens);

/// Keeps only tokens in the range, counted from 0. Steps are numbered from 0 again. Errors: trace_error if none is.
void keep_tokens(routing_trace& trace, const row_range& wanted, const std::string& file);
/// Keeps only sequences whose numbers are in the range. They keep their numbers; steps are numbered from 0 again.
/// Errors: trace_error if none is.
void keep_sequences(routing_trace& trace, const row_range& wanted, const std::string& file);

/// Gives every row a new step and kind. A step spans several sequences only if `abreast` says so: then rows are
/// reordered, and when a sequence ends the next one takes its place. Complexity: O(bytes of the trace).
void cut_steps(routing_trace& trace, const step_shape& shape);

}  // namespace hotset::lab
