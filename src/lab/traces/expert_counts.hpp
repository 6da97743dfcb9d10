// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How often each expert was used: a profile. Which experts were used together, and when, it does not say.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

struct expert_counts {
  std::string name;
  std::string source;
  /// [L], rising: numbers of the model's layers that have experts.
  std::vector<std::int32_t> layers;
  std::int32_t experts = 0;
  std::vector<double> uses;  ///< [L, E], whole numbers of 0 or more

  /// Of all experts in all layers.
  [[nodiscard]] double total() const noexcept;
  /// Experts that nobody used.
  [[nodiscard]] std::size_t unused() const noexcept;
  /// The share of all uses that the most used `share` of the experts have, rounded down to whole experts; 0 where nobody used
  /// any. Pre: 0 <= share <= 1.
  [[nodiscard]] double hottest(double share) const;
};

/// Each routed id is a use. `tokens`: the first ones are counted; 0: all.
[[nodiscard]] expert_counts count_uses(const routing_trace& trace, std::uint64_t tokens = 0);

/// Whether a file that begins like this is a JSON object with counts under "logical_count".
[[nodiscard]] bool looks_like_logical_counts(std::string_view beginning) noexcept;

/// A JSON object with counts under "logical_count", [layers][experts], or [steps][layers][experts], which are added up:
/// what `hotset counts --json` writes and SGLang's --init-expert-location takes. Keys layers, name and source are
/// optional. Errors: trace_error.
[[nodiscard]] expert_counts read_logical_counts(const std::filesystem::path& path);

/// llama.cpp's importance matrix (llama-imatrix, GGUF): `blk.<layer>.ffn_<part>_exps.weight.counts`, how many rows each expert
/// of a layer was given. The parts of a layer are given the same rows: the first counts. Errors: trace_error.
[[nodiscard]] expert_counts read_imatrix(const std::filesystem::path& path);

}  // namespace hotset::lab
