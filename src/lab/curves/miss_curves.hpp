// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves of a trace, measured in one pass.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::lab {

/// Schema name in JSON text.
inline constexpr std::string_view curve_schema = "hotset.curve/2";

/// "exact", "shards:0.01" (a share of the keys) or "shards:8192" (at most this many keys).
struct curve_method {
  double rate = 0;            ///< 0: exact
  std::size_t most_keys = 0;  ///< maximum keys of the sample; 0: no limit
  std::string text = "exact";

  /// Errors: usage_error.
  [[nodiscard]] static curve_method parse(std::string_view text);
  [[nodiscard]] bool is_exact() const noexcept { return rate == 0; }
};

/// Curve of one pool.
struct pool_curve {
  std::optional<layer_id> layer{};  ///< none: shared by all layers
  /// Experts in the widest visit: with fewer slots a visit is split.
  std::uint32_t widest = 0;
  std::uint64_t slot_bytes = 0;  ///< the largest expert's; 0: unknown
  std::vector<double> misses{};  ///< by slots, from 0; below `widest` a pager has other misses
};
/// Curves of one trace in one scope.
struct curve_set {
  std::string name;
  std::string scope, method, replay;
  std::string eviction{};  ///< as requested; empty: lru by default
  std::int32_t layers = 0, experts = 0;
  std::uint64_t accesses = 0;
  double compulsory_misses = 0;
  std::uint32_t widest = 0;
  std::vector<pool_curve> pools{};
  std::size_t cycle = 0;  ///< token_cycle of the trace, set by callers that show it
  std::optional<std::uint64_t> trace_hash{};  ///< set by callers that write it
};

/// Slots of one token's cycle in a pool: those of all its experts. With fewer, a recency order evicts each expert
/// before its next use if tokens are decoded one by one.
[[nodiscard]] inline std::size_t token_cycle(const routing_trace& trace, cache_scope scope) {
  const auto layers = scope == cache_scope::shared ? trace.layers : 1;
  return static_cast<std::size_t>(layers) * static_cast<std::size_t>(trace.top_k);
}

/// Measures the curves of `eviction`, one of evictions_of_every_size(); empty: lru. The exact method measures all of
/// them, a sample only lru.
/// Errors: usage_error for a sample with per-layer scope (a layer has too few experts), and for a sample with a
/// policy other than lru.
[[nodiscard]] curve_set measure_curves(const visit_sequence& visits, cache_scope scope,
                                       const curve_method& method, std::uint64_t seed = 0,
                                       std::string_view eviction = {});

}  // namespace hotset::lab
