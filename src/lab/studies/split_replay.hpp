// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays expert routing and KV blocks within one budget, under fixed splits and under the online controller.
///
/// A workflow gives bursts: `burst_steps` steps of its routing trace, and the blocks of its next request. Workflows
/// run in sequence in one session; they share experts, and each has its own KV blocks. Experts live in per-layer LRU
/// pools with one cap (the real pager), blocks in one LRU pool. Seconds are those of WiSP eq. 4.
/// Fixed splits are measured for every cap at once, from reuse distances, as if every visit fitted its pool. The
/// controller's run is replayed; its pools are resized when a burst ends.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/control/marginal_value.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Schema name in JSON text.
inline constexpr std::string_view split_schema = "hotset.split/1";

/// Routing of experts and requests of one kind of work.
struct workflow {
  std::string name{};
  const routing_trace* routing = nullptr;
  const kv_trace* requests = nullptr;
};

/// Workflows, their common budget, and the bursts that are charged.
struct split_request {
  std::vector<workflow> workflows{};
  /// Budget, units, floors and prices apply to all policies.
  marginal_value::config control{};
  std::uint32_t burst_steps = 32;  ///< steps of the routing trace per request
  /// First bursts of each workflow, which are not charged. The configurator uses those of the first workflow; the
  /// controller starts from its split.
  std::uint32_t warmup = 4;
};

/// Mean seconds of the charged bursts.
struct split_outcome {
  std::string policy;
  std::uint64_t cap = 0;  ///< a fixed split's cap; for the controller, the last one
  double seconds = 0;     ///< per burst
  std::uint64_t moves = 0;
  std::vector<std::uint64_t> caps{};  ///< caps of the controller, by burst
};
/// Results of each policy on one workflow, or on all of them in sequence.
struct split_result {
  std::string name;
  std::uint64_t bursts = 0;  ///< charged bursts
  std::vector<split_outcome> outcomes{};
};

/// Replays each workflow alone and, if there are several, all of them in sequence. Policies: `oracle` (for several
/// workflows: the best fixed split of each), `best-fixed` (with hindsight, for the whole session), `mv-wsa`, `50-50`,
/// `flux-prop` (the experts' working set first).
/// Errors: usage_error, infeasible_error (with the smallest budget that works).
[[nodiscard]] std::vector<split_result> simulate_split(const split_request& request);

}  // namespace hotset::lab
