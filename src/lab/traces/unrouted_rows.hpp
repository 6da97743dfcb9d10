// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds rows that no router made.

#include <string>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

/// A row is one token in one layer. A router names an expert once in a row: if an expert stands twice, the row was
/// filled up (zeros of a dense layer or of a lost prompt, padding), and all its ids become absent.
/// Errors: trace_error if no row is routed.
void empty_filled_rows(routing_trace& trace, const std::string& file, reading_notes* notes);

}  // namespace hotset::lab
