// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/registry.hpp"

#include <fmt/format.h>

#include "lab/replay/belady_bypass.hpp"
#include "lab/replay/expert_engine.hpp"

namespace hotset::lab {

namespace {

/// No policy of a pager's: it owns no slots that could be filled.
eviction_row bypassing_row() {
  eviction_row row;
  row.name = "belady_bypass";
  row.traits = {.needs_future = true, .most_precisions = 1};
  row.make_pager = [](parameters& from, const policy_knowledge& known,
                      const pager_request& wanted) -> result<std::unique_ptr<any_pager>> {
    if (auto bad = from.finish()) return *std::move(bad);
    return std::unique_ptr<any_pager>(std::make_unique<belady_bypass>(
        wanted.layout, belady::config{known.future, known.numbered}));
  };
  return row;
}

template <class Engine>
std::unique_ptr<simulated_engine> engine_of(const pager_request& request,
                                            const policy_knowledge& knowledge, Engine make) {
  check_precisions(request.eviction, request.layout, request.miss.has_value());
  return make(asked(known_policies().make_erased_pager(request, knowledge)));
}

}  // namespace

const policy_registry& known_policies() {
  static const bool added = [] {
    require_valid(policies().eviction.add(bypassing_row()));
    return true;
  }();
  (void)added;
  return policies();
}

std::vector<std::string> eviction_names() { return known_policies().eviction.names(); }
std::vector<std::string> eviction_decorator_names() { return known_policies().decorators.names(); }
std::vector<std::string> admission_names() { return known_policies().admission.names(); }

bool needs_future(std::string_view eviction) {
  return asked(known_policies().eviction_of(eviction))->traits.needs_future;
}
std::optional<profile_request> requested_profile(std::string_view eviction) {
  return asked(known_policies().profile_of(eviction));
}
any_eviction_policy::config make_eviction(std::string_view eviction,
                                          const policy_knowledge& knowledge) {
  return asked(known_policies().make_eviction(eviction, knowledge));
}

void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss) {
  if (const auto bad = known_policies().check_precisions(eviction, layout.precisions()))
    throw usage_error(bad->message);
  if (layout.precisions() > 1 && !miss)
    throw usage_error(
        fmt::format("miss policy fetch knows one precision, and there are {}; accepted: one, or "
                    "fetch_lowest, fetch_priority, drop, drop_cascade, substitute, compute_on_host",
                    layout.precisions()));
}

void check_policies(std::string_view eviction, std::string_view admission) {
  const geometry smallest{.layers = 1, .experts = 1, .top_k = 1};
  policy_knowledge knowledge;
  knowledge.future = std::make_shared<const future_uses>(future_uses::create(smallest, {}).value());
  knowledge.profile.counts = {1.0};
  const auto& known = known_policies();
  if (!asked(known.eviction_of(eviction))->make)
    return static_cast<void>(make_pager(
        {std::string(eviction), std::string(admission), pool_layout::shared(smallest, 1).value()},
        knowledge));
  if (const auto bad = make_eviction(eviction, knowledge).validate())
    throw usage_error(bad->message);
  if (const auto bad = asked(known.admission.make(admission, knowledge)).validate())
    throw usage_error(bad->message);
}

std::unique_ptr<any_pager> make_pager(const pager_request& request,
                                      const policy_knowledge& knowledge) {
  check_precisions(request.eviction, request.layout, request.miss.has_value());
  return asked(known_policies().make_pager(request, knowledge));
}

std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                              const policy_knowledge& knowledge,
                                              const engine_clock& clock, const visit_costs& costs,
                                              const slot_cache_config& setup) {
  return engine_of(
      request, knowledge, [&]<class Pager>(Pager made) -> std::unique_ptr<simulated_engine> {
        return std::make_unique<engine_model<Pager>>(std::move(made), clock, costs, setup);
      });
}

std::unique_ptr<simulated_engine> make_expert_engine(const pager_request& request,
                                                     const policy_knowledge& knowledge,
                                                     const geometry& shape,
                                                     const engine_clock& clock,
                                                     const visit_costs& costs) {
  if (request.miss)
    throw usage_error("expert-by-expert replay fetches every miss, accepted: --miss fetch");
  return engine_of(
      request, knowledge, [&]<class Pager>(Pager made) -> std::unique_ptr<simulated_engine> {
        return std::make_unique<expert_engine<Pager>>(shape, std::move(made), clock, costs);
      });
}

}  // namespace hotset::lab
