// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any routing policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: as the held policy: `facts()`.
/// Cost: the held policy's and one virtual call per visit; a template instance has none.

#include <concepts>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/routing_policy.hpp"

namespace hotset {

namespace detail {

/// The calls of a held policy.
struct held_routing : held_policy {
  static constexpr std::string_view kind = "routing";
  virtual status route(const routing_view& view, const residency_view& residents,
                       std::span<expert_id> selected, std::span<float> weights) noexcept = 0;
  [[nodiscard]] virtual routing_traits facts() const noexcept = 0;
};

}  // namespace detail

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_routing_policy
    : public detail::any_policy<any_routing_policy, detail::held_routing, geometry> {
 public:
  // What holds of some held policy; the held one's own are facts().
  static constexpr std::string_view name = "any";
  static constexpr routing_traits traits{.needs_logits = true};

  template <class R>
    requires(!std::same_as<std::remove_cvref_t<R>, any_routing_policy> &&
             routing_policy<std::remove_cvref_t<R>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_routing_policy(R&& policy)
      : any_policy(std::make_unique<model<std::remove_cvref_t<R>>>(std::forward<R>(policy))) {}
  any_routing_policy(const geometry& shape, const config& options)
      : any_routing_policy(options.factory(shape)) {}

  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    return held().route(view, residents, selected, weights);
  }

  /// The held policy's traits.
  [[nodiscard]] routing_traits facts() const noexcept { return held().facts(); }

 private:
  template <class R>
  struct model final : detail::held_routing {
    explicit model(R given) : policy(std::move(given)) {}
    status route(const routing_view& view, const residency_view& residents,
                 std::span<expert_id> selected, std::span<float> weights) noexcept override {
      return policy.route(view, residents, selected, weights);
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return R::name; }
    [[nodiscard]] routing_traits facts() const noexcept override { return facts_of(policy); }
    R policy;
  };
};

static_assert(routing_policy<any_routing_policy>);

}  // namespace hotset
