// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs the visits of a trace through a simulated engine: routing, cache management, prefetch, and a clock.

#include <cstdint>
#include <optional>
#include <string>
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

/// What stands between the trace and the cache.
struct replay_front {
  std::optional<any_routing_policy::config> routing{};    ///< none: the trace's own selection
  std::optional<any_prefetch_policy::config> prefetch{};  ///< none: no prefetch
  /// Of prefetchers that go by probabilities; as deep as they look.
  any_predictor::config predictor = any_predictor::holding<recorded_scores>();
  /// Its visits are seen by the predictor before the replay begins, or none; it has the replayed trace's shape.
  const routing_trace* lessons = nullptr;
  /// What the cache holds when the replay begins, least wanted first; the time that it takes is not counted.
  std::vector<expert_key> start{};
  bool needs_scores = false;  ///< the cache's miss policy needs the router's scores
  /// Slots are freed before the next layer's visit; a predictor must work on the trace.
  std::optional<active_evict::config> pre_eviction{};
  /// The eviction policy hears of them; it does without where the trace has none.
  bool tells_forecasts = false;
};

/// Units: nanoseconds on the simulated clock.
struct replay_times {
  ticks total = 0;
  ticks blocked = 0;    ///< the arithmetic waited for copies
  ticks link_busy = 0;  ///< the link carried something
  ticks back_busy = 0;  ///< victims were on their way back
  std::uint64_t sequences = 0;
  /// Summed over sequences: from their first step's begin to the end of their last prefill step; without any prefill row, to
  /// the end of their first step.
  ticks first_token = 0;
  std::uint64_t decoded = 0;  ///< decode rows
  ticks decoding = 0;         ///< summed over decode rows: how long their step took
};

/// What a replay with a clock tells beside its counters.
struct replay_outcome {
  replay_times times{};
  std::uint64_t bytes_back = 0;  ///< of victims
  std::uint64_t streamed = 0;    ///< experts that came through transient slots
  gate_mass mass{};              ///< of decode and prefill alike; 0 without gate weights
  prediction_score::counts predictions{};
  /// How sure the predictor was: the mean over the tokens of all visits it answered; nothing where it does not say.
  std::optional<double> confidence{};
  prefetch_queue_stats queue{};
};

/// Errors: usage_error if the trace lacks what a policy needs (it says which policy and what would do);
/// infeasible_error naming the visit and what the cache said.
[[nodiscard]] replay_outcome replay_timed(const routing_trace& trace, const visit_sequence& visits,
                                          const event_order& events, simulated_engine& engine,
                                          const replay_front& front);

/// Whether anyone is told what is expected: somebody wants to hear it, and the trace has what the predictor goes by.
[[nodiscard]] bool tells_of_forecasts(const routing_trace& trace, const replay_front& front);

/// Why a trace cannot be replayed with this front, or nothing.
[[nodiscard]] validation check_front(const routing_trace& trace, const replay_front& front);

}  // namespace hotset::lab
