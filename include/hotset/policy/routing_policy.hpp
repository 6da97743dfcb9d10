// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that may bend which experts a router selects, knowing what is resident; and any one of them.
///
/// | expression | meaning |
/// |---|---|
/// | `typename R::config` | aggregate of parameters with `validate()` |
/// | `R(shape, config)` | built for a model's geometry; all memory is taken here |
/// | `R::name` | the field's name of it, as in `--routing` |
/// | `R::traits` | a `routing_traits` |
/// | `route(view, residents, selected, weights)` | `view` holds the router's own selection. Writes [tokens * top_k] ids, -1 after a shortened selection, and their gate weights; both may be the arrays that `view` names. |
///
/// `route` is called once per visit, before the cache is asked, and answers invalid_visit if the view lacks what it needs:
/// then nothing is written. Every call is `noexcept`, allocates nothing, and reads no clock.

#include <algorithm>
#include <concepts>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// What is true of a routing policy's class.
struct routing_traits {
  bool is_exact = false;      ///< it never changes the selection
  bool needs_logits = false;  ///< it cannot work without the router's logits
  bool needs_free_slots = false;  ///< it does nothing where nobody frees slots ahead of visits
};

template <class R>
concept routing_policy =
    policy_for<R, geometry, routing_traits> &&
    requires(R policy, const routing_view& view, const residency_view& residents,
             std::span<expert_id> selected, std::span<float> weights) {
      { policy.route(view, residents, selected, weights) } noexcept -> std::same_as<status>;
    };

// clang-format on
/// Hands on the router's selection and its weights, unless the arrays are the router's own. `weights` may be empty: not
/// wanted. Pre: the arrays are as long as the view's.
inline void hand_on(const routing_view& view, std::span<expert_id> selected,
                    std::span<float> weights) noexcept {
  if (view.experts.data() != selected.data()) view.experts.copy_to(selected.data());
  if (!weights.empty() && weights.data() != view.weights.data())
    std::ranges::copy(view.weights, weights.begin());
}

namespace detail {

/// The calls of a held policy.
struct held_routing : held_policy<routing_traits> {
  static constexpr std::string_view kind = "routing";
  template <class R>
  static constexpr bool accepts = routing_policy<R>;
  template <class R>
  struct model;

  using held_policy::held_policy;
  virtual status route(const routing_view& view, const residency_view& residents,
                       std::span<expert_id> selected, std::span<float> weights) noexcept = 0;
};

template <class R>
struct held_routing::model final : held_routing {
  explicit model(R given) : held_routing(R::name, facts_of(given)), policy(std::move(given)) {}
  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept override {
    return policy.route(view, residents, selected, weights);
  }
  R policy;
};

}  // namespace detail

/// Holds any routing policy chosen or written at run time, and is one itself, as any_eviction_policy is of eviction.
/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
/// Exact: as the held policy: `facts()`. Cost: the held policy's and one virtual call per visit.
class any_routing_policy
    : public detail::any_policy<any_routing_policy, detail::held_routing, geometry> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// The most that a held policy may need.
  static constexpr routing_traits traits{.needs_logits = true};

  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    return held().route(view, residents, selected, weights);
  }
};

static_assert(routing_policy<any_routing_policy>);

}  // namespace hotset
