// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compares a provider with full residency, byte for byte, on prompts and their continuations.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

struct named_text {
  std::string name;
  std::string text;
};

/// Returns the texts without their names.
[[nodiscard]] std::vector<std::string> words_of(std::span<const named_text> texts);

/// Reads the files; without files every `folder`/prompts/*.txt, by name. A text is named after its file. Errors:
/// hotset::trace_error if there is none, one cannot be read, or one is empty.
[[nodiscard]] std::vector<named_text> read_texts(std::span<const std::filesystem::path> files,
                                                 const std::filesystem::path& folder);

/// One configuration to compare.
struct verification_case {
  std::string eviction = "lru";
  std::string admission = "always";
  hotset::cache_scope scope = hotset::cache_scope::shared;
  std::string budget = "25%";
  std::size_t max_tokens = 0;  ///< per pass: longer prompts run in chunks; 0: whole prompts
  hotset::visit_split split = hotset::visit_split::by_token;
  hotset::host_stream::mode stream = hotset::host_stream::mode::caller;
  std::string prefetch = "no_prefetch";
  std::string guard = "named";
  std::string pre_eviction = "none";
  std::string predictor = "next-router";
  std::string miss = "fetch";
  std::size_t transient = 0;  ///< slots beside the budget, for experts without a slot
  std::string link{};         ///< speed of copies; empty: as fast as memory

  /// Description in words.
  [[nodiscard]] std::string text() const;
};

/// Every eviction policy that an engine can use, in every scope, from the smallest working cache up; then admission
/// policies, chunked prompts and a worker stream; then every prefetcher that an engine can run, under each guard, and
/// over a link so slow that most of its copies are late or cancelled; then every predictor without a file, with
/// prefetches one to three layers ahead and slots freed at both points of a visit.
[[nodiscard]] std::vector<verification_case> exact_cases();

struct verification_outcome {
  /// First row of logits that differs.
  struct place {
    std::string prompt;
    std::size_t position = 0;
  };
  std::size_t rows = 0;  ///< rows compared
  std::optional<place> difference;
  double largest = 0.0;  ///< largest absolute difference of two logits
  // Counts of the provider, if it pages.
  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  std::uint64_t split_visits = 0;
  std::uint64_t host_uses = 0;
  std::uint64_t prefetch_hits = 0;
};

/// Holds the results of full residency. Threads: const use is safe.
class verification {
 public:
  /// Continues every text greedily by `continuation` tokens.
  /// Pre: `weights` outlives it. Errors: hotset::trace_error if a text is too long for that.
  verification(const model& weights, std::vector<named_text> texts, std::size_t continuation);

  /// Runs every text and its continuation through the provider. max_tokens: that of verification_case.
  [[nodiscard]] verification_outcome compare(expert_provider& experts,
                                             std::size_t max_tokens = 0) const;
  /// Errors: those of make_paged_experts.
  [[nodiscard]] verification_outcome compare(const verification_case& one) const;
  /// Compares cases on as many threads as there are cores; stops soon after the first difference.
  /// Returns: by case; `rows` is 0 if the case was not compared.
  [[nodiscard]] std::vector<verification_outcome> compare_all(
      std::span<const verification_case> cases) const;

  [[nodiscard]] std::span<const named_text> texts() const noexcept { return texts_; }
  /// Tokens after text i.
  [[nodiscard]] std::span<const std::uint8_t> continuation(std::size_t i) const noexcept {
    return continuations_[i];
  }

 private:
  const model& model_;
  std::vector<named_text> texts_;
  routing_profile profile_;
  std::vector<std::vector<std::uint8_t>> continuations_;
  std::vector<std::vector<float>> logits_;  ///< by text: [text + continuation - 1, 256]
};

}  // namespace tiny_moe
