// SPDX-License-Identifier: Apache-2.0
#pragma once
/// From the words of a command line to a provider that pages: policies, sizes, precisions and a link.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/replay/sweep.hpp"
#include "tiny_moe/experts/expert_library.hpp"
#include "tiny_moe/experts/paged_experts.hpp"

namespace tiny_moe {

/// Texts as the command line takes them.
struct paging_choice {
  /// Its predictor "recorded" is next-router here: what the engine records is what the next layers' routers say.
  hotset::lab::policy_set policies{};
  std::string scope = "shared";
  std::string budget = "25%";
  std::string precision{};        ///< a ladder such as "8:4@75:25"; empty: the file's halves
  std::string link{};             ///< a rate such as "100MB/s"; empty: as fast as the memory
  std::string latency = "0";      ///< of each copy over the link
  std::string stream = "caller";  ///< or "worker"
  std::size_t transient = 0;      ///< slots beside the budget, for what is refused one
  std::size_t max_tokens = 0;     ///< of one pass; 0: whole prompts
  hotset::visit_split split = hotset::visit_split::by_token;
};

/// A provider and the copies that it reads.
struct chosen_paging {
  std::unique_ptr<expert_library> library{};  ///< none: it reads the file
  std::unique_ptr<paged_provider> experts{};
};

/// `profile` is what `popularity` goes by.
/// Errors: hotset::lab::usage_error, hotset::lab::infeasible_error, hotset::invalid_config.
[[nodiscard]] chosen_paging make_paging(const model& weights, const paging_choice& choice,
                                        const routing_profile& profile);

/// Nothing if none is chosen. Errors: hotset::lab::usage_error.
[[nodiscard]] std::optional<hotset::link_model::config> link_of(const paging_choice& choice);

/// The row of a report for what a provider has done; times only over a link.
[[nodiscard]] hotset::lab::run_result result_of(paged_provider& experts,
                                                const paging_choice& choice);

}  // namespace tiny_moe
