// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Learns from a trace the history that `similar_steps` starts from.

#include <cstdint>

#include "hotset/predict/history/saved_history.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Returns the state of eviction `similar_steps` with `rows` rows after the trace: the newest rows, and rates over
/// all of it. The tokens of the trace's last step are left out, because a step is complete when the next one begins.
/// Errors: usage_error for an invalid number of rows; trace_error for a trace that cannot be replayed.
[[nodiscard]] saved_history learn_history(const routing_trace& trace, std::int32_t rows,
                                          std::uint64_t model = 0);

}  // namespace hotset::lab
