// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a trace teaches `similar_steps`, to be saved and started from.

#include <cstdint>

#include "hotset/predict/history/saved_history.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// What eviction `similar_steps` with `rows` rows knows after the trace: the newest rows, the rates of all. The tokens of the
/// trace's last step are left out, for a step is whole when the next one begins.
/// Errors: usage_error for rows that it does not take; trace_error for a trace that cannot be replayed.
[[nodiscard]] saved_history learn_history(const routing_trace& trace, std::int32_t rows,
                                          std::uint64_t model = 0);

}  // namespace hotset::lab
