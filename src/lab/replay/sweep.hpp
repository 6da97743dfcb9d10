// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays one trace under every combination of policies, scopes, sizes and replay modes.

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/paging/pager.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/replay.hpp"
#include "lab/replay/timed_replay.hpp"

namespace hotset::lab {

/// A link as it was asked for.
struct link_request {
  link_model::config link{};
  std::string text{};  ///< its rate
  write_back_way write_back = write_back_way::none;
  link_model::config back{};  ///< of the way back; of a link without one, as the link
  std::size_t spares = 0;     ///< slots beside the cache's

  [[nodiscard]] engine_clock clock() const;
};

/// Lists give every combination, in this order of nesting: replay, scope, size, precision, link, policies.
struct sweep_request {
  std::vector<policy_set> policies{policy_set{}};
  std::vector<cache_scope> scopes{cache_scope::shared};
  std::vector<replay_mode> replays{replay_mode::event_atomic};
  std::vector<size_request> sizes{};
  std::vector<precision_ladder> precisions{};  ///< none: one precision
  std::vector<link_request> links{};           ///< none: copies take no time, and nothing is timed
  visit_costs costs{};                         ///< of a timed replay
  const routing_trace* lessons = nullptr;      ///< that predictors see before each replay; or none
  bool warm_start = false;                     ///< caches begin with what the lessons used most
  bool size_classes = false;                   ///< shared scope: a pool for each size of expert
  visit_split split = visit_split::by_token;
  unsigned jobs = 1;                  ///< replays at one time
  std::uint32_t max_tokens = 0;       ///< longer steps are cut; 0: no limit
  std::ostream* decisions = nullptr;  ///< a JSON line for each decision; runs one by one then
  std::ostream* timeline = nullptr;   ///< of the only run: Chrome trace events
  /// What a trace cannot be replayed with is left out and told, not refused.
  bool leaves_out = false;
  /// A size that is too small in a scope is left out and told, not refused, unless all are. For sizes that no user
  /// chose.
  bool leaves_out_sizes = false;
  progress_report progress{};  ///< in visits of all replays; called from one thread at a time
};

/// One replay.
struct run_result {
  policy_set policies{};
  std::string scope{}, replay{};
  std::string precision{};                      ///< the ladder, or empty
  std::string link{};                           ///< the rate, or empty
  std::uint64_t slots = 0;                      ///< over all pools; deferred: what the budget holds
  std::optional<std::uint64_t> budget_bytes{};  ///< if the size was given in bytes
  pager_stats stats{};
  /// Of a run with a link, a prefetcher or a bent routing.
  std::optional<replay_outcome> outcome{};
  std::optional<double> bits_per_byte{};       ///< on held-out text, where a model ran
  std::optional<double> full_bits_per_byte{};  ///< of that model at full precision
  std::uint64_t decision_hash = 0;
  std::vector<std::string> notes{};
  std::string size{};  ///< as it was asked for
};

/// All replays of one trace.
struct sweep_result {
  std::string name;
  std::int32_t layers = 0, experts = 0, top_k = 0;
  std::uint64_t tokens = 0, visits = 0;  ///< visits of the event-atomic form
  std::vector<run_result> results{};
  std::vector<std::string> not_replayed{};  ///< runs that the trace has too little for, and why
};

/// Errors: usage_error, infeasible_error, trace_error. Threads: runs up to `jobs` replays at a time.
[[nodiscard]] sweep_result run_sweep(const routing_trace& trace, const sweep_request& request);

}  // namespace hotset::lab
