// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compares the simulator's clock with an emulated link: both wait for the same copies, one of them in real time.

#include <cstdint>
#include <span>

#include "hotset/predict/prediction_score.hpp"
#include "tiny_moe/experts/paging_choice.hpp"
#include "tiny_moe/studies/verification.hpp"

namespace tiny_moe {

struct clock_comparison {
  double engine_blocked = 0;  ///< seconds that the engine waited for its emulated link
  double clock_blocked = 0;   ///< seconds that the timed replay of its routing waits
  double engine_io = 0;       ///< seconds that the link carried copies
  double clock_io = 0;
  double visit = 0;  ///< seconds of a visit without waiting, measured and used by the replay:
  double token = 0;  ///< visit + token * tokens
  std::uint64_t engine_misses = 0;
  std::uint64_t clock_misses = 0;
  /// Requests ahead of need and how many were right: independent of the link's speed.
  hotset::prediction_score::counts engine_predictions{};
  hotset::prediction_score::counts clock_predictions{};

  /// clock / engine - 1.
  [[nodiscard]] double difference() const noexcept { return clock_blocked / engine_blocked - 1; }
};

/// Runs the texts and their continuations, one token at a time, over an emulated link; measures the arithmetic; and
/// replays the recorded routing under the same policies with those times. Pre: choice.link is given.
/// Errors: those of make_paging and of lab::replay_timed.
[[nodiscard]] clock_comparison compare_with_clock(const model& weights, const paging_choice& choice,
                                                  std::span<const named_text> texts,
                                                  std::size_t continuation);

}  // namespace tiny_moe
