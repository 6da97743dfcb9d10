// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies by name: the values of `--eviction`, `--admission`, `--prefetch`, `--miss`, `--routing` and
/// `--predictor`, and of an engine's own settings. Needs only the standard library.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_admission_policy.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/registry/parameters.hpp"
#include "hotset/registry/policy_list.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

/// A pager whose policies are chosen at run time; by default it admits and fetches every miss. A visit is one virtual
/// call of its eviction policy. Programs that link hotset::policies do not compile it again.
using erased_pager = pager<any_eviction_policy, any_admission_policy, any_miss_policy>;
extern template class pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

/// Parts of a pager, by name.
struct pager_request {
  std::string eviction = "lru";
  std::string admission = "always";
  pool_layout layout;
  visit_split split = visit_split::by_token;
  std::optional<any_miss_policy::config> miss{};  ///< none: fetch
  prefetch_guard guard = prefetch_guard::named;
  removal_listener removals{};
  std::optional<any_eviction_policy::config> own_eviction{};  ///< replaces `eviction`
};

/// An eviction policy by name, its traits, and how it is built. A row without `make` cannot serve a pager.
using eviction_row = policy_row<any_eviction_policy, eviction_traits>;
/// A decorator of eviction policies.
struct decorator_row {
  std::string name;
  std::function<any_eviction_policy::config(parameters&, const any_eviction_policy::config& inner)>
      make{};
};
/// An admission policy by name.
using admission_row = policy_row<any_admission_policy, admission_traits>;
/// A prefetch policy by name.
using prefetch_row = policy_row<any_prefetch_policy, prefetch_traits>;
/// A miss policy by name.
using miss_row = policy_row<any_miss_policy, miss_traits>;
/// A routing policy by name.
using routing_row = policy_row<any_routing_policy, routing_traits>;
/// A predictor by name; it may combine others.
struct predictor_row : policy_row<any_predictor, predictor_traits> {
  /// Makes a predictor that combines others. It cannot be made without parts. Empty for other predictors.
  std::function<any_predictor::config(parameters&, const std::vector<any_predictor::config>& parts)>
      mix{};
};

/// Makes the row of a predictor's class. Its config may have `parts`.
template <predictor P>
[[nodiscard]] predictor_row row_of_predictor() {
  predictor_row row{row_of<any_predictor, P>()};
  if constexpr (requires(typename P::config options) { options.parts; })
    row.mix = [](parameters& from, const std::vector<any_predictor::config>& parts) {
      auto options = read_config<P>(from, {});
      options.parts = parts;
      return any_predictor::holding<P>(std::move(options));
    };
  return row;
}

/// Threads: compatible. Add policies before any is looked up.
class policy_registry {
 public:
  policy_list<eviction_row> eviction{"eviction policy"};
  policy_list<decorator_row> decorators{"decorator", "eviction."};
  policy_list<admission_row> admission{"admission policy"};
  policy_list<prefetch_row> prefetch{"prefetch policy"};
  policy_list<miss_row> miss{"miss policy"};
  policy_list<routing_row> routing{"routing policy"};
  policy_list<predictor_row> predictors{"predictor"};

  /// Adds a policy of any kind under its name. Errors: those of policy_list::add.
  template <class P>
  [[nodiscard]] validation add() {
    if constexpr (eviction_policy<P>) return eviction.add(row_of<any_eviction_policy, P>());
    if constexpr (admission_policy<P>) return admission.add(row_of<any_admission_policy, P>());
    if constexpr (prefetch_policy<P>) return prefetch.add(row_of<any_prefetch_policy, P>());
    if constexpr (miss_policy<P>) return miss.add(row_of<any_miss_policy, P>());
    if constexpr (routing_policy<P>) return routing.add(row_of<any_routing_policy, P>());
    if constexpr (predictor<P>) return predictors.add(row_of_predictor<P>());
    static_assert(
        eviction_policy<P> || admission_policy<P> || prefetch_policy<P> || miss_policy<P> ||
            routing_policy<P> || predictor<P>,
        "neither an eviction, admission, prefetch, miss or routing policy nor a predictor; "
        "static_assert(hotset::is_eviction_policy<P>()) says what an eviction policy lacks");
  }
  /// Adds a decorator, such as protect_hot<any_eviction_policy>, under its name. Errors: those of policy_list::add.
  template <eviction_policy D>
  [[nodiscard]] validation add_decorator() {
    const auto make = [](parameters& from, const any_eviction_policy::config& inner) {
      auto options = D::config::read(from);
      options.inner = inner;
      return any_eviction_policy::holding<D>(std::move(options));
    };
    return decorators.add({std::string(D::name), make});
  }

  /// Returns the row of the decorated policy in a chain such as `protect_hot:uses=4+lru`. Errors: those of
  /// policy_list::named.
  [[nodiscard]] result<const eviction_row*> eviction_of(std::string_view chain) const;
  /// Returns the source of the profile of a chain's policy. Errors: those of eviction_of.
  [[nodiscard]] result<std::optional<profile_request>> profile_of(std::string_view chain) const;
  /// Makes a chain, for any layout. Errors: unknown names, wrong parameters, a row without `make`.
  [[nodiscard]] result<any_eviction_policy::config> make_eviction(
      std::string_view chain, const policy_knowledge& known = {}) const;

  /// Makes a predictor with its parameters, `co-activation:reach=5`, or a mix and its parts,
  /// `mixed+co-activation+last-routed`. Errors: those of policy_list::make; a mix without parts.
  [[nodiscard]] result<any_predictor::config> make_predictor(std::string_view text) const;

  /// Returns why a chain cannot work with this many precisions, or nothing. Errors: those of eviction_of.
  [[nodiscard]] validation check_precisions(std::string_view chain, std::size_t precisions) const;

  /// Makes a pager of the named policies. Its type does not depend on the names. Errors: those of its parts.
  [[nodiscard]] result<erased_pager> make_erased_pager(const pager_request& wanted,
                                                       const policy_knowledge& known = {}) const;
};

/// The library's policies, and those that a program adds before it looks any up.
[[nodiscard]] policy_registry& policies();

}  // namespace hotset
