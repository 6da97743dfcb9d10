// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Two streams, one budget: expert routing and KV blocks replayed under fixed splits and under the online controller.
///
/// A workflow gives bursts: so many steps of its routing trace, and the blocks of its next request. Workflows follow each
/// other in one session; each has experts in common with the others and KV blocks of its own. Experts live in per-layer
/// LRU pools of one cap (the pager itself), blocks in one LRU pool. Seconds are those of WiSP eq. 4.
/// Fixed splits are measured for every cap at once, from reuse distances, as if every visit fitted its pool; the
/// controller's run is replayed, and its pools are resized where a burst ends.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/control/marginal_value.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view split_schema = "hotset.split/1";

/// The routing of experts and the requests of one kind of work.
struct workflow {
  std::string name{};
  const routing_trace* routing = nullptr;
  const kv_trace* requests = nullptr;
};

/// Workflows, the budget that they share, and what counts.
struct split_request {
  std::vector<workflow> workflows{};
  /// Its budget, units, floors and prices are those of all policies.
  marginal_value::config control{};
  std::uint32_t burst_steps = 32;  ///< of the routing trace, to a request
  /// Bursts of each workflow that no policy is charged for; the first one's are what the configurator goes by, where the
  /// controller begins.
  std::uint32_t warmup = 4;
};

/// Seconds of the bursts that count, on average.
struct split_outcome {
  std::string policy;
  std::uint64_t cap = 0;  ///< of a fixed split; of the controller, the last one
  double seconds = 0;     ///< of a burst
  std::uint64_t moves = 0;
  std::vector<std::uint64_t> caps{};  ///< of the controller, by burst
};
/// What each policy paid on one workflow, or on all of them in turn.
struct split_result {
  std::string name;
  std::uint64_t bursts = 0;  ///< that count
  std::vector<split_outcome> outcomes{};
};

/// Each workflow alone, and all of them one after the other if there are several. Policies: `oracle` (of a session of
/// several: the best fixed split of each workflow), `best-fixed` (with hindsight, for the whole session), `mv-wsa`, `50-50`,
/// `flux-prop` (the experts' working set first).
/// Errors: usage_error, infeasible_error (with the smallest budget that works).
[[nodiscard]] std::vector<split_result> simulate_split(const split_request& request);

}  // namespace hotset::lab
