// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/registry.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/always.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lhu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/sim/belady_bypass.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/expert_engine.hpp"
#include "hotset/sim/suggest.hpp"

namespace hotset::inline v0::sim {

namespace {

constexpr std::string_view bypass_name = "belady_bypass";

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::string_view without_prefix(std::string_view name, std::string_view folder) {
  return name.starts_with(folder) ? name.substr(folder.size()) : name;
}

template <class Config>
Config checked(Config config) {
  if (const auto bad = config.validate()) throw usage_error(bad->message);
  return config;
}

template <class Config>
void require_shape(const Config& config, const geometry& shape) {
  if (const auto bad = config.validate(shape)) throw usage_error(bad->message);
}

template <class P>
struct policy_tag {
  using type = P;
};

/// Calls use(policy_tag<P>{}, config) for the policy that the spec names.
template <class Use>
auto with_eviction(const policy_spec& spec, const policy_knowledge& knowledge, Use use) {
  const auto name = without_prefix(spec.name, "eviction.");
  parameter_reader read(spec);
  const auto finish = [&]<class P>(policy_tag<P> tag, typename P::config config) {
    read.finish();
    return use(tag, checked(std::move(config)));
  };
  if (name == lru::name) return finish(policy_tag<lru>{}, {});
  if (name == fifo::name) return finish(policy_tag<fifo>{}, {});
  if (name == furthest_layer::name) return finish(policy_tag<furthest_layer>{}, {});
  if (name == lfu::name)
    return finish(policy_tag<lfu>{},
                  {static_cast<lfu_history>(read.choice("history", {"whole", "resident"}, 0)),
                   read.number("ageing_period", 0)});
  if (name == lfru::name)
    return finish(policy_tag<lfru>{}, {read.real("decay", lfru::config{}.decay)});
  if (name == gate_score::name)
    return finish(policy_tag<gate_score>{},
                  {static_cast<gate_accumulate>(read.choice("accumulate", {"sum", "ema"}, 0)),
                   read.real("decay", gate_score::config{}.decay)});
  if (name == least_stale::name)
    return finish(
        policy_tag<least_stale>{},
        {static_cast<stale_order>(read.choice("order", {"left", "layer", "last_access"}, 0))});
  if (name == lhu::name) return finish(policy_tag<lhu>{}, {});
  if (name == popularity::name) {
    (void)read.text("profile", "trace");
    (void)read.number("first", 0);
    return finish(policy_tag<popularity>{}, knowledge.profile);
  }
  if (name == belady::name) return finish(policy_tag<belady>{}, {knowledge.future});
  refuse_name("unknown eviction policy", spec.name, eviction_names(),
              "; decorated by: " + join(eviction_decorator_names()));
}

template <class Use>
auto with_admission(std::string_view text, Use use) {
  const auto spec = parse_policy(text);
  const auto name = without_prefix(spec.name, "admission.");
  parameter_reader read(spec);
  const auto finish = [&]<class A>(policy_tag<A> tag, typename A::config config) {
    read.finish();
    return use(tag, checked(std::move(config)));
  };
  if (name == always::name) return finish(policy_tag<always>{}, {});
  if (name == after_n_uses::name) {
    after_n_uses::config config;
    config.uses = read.number("uses", config.uses);
    config.after_eviction =
        read.number("after_eviction", std::max(config.after_eviction, config.uses));
    config.window = read.number("window", config.window);
    return finish(policy_tag<after_n_uses>{}, config);
  }
  if (name == budgeted::name)
    return finish(policy_tag<budgeted>{},
                  {read.number("fills_per_visit", budgeted::config{}.fills_per_visit)});
  refuse_name("unknown admission policy", spec.name, admission_names());
}

any_eviction_policy::config decorate(const policy_spec& spec, any_eviction_policy::config inner) {
  const auto name = without_prefix(spec.name, "eviction.");
  parameter_reader read(spec);
  if (name == "protect_hot") {
    protect_hot<any_eviction_policy>::config config;
    config.uses = read.number("uses", config.uses);
    config.inner = std::move(inner);
    read.finish();
    return any_eviction_policy::holding<protect_hot<any_eviction_policy>>(
        checked(std::move(config)));
  }
  if (name == "protect_decode") {
    protect_decode<any_eviction_policy>::config config;
    config.window = read.number("window", config.window);
    config.inner = std::move(inner);
    read.finish();
    return any_eviction_policy::holding<protect_decode<any_eviction_policy>>(
        checked(std::move(config)));
  }
  refuse_name("unknown decorator", spec.name, eviction_decorator_names());
}

template <class P, class A, class M = fetch>
pager<P, A, M> build(typename P::config eviction, typename A::config admission,
                     const pager_request& request, typename M::config miss = {}) {
  auto made = pager<P, A, M>::create({.layout = request.layout,
                                      .eviction = std::move(eviction),
                                      .admission = std::move(admission),
                                      .miss = std::move(miss),
                                      .split = request.split,
                                      .guard = request.guard});
  if (!made) throw usage_error(made.reason().message);
  return *std::move(made);
}

/// Calls use(pager) for a pager whose eviction policy is erased.
template <class Use>
auto with_erased_pager(const pager_request& request, const policy_knowledge& knowledge, Use use) {
  using erased = any_eviction_policy;
  return with_admission(
      request.admission, [&]<class A>(policy_tag<A>, typename A::config admission) {
        auto eviction = make_eviction(request.eviction, knowledge);
        if (request.miss)
          return use(build<erased, A, any_miss_policy>(std::move(eviction), std::move(admission),
                                                       request, *request.miss));
        return use(build<erased, A>(std::move(eviction), std::move(admission), request));
      });
}

/// A future or a profile of another shape would be cut to size in silence.
void check_knowledge(const pager_request& request, const policy_knowledge& knowledge) {
  const auto& shape = request.layout.shape();
  if (knowledge.future && needs_future(request.eviction))
    require_shape(belady::config{knowledge.future}, shape);
  if (requested_profile(request.eviction)) require_shape(knowledge.profile, shape);
  check_precisions(request.eviction, request.layout, request.miss.has_value());
}

}  // namespace

std::vector<std::string> eviction_names() {
  return {"lru",        "lfu",         "lfru",       "lhu",    "fifo",         "furthest_layer",
          "gate_score", "least_stale", "popularity", "belady", "belady_bypass"};
}
std::vector<std::string> eviction_decorator_names() { return {"protect_hot", "protect_decode"}; }
std::vector<std::string> admission_names() { return {"always", "after_n_uses", "budgeted"}; }

bool needs_future(std::string_view eviction) {
  const auto name =
      std::string(without_prefix(parse_policy_chain(eviction).back().name, "eviction."));
  return name == belady::name || name == bypass_name;
}

std::optional<profile_request> requested_profile(std::string_view eviction) {
  const auto spec = parse_policy_chain(eviction).back();
  if (without_prefix(spec.name, "eviction.") != popularity::name) return std::nullopt;
  parameter_reader read(spec);
  return profile_request{read.text("profile", "trace"), read.number("first", 0)};
}

any_eviction_policy::config make_eviction(std::string_view eviction,
                                          const policy_knowledge& knowledge) {
  const auto chain = parse_policy_chain(eviction);
  auto config =
      with_eviction(chain.back(), knowledge, []<class P>(policy_tag<P>, typename P::config inner) {
        return any_eviction_policy::holding<P>(std::move(inner));
      });
  for (auto at = chain.size() - 1; at-- > 0;) config = decorate(chain[at], std::move(config));
  return config;
}

void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss) {
  const auto name =
      std::string(without_prefix(parse_policy_chain(eviction).back().name, "eviction."));
  if (name == lhu::name && layout.precisions() < 2)
    throw usage_error(
        "eviction policy lhu counts uses at the highest of several precisions, and there is one; "
        "accepted: --precision 8:4 or the like, or lfu");
  if (layout.precisions() > 1 && !miss)
    throw usage_error(
        fmt::format("miss policy fetch knows one precision, and there are {}; accepted: one, or "
                    "fetch_lowest, fetch_priority, drop, drop_cascade, substitute, compute_on_host",
                    layout.precisions()));
  if ((name == belady::name || name == bypass_name) && layout.precisions() > 1)
    throw usage_error(
        fmt::format("eviction policy {} is the optimum for one precision, accepted: one", name));
}

