// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any admission policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: as any_eviction_policy.
/// Deviations: none.
/// Exact: as the held policy.
/// Cost: the held policy's and one virtual call each; a template instance has none.

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/any/any_policy.hpp"

namespace hotset {

namespace detail {

/// The calls of a held policy.
struct held_admission : held_policy {
  static constexpr std::string_view kind = "admission";
  virtual void admit(const visit_context& context, std::span<const expert_use> misses,
                     std::span<std::uint8_t> admitted) const noexcept = 0;
  virtual void on_use(const expert_use& a, bool hit, bool admitted) noexcept = 0;
  virtual void on_evict(expert_key key, step_id step) noexcept = 0;
  virtual void on_routed(const routing_view& view) noexcept = 0;
};

}  // namespace detail

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_admission_policy
    : public detail::any_policy<any_admission_policy, detail::held_admission, pool_layout> {
 public:
  static constexpr std::string_view name = "any";
  static constexpr admission_traits traits{.hears_routes = true};

  template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, any_admission_policy> &&
             admission_policy<std::remove_cvref_t<P>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_admission_policy(P&& policy)
      : any_policy(std::make_unique<model<std::remove_cvref_t<P>>>(std::forward<P>(policy))) {}
  any_admission_policy(const pool_layout& layout, const config& options)
      : any_admission_policy(options.factory(layout)) {}

  void admit(const visit_context& context, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    held().admit(context, misses, admitted);
  }
  void on_use(const expert_use& a, bool hit, bool admitted) noexcept {
    held().on_use(a, hit, admitted);
  }
  void on_evict(expert_key key, step_id step) noexcept { held().on_evict(key, step); }
  void on_routed(const routing_view& view) noexcept { held().on_routed(view); }

 private:
  template <class P>
  struct model final : detail::held_admission {
    explicit model(P given) : policy(std::move(given)) {}
    void admit(const visit_context& context, std::span<const expert_use> misses,
               std::span<std::uint8_t> admitted) const noexcept override {
      policy.admit(context, misses, admitted);
    }
    void on_use(const expert_use& a, bool hit, bool admitted) noexcept override {
      policy.on_use(a, hit, admitted);
    }
    void on_evict(expert_key key, step_id step) noexcept override { policy.on_evict(key, step); }
    void on_routed(const routing_view& view) noexcept override {
      tell_admission_routed(policy, view);
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return P::name; }
    P policy;
  };
};

static_assert(admission_policy<any_admission_policy>);

}  // namespace hotset
