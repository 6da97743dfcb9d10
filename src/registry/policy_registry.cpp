// SPDX-License-Identifier: Apache-2.0
#include "hotset/registry/policy_registry.hpp"

namespace hotset {

template class pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

namespace {

/// Names of the decorators, for the error about an unknown policy.
std::string decorated_by(const policy_registry& from) {
  return "; decorated by: " + listed(from.decorators.names());
}

/// A chain, and the row of its innermost policy.
struct named_chain {
  std::vector<policy_spec> specs;
  const eviction_row* row = nullptr;
};
result<named_chain> find_chain(const policy_registry& from, std::string_view text) {
  auto specs = parse_policy_chain(text);
  if (!specs) return specs.error();
  const auto row = from.eviction.named(specs->back().name, decorated_by(from));
  if (!row) return row.error();
  return named_chain{*std::move(specs), *row};
}

}  // namespace

result<const eviction_row*> policy_registry::eviction_of(std::string_view chain) const {
  const auto found = find_chain(*this, chain);
  if (!found) return found.error();
  return found->row;
}

result<std::optional<profile_request>> policy_registry::profile_of(std::string_view chain) const {
  const auto found = find_chain(*this, chain);
  if (!found) return found.error();
  if (!found->row->profile) return std::optional<profile_request>{};
  parameters read(found->specs.back());
  return found->row->profile(read);
}

result<any_eviction_policy::config> policy_registry::make_eviction(
    std::string_view chain, const policy_knowledge& known) const {
  const auto found = find_chain(*this, chain);
  if (!found) return found.error();
  const auto& [specs, row] = *found;
  if (auto bad = check_profile(*row, specs.back(), known)) return *std::move(bad);
  if (!row->make)
    return error{row->name +
                 " has no slots to prefetch into or to time, accepted: any other policy"};
  parameters read(specs.back());
  auto config = row->make(read, known);
  if (auto bad = read.finish()) return *std::move(bad);
  for (auto at = specs.size() - 1; at-- > 0;) {
    const auto& spec = specs[at];
    const auto decorator = decorators.named(spec.name);
    if (!decorator) return decorator.error();
    parameters of_decorator(spec);
    config = (*decorator)->make(of_decorator, config);
    if (auto bad = of_decorator.finish()) return *std::move(bad);
  }
  if (auto bad = config.validate()) return *std::move(bad);
  return config;
}

result<any_predictor::config> policy_registry::make_predictor(std::string_view text) const {
  const auto plus = text.find('+');
  const auto outer = parse_policy(text.substr(0, plus));
  if (!outer) return outer.error();
  const auto row = predictors.named(outer->name);
  if (!row) return row.error();
  if (!(*row)->mix) return predictors.make(text);
  if (plus == std::string_view::npos)
    return error{(*row)->name + " has no parts, accepted: " + (*row)->name +
                 "+co-activation+last-routed or the like"};
  std::vector<any_predictor::config> parts;
  for (const auto part : detail::split_at(text.substr(plus + 1), '+')) {
    auto made = make_predictor(part);
    if (!made) return made.error();
    parts.push_back(*std::move(made));
  }
  parameters read(*outer);
  auto config = (*row)->mix(read, parts);
  if (auto bad = read.finish()) return *std::move(bad);
  if (auto bad = config.validate()) return *std::move(bad);
  return config;
}

validation policy_registry::check_precisions(std::string_view chain, std::size_t precisions) const {
  const auto row = eviction_of(chain);
  if (!row) return row.error();
  const auto& traits = (*row)->traits;
  const auto there = std::to_string(precisions);
  if (precisions < traits.fewest_precisions)
    return refusal("eviction policy ", (*row)->name, " needs ", traits.fewest_precisions,
                   " or more precisions, and there is ", there,
                   "; accepted: --precision 8:4 or the like");
  if (precisions > traits.most_precisions)
    return refusal("eviction policy ", (*row)->name, " supports at most ", traits.most_precisions,
                   " precision, and there are ", there, ", accepted: one");
  return std::nullopt;
}

result<erased_pager> policy_registry::make_erased_pager(const pager_request& wanted,
                                                        const policy_knowledge& known) const {
  auto evicts =
      wanted.own_eviction ? result(*wanted.own_eviction) : make_eviction(wanted.eviction, known);
  if (!evicts) return evicts.error();
  auto admits = admission.make(wanted.admission, known);
  if (!admits) return admits.error();
  erased_pager::config setup{.layout = wanted.layout,
                             .eviction = *std::move(evicts),
                             .admission = *std::move(admits),
                             .split = wanted.split,
                             .guard = wanted.guard,
                             .removals = wanted.removals};
  if (wanted.miss) setup.miss = *wanted.miss;
  return erased_pager::create(std::move(setup));
}

}  // namespace hotset
