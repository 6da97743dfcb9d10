// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting on the device, in one fused kernel.

#include <array>
#include <cstdint>
#include <limits>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/cuda/error.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Applies the rule of adapters/reroute.hpp. All pointers are device addresses.
struct reroute_arguments {
  redirect_rows map;                               ///< rows in device memory
  const expert_id* ids = nullptr;                  ///< [tokens * top_k]
  const std::int32_t* adapter_of_token = nullptr;  ///< [tokens], negative: the base model
  std::int32_t tokens = 0;
  std::int32_t top_k = 0;
  expert_id* out = nullptr;          ///< [tokens * top_k]; may be `ids`
  std::uint64_t* refused = nullptr;  ///< [1] or null; grows by the number of ids out of range
};

/// Number of routed ids in the batch.
[[nodiscard]] constexpr std::int64_t entries_of(const reroute_arguments& a) noexcept {
  return std::int64_t{a.tokens} * a.top_k;
}

/// Returns invalid_value for shapes out of range, missing or misaligned arrays, and results that overlap another
/// array. Only `out` may be `ids`.
[[nodiscard]] inline error_code check(const reroute_arguments& a) noexcept {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (a.tokens < 0 || a.top_k < 1 || entries_of(a) > most || a.map.adapters < 0 ||
      a.map.experts < 1 || std::int64_t{a.map.adapters} * a.map.experts > most)
    return error_code::invalid_value;
  const device_range ids(a.ids, entries_of(a));
  const device_range out(a.out, entries_of(a));
  const std::array<device_range, 5> arrays = {
      {{a.map.rows, std::int64_t{a.map.adapters} * a.map.experts},
       {a.adapter_of_token, a.tokens},
       ids.is(out) ? device_range{} : ids,
       out,
       {a.refused, a.refused == nullptr ? 0 : 1}}};
  return device_range::are_usable(arrays, 3) ? error_code::success : error_code::invalid_value;
}

/// Enqueues one kernel, or none if there are no tokens. No allocation; may be captured into a graph.
/// Errors: those of check(), with nothing launched; those of the launch.
error_code launch_reroute(const reroute_arguments& arguments, stream_handle stream) noexcept;

}  // namespace hotset::cuda
