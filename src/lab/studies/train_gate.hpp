// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Trains a learned_gate on recorded hidden states and routing, and judges it on sequences that it has not seen.
/// Source: ProMoE (a neuron predictor for each layer and stride), as fMoE describes it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/predict/learned_gate.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view train_gate_schema = "hotset.train-gate/1";

/// What a network's scores should be.
enum class gate_target : std::uint8_t {
  routed,         ///< 1/K for each routed expert
  probabilities,  ///< what the router gave each expert
};

/// What is trained, and how long.
struct gate_training {
  std::int32_t depth = 1;    ///< distances, 1 to this
  std::int32_t width = 64;   ///< hidden units of a network; 0: none, the networks are linear
  std::int32_t epochs = 10;  ///< times that each token is learnt from
  std::uint64_t seed = 1;
  /// Share of the sequences that are not learnt from, but judged on; 0: none.
  double holdout = 0.2;
  gate_target target = gate_target::routed;
  double rate = 0.002;      ///< of learning, at the beginning; it falls to 0
  std::int32_t batch = 64;  ///< tokens of a step

  [[nodiscard]] validation validate() const;
};

/// How many of the K experts that were named for the layer at a distance were routed there. Places: K for every token and layer
/// of the held-out part that routed any.
struct distance_quality {
  std::int32_t distance = 1;
  std::uint64_t places = 0;
  std::uint64_t hits = 0;
  std::uint64_t popular_hits = 0;                    ///< by the layer's most used experts
  std::optional<std::uint64_t> current_gate_hits{};  ///< by the scores of the layer before
  std::optional<std::uint64_t> recorded_hits{};      ///< by predictions that the trace recorded

  [[nodiscard]] double share(std::uint64_t of) const noexcept {
    return places == 0 ? 0 : static_cast<double>(of) / static_cast<double>(places);
  }
  friend bool operator==(const distance_quality&, const distance_quality&) = default;
};

/// The weights, and how good they are on what was held out.
struct gate_training_result {
  std::string trace;
  std::int32_t top_k = 0;
  gate_training training{};
  learned_gate::weights weights;
  std::size_t learnt_sequences = 0, learnt_tokens = 0;
  std::size_t judged_sequences = 0, judged_tokens = 0;
  std::vector<distance_quality> distances{};  ///< by distance; empty where nothing is held out
};

/// The networks of all layers and distances: cross-entropy by Adam in small batches, on inputs that are shifted and scaled to mean 0
/// and deviation 1, which ends in the weights. Each network's numbers depend on the seed, the layer and the distance alone, and
/// not on how many threads there are. Reports progress.
/// Errors: usage_error for training that no trace allows; trace_error for a trace without what it takes.
[[nodiscard]] gate_training_result train_gate(const routing_trace& trace,
                                              const gate_training& training);

}  // namespace hotset::lab
