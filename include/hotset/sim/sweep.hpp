// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays one trace under every combination of policies, scopes, sizes and replay modes.

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/paging/pager.hpp"
#include "hotset/sim/cache_size.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/registry.hpp"
#include "hotset/sim/replay.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::inline v0::sim {

/// Lists give every combination, in this order of nesting: replay, scope, size, admission, eviction.
struct sweep_request {
  std::vector<std::string> evictions{"lru"};
  std::vector<std::string> admissions{"always"};
  std::vector<std::string> scopes{"shared"};
  std::vector<std::string> replays{"event-atomic"};
  std::vector<size_request> sizes{};
  bool size_classes = false;  ///< shared scope: a pool for each size of expert
  visit_split split = visit_split::by_token;
  unsigned jobs = 1;                  ///< replays at one time
  std::uint32_t max_tokens = 0;       ///< longer steps are cut; 0: no limit
  std::ostream* decisions = nullptr;  ///< a JSON line for each decision; runs one by one then
  std::function<void(std::size_t done, std::size_t total)>
      progress{};  ///< called from one thread at a time
};

/// One replay.
struct run_result {
  std::string eviction, admission, scope, replay;
  std::uint64_t slots = 0;  ///< over all pools; deferred: all keys, or what the budget holds
  std::optional<std::uint64_t> budget_bytes{};  ///< if the size was given in bytes
  pager_stats stats{};
  std::uint64_t decision_hash = 0;
  std::vector<std::string> notes{};
};

struct sweep_result {
  std::string name;
  std::int32_t layers = 0, experts = 0, top_k = 0;
  std::uint64_t tokens = 0, visits = 0;  ///< visits of the event-atomic form
  std::vector<run_result> results{};
};

/// Errors: usage_error, infeasible_error, trace_error. Threads: runs up to `jobs` replays at a time.
[[nodiscard]] sweep_result run_sweep(const routing_trace& trace, const sweep_request& request);

/// Tokens that were routed to each key, [layers * experts], over the first tokens of a trace (0: all).
[[nodiscard]] std::vector<double> count_uses(const routing_trace& trace, std::uint64_t tokens);

}  // namespace hotset::inline v0::sim
