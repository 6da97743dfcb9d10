// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns command-line options into a paging provider: policies, sizes, precisions and a link.

#include <memory>
#include <optional>
#include <string>

#include "lab/replay/sweep.hpp"
#include "tiny_moe/experts/expert_library.hpp"
#include "tiny_moe/experts/paged_experts.hpp"

namespace tiny_moe {

/// Options as text of the command line.
struct paging_choice {
  /// The predictor "recorded" means next-router here: the engine records the next routers' scores.
  hotset::lab::policy_set policies{};
  std::string scope = "shared";
  std::string budget = "25%";
  std::string precision{};        ///< a ladder such as "8:4@75:25"; empty: the file's halves
  std::string link{};             ///< rate such as "100MB/s"; empty: as fast as memory
  std::string latency = "0";      ///< latency of each copy over the link
  std::string stream = "caller";  ///< or "worker"
  std::size_t transient = 0;      ///< slots beside the budget, for experts without a slot
  std::size_t max_tokens = 0;     ///< per pass; 0: whole prompts
  hotset::visit_split split = hotset::visit_split::by_token;
};

/// A provider and the copies that it reads.
struct chosen_paging {
  std::unique_ptr<expert_library> library{};  ///< none: reads the file
  std::unique_ptr<paged_provider> experts{};
};

/// `profile`: usage counts for `popularity`.
/// Errors: hotset::lab::usage_error, hotset::lab::infeasible_error, hotset::invalid_config.
[[nodiscard]] chosen_paging make_paging(const model& weights, const paging_choice& choice,
                                        const routing_profile& profile);

/// Returns nothing without a link. Errors: hotset::lab::usage_error.
[[nodiscard]] std::optional<hotset::link_model::config> link_of(const paging_choice& choice);

/// A report's row for a provider's counters; times only with a link.
[[nodiscard]] hotset::lab::run_result result_of(paged_provider& experts,
                                                const paging_choice& choice);

}  // namespace tiny_moe
