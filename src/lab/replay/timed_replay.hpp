// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays the visits of a trace through a simulated engine: routing, cache management, prefetch, and a clock.

#include <cstdint>
#include <optional>
#include <vector>

#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/predict/prediction_score.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/replay.hpp"
#include "lab/replay/simulated_engine.hpp"

namespace hotset::lab {

/// Policies and predictors between the trace and the cache.
struct replay_front {
  std::optional<any_routing_policy::config> routing{};    ///< none: the trace's own selection
  std::optional<any_prefetch_policy::config> prefetch{};  ///< none: no prefetch
  /// For prefetchers that use probabilities; as deep as they look.
  any_predictor::config predictor = any_predictor::holding<recorded_scores>();
  /// Shown to the predictor before the replay begins, or none; has the replayed trace's shape.
  const routing_trace* lessons = nullptr;
  /// Initial contents of the cache, least wanted first; the time to fill it is not counted.
  std::vector<expert_key> start{};
  bool needs_scores = false;  ///< the cache's miss policy needs the router's scores
  /// Frees slots before the next layer's visit; needs a predictor that works on the trace.
  std::optional<active_evict::config> pre_eviction{};
  /// Passes forecasts to the eviction policy; it works without them if the trace has none.
  bool tells_forecasts = false;
};

/// Units: nanoseconds on the simulated clock.
struct replay_times {
  ticks total = 0;
  ticks blocked = 0;    ///< arithmetic waiting for copies
  ticks link_busy = 0;  ///< link carrying copies
  ticks back_busy = 0;  ///< victims being copied back
  std::uint64_t sequences = 0;
  /// Summed over sequences: from the start of their first step to the end of their last prefill step; without prefill
  /// rows, to the end of their first step.
  ticks first_token = 0;
  std::uint64_t decoded = 0;  ///< decode rows
  ticks decoding = 0;         ///< summed over decode rows: duration of their step
};

/// Results of a timed replay besides its counters.
struct replay_outcome {
  replay_times times{};
  std::uint64_t bytes_back = 0;  ///< bytes of victims
  std::uint64_t streamed = 0;    ///< experts streamed through transient slots
  gate_mass mass{};              ///< for decode and prefill together; 0 without gate weights
  prediction_score::counts predictions{};
  /// Mean confidence of the predictor over the tokens of all visits that it forecast; nothing if it reports none.
  std::optional<double> confidence{};
  prefetch_queue_stats queue{};
};

/// Errors: usage_error if the trace lacks what a policy needs (names the policy and the accepted choices);
/// infeasible_error naming the visit and the cache's status.
[[nodiscard]] replay_outcome replay_timed(const routing_trace& trace, const visit_sequence& visits,
                                          const event_order& events, simulated_engine& engine,
                                          const replay_front& front, part_counts* parts = nullptr);

/// Whether forecasts are made: a policy uses them, and the trace has what the predictor needs.
[[nodiscard]] bool tells_of_forecasts(const routing_trace& trace, const replay_front& front);

/// Error if a trace cannot be replayed with this front, or nothing.
[[nodiscard]] validation check_front(const routing_trace& trace, const replay_front& front);

}  // namespace hotset::lab
