// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/paging_choice.hpp"

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/registry.hpp"
#include "lab/sizes.hpp"

namespace tiny_moe {
namespace {

namespace lab = hotset::lab;

/// Replaces the predictor "recorded", which an engine lacks, by next-router: traces record the next routers' scores.
lab::chosen_policies chosen_of(const paging_choice& choice) {
  auto names = choice.policies;
  if (names.predictor == lab::policy_set{}.predictor) names.predictor = "next-router";
  auto out = lab::read_policies(names, lab::predictor_names(true, false));
  const auto refuse = [](const std::string& policy, const char* accepted) {
    throw lab::usage_error(
        fmt::format("{}: a profile cannot be chosen here, accepted: {}", policy, accepted));
  };
  if (out.profile && *out.profile != hotset::profile_request{})
    refuse(names.eviction, "the policy alone, which goes by the prompt");
  if (out.prefetch_profile) refuse(names.prefetch, "running counts");
  return out;
}

}  // namespace

std::optional<hotset::link_model::config> link_of(const paging_choice& choice) {
  if (choice.link.empty()) return std::nullopt;
  hotset::link_model::config link{
      .bytes_per_second = lab::for_option("--link", [&] { return lab::read_rate(choice.link); }),
      .latency = lab::for_option("--latency", [&] { return lab::read_duration(choice.latency); })};
  if (const auto bad = link.validate()) throw lab::usage_error(bad->message);
  return link;
}

chosen_paging make_paging(const model& weights, const paging_choice& choice,
                          const routing_profile& profile) {
  const auto chosen = chosen_of(choice);
  chosen_paging out;
  std::vector<double> shares;
  if (!choice.precision.empty()) {
    const auto ladder = lab::precision_ladder::parse(choice.precision);
    shares = ladder.shares;
    out.library = std::make_unique<expert_library>(
        weights, choice.precision.substr(0, choice.precision.find('@')));
  }
  paging_config config;
  config.layout = layout_of(weights, lab::parse_scope(choice.scope), choice.budget,
                            choice.max_tokens, out.library.get(), shares);
  config.split = choice.split;
  config.stream = choice.stream == "worker" ? hotset::host_stream::mode::worker
                                            : hotset::host_stream::mode::caller;
  config.library = out.library.get();
  config.gate.predictor = chosen.predictor;
  config.gate.prefetch = chosen.prefetcher;
  config.gate.routing = chosen.routing;
  config.gate.pre_eviction = chosen.pre_eviction;
  config.guard = chosen.guard;
  config.cache.queue.order = chosen.order;
  config.miss = chosen.misses;
  config.link = link_of(choice);
  config.transient = choice.transient;
  out.experts =
      make_paged_experts(weights, config, choice.policies.eviction, choice.policies.admission,
                         chosen.profile ? profile.counts() : hotset::usage_profile{});
  return out;
}

hotset::lab::run_result result_of(paged_provider& experts, const paging_choice& choice) {
  experts.drain();
  lab::run_result out;
  out.policies = choice.policies;
  out.scope = choice.scope;
  out.replay = "engine";
  out.precision = choice.precision;
  out.link = choice.link;
  out.slots = experts.layout().slots();
  out.stats = experts.stats();
  out.decision_hash = experts.decision_hash();
  out.outcome.emplace();
  out.outcome->predictions = experts.predictions();
  out.outcome->queue = experts.queue();
  out.outcome->streamed = experts.streamed();
  out.outcome->times.blocked = experts.blocked();
  out.outcome->times.link_busy = experts.link_busy();
  if (!experts.is_exact())
    out.notes.push_back(fmt::format("{}: changes what the model computes",
                                    lab::make_miss(choice.policies.miss).traits.is_exact
                                        ? choice.policies.routing
                                        : choice.policies.miss));
  return out;
}

}  // namespace tiny_moe
