// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers that identify traces and texts. No defence against forgery.

#include <cstdint>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Hash of the shape and of all ids, steps and sequences, as read: equal for one trace in two file formats.
/// Complexity: O(T L K), at the speed of memory.
[[nodiscard]] std::uint64_t trace_hash(const routing_trace& trace) noexcept;
/// Hash of everything in a trace that can decide a replay: the routing, and every other array.
/// Complexity: O(bytes of the trace), at the speed of memory.
[[nodiscard]] std::uint64_t content_hash(const routing_trace& trace) noexcept;
[[nodiscard]] std::uint64_t text_hash(std::string_view text) noexcept;

}  // namespace hotset::lab
