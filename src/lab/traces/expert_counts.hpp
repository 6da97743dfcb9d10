// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Number of uses of each expert: a profile, without order or combinations of uses.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

struct expert_counts {
  std::string name;
  std::string source;
  /// [L], ascending: numbers of the model's layers with experts.
  std::vector<std::int32_t> layers;
  std::int32_t experts = 0;
  std::vector<double> uses;  ///< [L, E], non-negative whole numbers

  /// Uses of all experts in all layers.
  [[nodiscard]] double total() const noexcept;
  /// Number of experts without a use.
  [[nodiscard]] std::size_t unused() const noexcept;
  /// Share of all uses by the most used `share` of the experts, rounded down to whole experts; 0 without any use.
  /// Pre: 0 <= share <= 1.
  [[nodiscard]] double hottest(double share) const;
};

/// Counts each routed id as a use. `tokens`: only the first tokens; 0: all.
[[nodiscard]] expert_counts count_uses(const routing_trace& trace, std::uint64_t tokens = 0);

/// Whether a file with these first bytes is a JSON object with counts under "logical_count".
[[nodiscard]] bool looks_like_logical_counts(std::string_view beginning) noexcept;

/// Reads a JSON object with counts under "logical_count", [layers][experts], or [steps][layers][experts], which are
/// summed: the format of `hotset counts --json` and of SGLang's --init-expert-location. Keys layers, name and source
/// are optional. Errors: trace_error.
[[nodiscard]] expert_counts read_logical_counts(const std::filesystem::path& path);

/// Whether the first line is the header of a CSV with a layer, an expert and a count in each row.
[[nodiscard]] bool looks_like_count_csv(std::string_view beginning);

/// Reads such a CSV, SGLang's earlier recording among them; counts of one expert are summed. `experts`: of a layer; 0:
/// the highest id + 1, which is noted. Errors: trace_error; a column for each expert, and not so many.
[[nodiscard]] expert_counts read_count_csv(const std::filesystem::path& path, std::int32_t experts,
                                           reading_notes* notes = nullptr);

/// Reads llama.cpp's importance matrix (llama-imatrix, GGUF): `blk.<layer>.ffn_<part>_exps.weight.counts` is the
/// number of rows given to each expert of a layer. All parts of a layer get the same rows: the first one is read.
/// Errors: trace_error.
[[nodiscard]] expert_counts read_imatrix(const std::filesystem::path& path);

}  // namespace hotset::lab
