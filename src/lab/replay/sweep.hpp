// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays one trace under every combination of policies, scopes, sizes and replay modes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
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

class finished_runs;

/// A requested link.
struct link_request {
  link_model::config link{};
  std::string text{};  ///< rate as given
  write_back_way write_back = write_back_way::none;
  link_model::config back{};  ///< way back; by default equal to the link
  std::size_t spares = 0;     ///< slots beside the cache's

  [[nodiscard]] engine_clock clock() const;
};

/// Lists give every combination, nested in this order: replay, scope, size, precision, link, policies.
struct sweep_request {
  std::vector<policy_set> policies{policy_set{}};
  std::vector<cache_scope> scopes{cache_scope::shared};
  std::vector<replay_mode> replays{replay_mode::event_atomic};
  std::vector<size_request> sizes{};
  std::vector<precision_ladder> precisions{};  ///< none: one precision
  /// none: copies take no time, and there are no times.
  std::vector<link_request> links{};
  visit_costs costs{};                     ///< for a timed replay
  const routing_trace* lessons = nullptr;  ///< shown to predictors before each replay; or none
  /// Caches start with the experts used most in the lessons.
  bool warm_start = false;
  bool size_classes = false;  ///< shared scope: one pool for each size of expert
  visit_split split = visit_split::by_token;
  unsigned jobs = 1;             ///< replays at the same time
  std::uint32_t max_tokens = 0;  ///< longer steps are cut; 0: no limit
  /// A JSON line for each decision; runs then execute one by one.
  std::ostream* decisions = nullptr;
  std::ostream* timeline = nullptr;  ///< for a single run: Chrome trace events
  /// Policies that the trace cannot be replayed with are left out with a note, not refused.
  bool leaves_out = false;
  /// A size that is too small in a scope is left out with a note, not refused, unless all are. For default sizes.
  bool leaves_out_sizes = false;
  progress_report progress{};  ///< in visits of all replays; one caller at a time
  /// Called as a run begins or ends, with a line such as "12 of 48 runs, lfu 25%"; one caller at a time.
  std::function<void(const std::string&)> running{};
  bool parts = false;  ///< count windows of steps, and sequences
  /// Names the contents of the trace and of the lessons: results then have keys. Empty: they have none.
  std::string inputs{};
  /// Runs found there are not replayed; others are added. Needs `inputs`; no decisions, no timeline.
  const finished_runs* finished = nullptr;
  /// Replays only runs with these keys. Needs `inputs`; empty: all runs.
  std::vector<std::string> only{};
};

/// A size that run_until has found. Values are shares of hits, or seconds.
struct found_size {
  std::string target{};
  double reached = 0;
  std::optional<double> next_smaller{};  ///< nothing if that size is too small for a visit
};

/// Result of one replay.
struct run_result {
  policy_set policies{};
  std::string scope{}, replay{};
  std::string precision{};  ///< the ladder, or empty
  std::string link{};       ///< the rate, or empty
  /// Over all pools; deferred: slots that the budget holds.
  std::uint64_t slots = 0;
  std::optional<std::uint64_t> budget_bytes{};  ///< if the size was given in bytes
  pager_stats stats{};
  /// For a run of the simulated engine: with a link, a prefetcher, a routing policy and others.
  std::optional<replay_outcome> outcome{};
  std::optional<double> bits_per_byte{};       ///< on held-out text, if a model ran
  std::optional<double> full_bits_per_byte{};  ///< bits per byte of that model at full precision
  std::uint64_t decision_hash = 0;
  std::vector<std::string> notes{};
  std::string size{};  ///< as requested
  std::optional<found_size> found{};
  /// Hash of all that decides the result: the trace's content, options and version, 16 hex digits; or empty.
  std::string key{};
  /// Slots of each layer; nothing for a layer that shares its pool. Empty: unknown.
  std::vector<std::optional<std::uint64_t>> layer_slots{};
  std::vector<window_counts> windows{};  ///< empty: not counted
  std::optional<std::vector<sequence_counts>> by_sequence{};
  double host_seconds = 0;  ///< processor time of the replay without its preparation
};

/// Results of all replays of one trace.
struct sweep_result {
  std::string name;
  std::int32_t layers = 0, experts = 0, top_k = 0;
  std::uint64_t tokens = 0, visits = 0;  ///< visits of the event-atomic form
  std::vector<run_result> results{};
  /// Runs left out because the trace lacks data, with the reason.
  std::vector<std::string> not_replayed{};
  bool sized = true;  ///< whether the bytes of an expert are known; else each expert counts as 1
  std::optional<std::uint64_t> bytes_per_expert{};  ///< nothing: unknown, or layers differ
  std::optional<std::uint64_t> trace_hash{};        ///< set by callers that write it

  [[nodiscard]] std::uint64_t experts_total() const {
    return static_cast<std::uint64_t>(layers) * static_cast<std::uint64_t>(experts);
  }
};

/// Errors: usage_error, infeasible_error, trace_error. Threads: runs up to `jobs` replays at a time.
[[nodiscard]] sweep_result run_sweep(const routing_trace& trace, const sweep_request& request);

/// A run that a sweep would replay.
struct planned_run {
  run_result wanted{};    ///< policies, scope, replay, size, precision, link and key
  bool finished = false;  ///< whether request.finished has it
};

/// Lists the runs of run_sweep in its order, and replays none. Needs `inputs`.
/// Errors: those of run_sweep that sizes and names of policies cause.
[[nodiscard]] std::vector<planned_run> plan_sweep(const routing_trace& trace,
                                                  const sweep_request& request);

}  // namespace hotset::lab
