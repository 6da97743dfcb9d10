// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that may change the router's selection to use residents; and a holder for any such policy.
///
/// | expression | meaning |
/// |---|---|
/// | `typename R::config` | aggregate of parameters with `validate()` |
/// | `R(shape, config)` | built for a model's geometry; allocates all memory |
/// | `R::name` | the policy's name in the field, used by `--routing` |
/// | `R::traits` | a `routing_traits` |
/// | `route(view, residents, selected, weights)` | writes the selection and its gate weights. See below |
///
/// `route` is called once per visit, before the cache. `view` holds the router's own selection.
/// It writes [tokens * top_k] ids, -1 after a shortened selection, and their gate weights.
/// Both arrays may be those of `view`.
/// It returns invalid_visit and writes nothing if the view lacks a required array.
/// Every call is `noexcept`, allocates nothing, and reads no clock.

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

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of a routing policy's class.
struct routing_traits {
  bool is_exact = false;  ///< never changes the selection
  bool needs_logits = false;  ///< requires the router's logits
  bool needs_free_slots = false;  ///< does nothing if no slots are freed ahead of visits
};

template <class R>
concept routing_policy =
    policy_for<R, geometry, routing_traits> &&
    requires(R policy, const routing_view& view, const residency_view& residents,
             std::span<expert_id> selected, std::span<float> weights) {
      { policy.route(view, residents, selected, weights) } noexcept -> std::same_as<status>;
    };

// clang-format on
/// Copies the router's selection and weights to the output arrays, unless they are the same arrays. `weights` may be
/// empty: weights are then not written. Pre: the arrays are as long as the view's.
inline void hand_on(const routing_view& view, std::span<expert_id> selected,
                    std::span<float> weights) noexcept {
  if (view.experts.data() != selected.data()) view.experts.copy_to(selected.data());
  if (!weights.empty() && weights.data() != view.weights.data())
    std::ranges::copy(view.weights, weights.begin());
}

namespace detail {

/// Virtual interface of a held policy.
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

/// Holds any routing policy chosen or written at run time, and models the concept itself.
/// Move-only. Pre, for every call except destruction and assignment: it holds a policy.
/// Exact: depends on the held policy, see `facts()`. Cost: the held policy's cost and one virtual call per visit.
class any_routing_policy
    : public detail::any_policy<any_routing_policy, detail::held_routing, geometry> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// Every need that a held policy may have.
  static constexpr routing_traits traits{.needs_logits = true, .needs_free_slots = true};

  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    return held().route(view, residents, selected, weights);
  }
};

static_assert(routing_policy<any_routing_policy>);

}  // namespace hotset