namespace {
/// For a policy that one precision would refuse.
void check_apart(std::string_view eviction, std::string_view admission,
                 const policy_knowledge& knowledge) {
  (void)make_eviction(eviction, knowledge);
  (void)with_admission(
      admission, []<class A>(policy_tag<A>, typename A::config) { return A::traits.admits_all; });
}
}  // namespace

void check_policies(std::string_view eviction, std::string_view admission) {
  const geometry smallest{.layers = 1, .experts = 1, .top_k = 1};
  policy_knowledge knowledge;
  knowledge.future = std::make_shared<const future_uses>(future_uses::create(smallest, {}).value());
  if (without_prefix(parse_policy_chain(eviction).back().name, "eviction.") == lhu::name)
    return check_apart(eviction, admission, knowledge);
  (void)make_pager(
      {std::string(eviction), std::string(admission), pool_layout::shared(smallest, 1).value()},
      knowledge);
}

std::unique_ptr<any_pager> make_pager(const pager_request& request,
                                      const policy_knowledge& knowledge) {
  const auto chain = parse_policy_chain(request.eviction);
  const auto& last = chain.back();
  const bool decorated = chain.size() > 1;
  check_knowledge(request, knowledge);
  if (without_prefix(last.name, "eviction.") == bypass_name) {
    parameter_reader(last).finish();
    if (decorated) throw usage_error("belady_bypass takes no decorator");
    if (!with_admission(request.admission, []<class A>(policy_tag<A>, typename A::config) {
          return A::traits.admits_all;
        }))
      throw usage_error("belady_bypass decides admission itself, accepted: --admission always");
    return std::make_unique<belady_bypass>(request.layout, knowledge.future);
  }
  const auto held = []<class Pager>(Pager made) -> std::unique_ptr<any_pager> {
    return std::make_unique<pager_model<Pager>>(std::move(made));
  };
  const bool all = with_admission(
      request.admission,
      []<class A>(policy_tag<A>, typename A::config) { return A::traits.admits_all; });
  if (decorated || request.miss || !all) return with_erased_pager(request, knowledge, held);
  return with_eviction(last, knowledge, [&]<class P>(policy_tag<P>, typename P::config eviction) {
    return held(build<P, always>(std::move(eviction), {}, request));
  });
}

