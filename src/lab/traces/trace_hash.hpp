// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A number that identifies the routing of a trace.

#include <cstdint>

#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Hash of the shape and of all ids, steps and sequences, as read: equal for one trace in two file formats. No defence
/// against forged traces. Complexity: O(T L K), at the speed of memory.
[[nodiscard]] std::uint64_t trace_hash(const routing_trace& trace) noexcept;

}  // namespace hotset::lab
