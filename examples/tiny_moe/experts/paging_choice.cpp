// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/paging_choice.hpp"

#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/dimensions.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/registry.hpp"
#include "lab/sizes.hpp"

namespace tiny_moe {
namespace {

namespace lab = hotset::lab;

hotset::usage_profile profile_of(const std::string& eviction, const routing_profile& profile) {
  const auto asked = lab::requested_profile(eviction);
  if (!asked) return {};
  if (*asked != hotset::profile_request{}) {
    throw lab::usage_error(fmt::format(
        "{}: a profile cannot be chosen here, accepted: the policy alone, which goes by "
        "the prompt",
        eviction));
  }
  return profile.counts();
}

gate_config gate_of(const paging_choice& choice) {
  gate_config out;
  const auto& policies = choice.policies;
  if (policies.predictor != lab::policy_set{}.predictor)
    out.predictor = lab::make_predictor(policies.predictor, lab::predictor_names(true, false));
  if (lab::bends_routing(policies.routing)) out.routing = lab::make_routing(policies.routing);
  out.pre_eviction = lab::make_pre_eviction(policies.pre_eviction);
  if (!lab::prefetches(policies.prefetch)) return out;
  if (lab::requested_prefetch_profile(policies.prefetch))
    throw lab::usage_error(fmt::format(
        "{}: a profile cannot be chosen here, accepted: running counts", policies.prefetch));
  out.prefetch = lab::make_prefetch(policies.prefetch);
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
  config.gate = gate_of(choice);
  config.guard = lab::parse_guard(choice.policies.guard);
  config.cache.queue.order = lab::parse_fill_order(choice.policies.prefetch_order);
  if (!lab::fetches_everything(choice.policies.miss))
    config.miss = lab::make_miss(choice.policies.miss);
  config.link = link_of(choice);
  config.transient = choice.transient;
  out.experts =
      make_paged_experts(weights, config, choice.policies.eviction, choice.policies.admission,
                         profile_of(choice.policies.eviction, profile));
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
    out.notes.push_back(fmt::format(
        "{}: changes what the model computes",
        lab::is_exact_miss(choice.policies.miss) ? choice.policies.routing : choice.policies.miss));
  return out;
}

}  // namespace tiny_moe
