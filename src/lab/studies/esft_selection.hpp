// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which experts ESFT tunes for a task: those that the task's tokens use most, up to a threshold in each layer.
///
/// Rule: by descending score, ties by ascending expert, take experts while the sum of those before is less than p. A layer
///   whose scores sum to less gives all of its experts.
///   token score: share of the routed places that are the expert's, count / (tokens * top_k), rounded to four decimals.
///   gate score: its summed gate weight / tokens, rounded likewise; a layer's sum is not 1, so p is no share of it.
/// Source: Expert-Specialized Fine-Tuning, section 3, as the configurations that its authors published were made.
/// Deviations: their later script divides by the sum over layers and not over experts; no published file follows it.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/lab/esft_config.hpp"

namespace hotset::lab {

/// What experts are chosen by: the share of the tokens that they got, or of the gate.
enum class esft_score : std::uint8_t { token, gate };

/// "token", "gate". Errors: usage_error that lists the names.
[[nodiscard]] esft_score parse_esft_score(std::string_view name);

/// An expert and its share.
struct scored_expert {
  expert_id expert = no_expert;
  double score = 0;
};

/// One kind of score of all experts of all MoE layers.
struct esft_summary {
  std::vector<std::int32_t> layer_numbers;         ///< the model's, ascending
  std::vector<std::vector<scored_expert>> scores;  ///< Shape: [layers]
};

/// Reads `{"token_scores": {layer: {expert: score}}, "gate_scores": ...}`; of a folder or archive its summary.json, or, where
/// there is none, scores what its expert_weights_<layer>.txt recorded.
/// Errors: trace_error, one line: file, what was found, what is accepted.
[[nodiscard]] esft_summary read_esft_summary(const std::filesystem::path& path, esft_score kind);

/// The same for the text of a summary; file is for messages.
[[nodiscard]] esft_summary parse_esft_summary(std::string_view text, const std::string& file,
                                              esft_score kind);

/// Returns a layer's experts in the order in which they are taken. Pre: p > 0.
[[nodiscard]] std::vector<expert_id> select_experts(std::span<const scored_expert> scores,
                                                    double p);

/// The same of every layer.
[[nodiscard]] esft_config select_experts(const esft_summary& summary, double p);

}  // namespace hotset::lab
