// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/registry.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "hotset/registry/pre_eviction.hpp"

namespace hotset::lab {

namespace {

std::optional<profile_request> requested_prefetch_profile(std::string_view text) {
  const auto spec = asked(parse_policy(text));
  const auto* row = asked(known_policies().prefetch.named(spec.name));
  if (!row->profile) return std::nullopt;
  parameters read(spec);
  return row->profile(read);
}

/// Refuses options that a bound, which has no pager, cannot use.
void check_bound(const chosen_policies& chosen) {
  const auto refuse = [&](bool wrong, const char* why) {
    if (wrong) throw usage_error(fmt::format("{} {}", chosen.eviction->name, why));
  };
  const auto chain = asked(parse_policy_chain(chosen.names.eviction));
  refuse(chain.size() > 1, "takes no decorator, accepted: it alone");
  parameters none(chain.back());
  if (const auto bad = none.finish()) throw usage_error(bad->message);
  const auto admits = asked(known_policies().admission.make(chosen.names.admission));
  refuse(!admits.traits.admits_all, "decides admission itself, accepted: --admission always");
  refuse(!chosen.miss.fetches_all, "serves misses itself, accepted: --miss fetch");
}

/// Refuses an eviction policy that works on no trace.
void check_eviction(const chosen_policies& chosen) {
  const geometry smallest{.layers = 1, .experts = 1, .top_k = 1};
  policy_knowledge any;
  any.future = std::make_shared<const future_uses>(future_uses::create(smallest, {}).value());
  any.profile.counts = {1.0};
  (void)asked(known_policies().make_eviction(chosen.names.eviction, any));
}

}  // namespace

const policy_registry& known_policies() {
  static const bool added = [] {
    eviction_row bound;
    bound.name = "belady_bypass";
    bound.traits = {.needs_future = true, .most_precisions = 1};
    require_valid(policies().eviction.add(bound));
    return true;
  }();
  (void)added;
  return policies();
}

void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss) {
  const auto precisions = layout.precisions();
  if (const auto bad = known_policies().check_precisions(eviction, precisions))
    throw usage_error(bad->message);
  if (precisions > 1 && !miss)
    throw usage_error(
        fmt::format("miss policy fetch knows one precision, and there are {}; accepted: one, or "
                    "fetch_lowest, fetch_priority, drop, drop_cascade, substitute, compute_on_host",
                    precisions));
}

erased_pager make_pager(const pager_request& request, const policy_knowledge& knowledge) {
  check_precisions(request.eviction, request.layout, request.miss.has_value());
  return asked(known_policies().make_erased_pager(request, knowledge));
}

any_prefetch_policy::config make_prefetch(std::string_view text, const usage_profile& profile) {
  return asked(known_policies().prefetch.make(text, {.profile = profile}));
}
any_miss_policy::config make_miss(std::string_view text) {
  return asked(known_policies().miss.make(text));
}
any_routing_policy::config make_routing(std::string_view text) {
  return asked(known_policies().routing.make(text));
}

std::vector<std::string> predictor_names(bool has_routers, bool has_recorded) {
  std::vector<std::string> out;
  for (const auto& row : known_policies().predictors.rows())
    if ((has_routers || !row.traits.needs_routers) && (has_recorded || !row.traits.needs_recorded))
      out.push_back(row.name);
  return out;
}
any_predictor::config make_predictor(std::string_view text,
                                     const std::vector<std::string>& accepted) {
  for (const auto& part : asked(parse_policy_chain(text)))
    if (std::ranges::find(accepted, part.name) == accepted.end())
      refuse_name("predictor", part.name, accepted);
  return asked(known_policies().make_predictor(text));
}

chosen_policies read_policies(const policy_set& names, const std::vector<std::string>& predictors) {
  const auto& known = known_policies();
  chosen_policies out{.names = names};
  out.eviction = asked(known.eviction_of(names.eviction));
  out.profile = asked(known.profile_of(names.eviction));
  (void)asked(known.admission.make(names.admission));
  out.prefetch_profile = requested_prefetch_profile(names.prefetch);
  // Checked without the profile's counts, which are read once the trace is known.
  const usage_profile some{{1.0}, {}};
  auto prefetcher = make_prefetch(names.prefetch, out.prefetch_profile ? some : usage_profile{});
  out.prefetch = prefetcher.traits;
  if (!out.prefetch.asks_nothing) out.prefetcher = std::move(prefetcher);
  out.guard =
      choice_of<prefetch_guard>("prefetch guard", names.guard, {"none", "named", "predicted"});
  out.order = choice_of<fill_order>("prefetch order", names.prefetch_order,
                                    {"nearest", "likeliest", "greatest"});
  auto misses = make_miss(names.miss);
  out.miss = misses.traits;
  if (!out.miss.fetches_all) out.misses = std::move(misses);
  auto routing = make_routing(names.routing);
  const auto routes = routing.traits;
  if (!routes.is_exact) out.routing = std::move(routing);
  out.predictor = make_predictor(names.predictor, predictors);
  out.pre_eviction = asked(make_pre_eviction(names.pre_eviction));
  if (const auto bad =
          check_routing(names.routing, routes, out.pre_eviction.has_value(), "--pre-eviction"))
    throw usage_error(bad->message);
  if (out.stands_alone())
    check_bound(out);
  else
    check_eviction(out);
  return out;
}

}  // namespace hotset::lab