namespace {
void check_engine(const pager_request& request, const policy_knowledge& knowledge) {
  if (without_prefix(parse_policy_chain(request.eviction).back().name, "eviction.") == bypass_name)
    throw usage_error(
        "belady_bypass has no slots to prefetch into or to time, accepted: any other policy");
  check_knowledge(request, knowledge);
}
}  // namespace

std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                              const policy_knowledge& knowledge,
                                              const link_model& link, const visit_costs& costs) {
  check_engine(request, knowledge);
  return with_erased_pager(
      request, knowledge, [&]<class Pager>(Pager made) -> std::unique_ptr<simulated_engine> {
        return std::make_unique<engine_model<Pager>>(std::move(made), link, costs);
      });
}

std::unique_ptr<simulated_engine> make_expert_engine(const pager_request& request,
                                                     const policy_knowledge& knowledge,
                                                     const geometry& shape, const link_model& link,
                                                     const visit_costs& costs) {
  check_engine(request, knowledge);
  if (request.miss)
    throw usage_error("expert-by-expert replay fetches every miss, accepted: --miss fetch");
  return with_erased_pager(
      request, knowledge, [&]<class Pager>(Pager made) -> std::unique_ptr<simulated_engine> {
        return std::make_unique<expert_engine<Pager>>(shape, std::move(made), link, costs);
      });
}

}  // namespace hotset::inline v0::sim
