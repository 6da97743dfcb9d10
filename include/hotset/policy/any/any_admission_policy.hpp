// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any admission policy chosen or written at run time, and models the concept itself.
///
/// Rule: the held policy's.
/// Source: see any_eviction_policy.
/// Deviations: none.
/// Exact: depends on the held policy.
/// Cost: the held policy's cost and one virtual call each; a template instance has none. A policy that admits
/// everything is not called.

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/any/any_policy.hpp"

namespace hotset {

namespace detail {

/// Virtual interface of a held policy.
struct held_admission : held_policy<admission_traits> {
  static constexpr std::string_view kind = "admission";
  template <class P>
  static constexpr bool accepts = admission_policy<P>;
  template <class P>
  struct model;

  using held_policy::held_policy;
  virtual void admit(const visit_context& context, std::span<const expert_use> misses,
                     std::span<std::uint8_t> admitted) const noexcept = 0;
  virtual void on_use(const expert_use& a, bool hit, bool admitted) noexcept = 0;
  virtual void on_evict(expert_key key, step_id step) noexcept = 0;
  virtual void on_routed(const routing_view& view) noexcept = 0;
};

template <class P>
struct held_admission::model final : held_admission {
  explicit model(P given) : held_admission(P::name, facts_of(given)), policy(std::move(given)) {}
  void admit(const visit_context& context, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept override {
    policy.admit(context, misses, admitted);
  }
  void on_use(const expert_use& a, bool hit, bool admitted) noexcept override {
    policy.on_use(a, hit, admitted);
  }
  void on_evict(expert_key key, step_id step) noexcept override { policy.on_evict(key, step); }
  void on_routed(const routing_view& view) noexcept override {
    notify_admission_routed(policy, view);
  }
  P policy;
};

}  // namespace detail

/// Move-only. Pre, for every call except destruction and assignment: it holds a policy.
class any_admission_policy
    : public detail::any_policy<any_admission_policy, detail::held_admission, pool_layout> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// Every hook that a held policy may have.
  static constexpr admission_traits traits{.wants_routes = true};

  void admit(const visit_context& context, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    held().admit(context, misses, admitted);
  }
  void on_use(const expert_use& a, bool hit, bool admitted) noexcept {
    held().on_use(a, hit, admitted);
  }
  void on_evict(expert_key key, step_id step) noexcept { held().on_evict(key, step); }
  void on_routed(const routing_view& view) noexcept { held().on_routed(view); }
};

static_assert(admission_policy<any_admission_policy>);

}  // namespace hotset
