// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/dimensions.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace hotset::lab {

namespace {

constexpr std::array<std::string_view, 3> guards{"none", "named", "predicted"};
constexpr std::array<std::string_view, 3> fill_orders{"nearest", "likeliest", "greatest"};

/// The row that a text with parameters names.
template <class List>
auto row_of(const List& list, std::string_view text) {
  return asked(list.named(asked(parse_policy(text)).name));
}

}  // namespace

std::vector<std::string> prefetch_names() { return known_policies().prefetch.names(); }
std::vector<std::string> miss_names() { return known_policies().miss.names(); }
std::vector<std::string> routing_names() { return known_policies().routing.names(); }
std::vector<std::string> guard_names() { return {guards.begin(), guards.end()}; }

std::optional<profile_request> requested_prefetch_profile(std::string_view text) {
  const auto* row = row_of(known_policies().prefetch, text);
  if (!row->profile) return std::nullopt;
  const auto spec = asked(parse_policy(text));
  parameters read(spec);
  return row->profile(read);
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

prefetch_guard parse_guard(std::string_view name) {
  const auto found = std::ranges::find(guards, name);
  if (found == guards.end()) refuse_name("prefetch guard", name, guard_names());
  return static_cast<prefetch_guard>(found - guards.begin());
}

std::vector<std::string> fill_order_names() { return {fill_orders.begin(), fill_orders.end()}; }
fill_order parse_fill_order(std::string_view name) {
  const auto found = std::ranges::find(fill_orders, name);
  if (found == fill_orders.end()) refuse_name("prefetch order", name, fill_order_names());
  return static_cast<fill_order>(found - fill_orders.begin());
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

std::optional<active_evict::config> make_pre_eviction(std::string_view text) {
  if (text == "none") return std::nullopt;
  const auto asked_for = asked(parse_policy(text));
  if (asked_for.name != active_evict::name)
    refuse_name("pre-eviction", asked_for.name, {"none", std::string(active_evict::name)});
  parameters read(asked_for);
  const auto config = active_evict::config::read(read);
  if (const auto bad = read.finish()) throw usage_error(bad->message);
  if (const auto bad = config.validate()) throw usage_error(bad->message);
  return config;
}

bool prefetches(std::string_view prefetch) {
  return !row_of(known_policies().prefetch, prefetch)->traits.asks_nothing;
}
bool fetches_everything(std::string_view miss) {
  return row_of(known_policies().miss, miss)->traits.fetches_all;
}
bool bends_routing(std::string_view routing) {
  return !row_of(known_policies().routing, routing)->traits.is_exact;
}
bool wants_scores(std::string_view miss) {
  return row_of(known_policies().miss, miss)->traits.needs_logits;
}
bool is_exact_miss(std::string_view miss) {
  return row_of(known_policies().miss, miss)->traits.is_exact;
}
eviction_traits heard_by(std::string_view eviction) {
  return asked(known_policies().eviction_of(eviction))->traits;
}

chosen_policies read_policies(const policy_set& names) {
  check_policies(names.eviction, names.admission);
  chosen_policies out{.names = names};
  out.eviction = asked(known_policies().eviction_of(names.eviction));
  out.profile = requested_profile(names.eviction);
  out.prefetch = row_of(known_policies().prefetch, names.prefetch)->traits;
  out.prefetch_profile = requested_prefetch_profile(names.prefetch);
  // Without the counts of the profile, which are read when a trace is known.
  const usage_profile some{{1.0}, {}};
  auto prefetcher = make_prefetch(names.prefetch, out.prefetch_profile ? some : usage_profile{});
  if (!out.prefetch.asks_nothing) out.prefetcher = std::move(prefetcher);
  out.guard = parse_guard(names.guard);
  out.order = parse_fill_order(names.prefetch_order);
  out.miss = row_of(known_policies().miss, names.miss)->traits;
  auto misses = make_miss(names.miss);
  if (!out.miss.fetches_all) out.misses = std::move(misses);
  auto routing = make_routing(names.routing);
  const auto routes = row_of(known_policies().routing, names.routing)->traits;
  if (!routes.is_exact) out.routing = std::move(routing);
  out.predictor = make_predictor(names.predictor, predictor_names(false, true));
  out.pre_eviction = make_pre_eviction(names.pre_eviction);
  if (!out.pre_eviction && routes.needs_free_slots)
    throw usage_error(fmt::format(
        "routing policy {} does nothing without slots that were freed ahead, accepted: with "
        "--pre-eviction active_evict, or another routing policy",
        names.routing));
  return out;
}

}  // namespace hotset::lab
