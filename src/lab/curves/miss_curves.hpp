// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves of a trace: measured in one pass, and written as JSON (schema hotset.curve/1), CSV or a table.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view curve_schema = "hotset.curve/1";

/// "exact", "shards:0.01" (a share of the keys) or "shards:8192" (so many keys at most).
struct curve_method {
  double rate = 0;            ///< 0: exact
  std::size_t most_keys = 0;  ///< of the sample; 0: no limit
  std::string text = "exact";

  /// Errors: usage_error.
  [[nodiscard]] static curve_method parse(std::string_view text);
  [[nodiscard]] bool is_exact() const noexcept { return rate == 0; }
};

/// Of one pool.
struct pool_curve {
  std::optional<layer_id> layer{};  ///< none: shared by all layers
  std::uint32_t widest = 0;         ///< widest union of a visit: with fewer slots a visit is split
  std::vector<double> misses{};  ///< by slots from 0 on; below `widest` not what a pager would miss
};
/// Of one trace in one scope.
struct curve_set {
  std::string name;
  std::string scope, method, replay;
  std::string eviction{};  ///< as it was asked for; empty: lru, unasked
  std::uint64_t accesses = 0;
  double compulsory_misses = 0;
  std::uint32_t widest = 0;
  std::vector<pool_curve> pools{};
};

/// `eviction`: one of evictions_of_every_size(); empty: lru. Each is measured by the exact method, lru also by a
/// sample.
/// Errors: usage_error if a layer's own curve is asked of a sample (its experts are too few), or a sample of other
/// policies.
[[nodiscard]] curve_set measure_curves(const visit_sequence& visits, cache_scope scope,
                                       const curve_method& method, std::uint64_t seed = 0,
                                       std::string_view eviction = {});

}  // namespace hotset::lab
