// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any eviction policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held policy's and one virtual call each; a template instance has none.

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

namespace detail {

/// The calls of a held policy.
struct held_eviction : held_policy {
  static constexpr std::string_view kind = "eviction";
  virtual void on_visit(const visit_event& event) noexcept = 0;
  virtual void on_prefetch(const prefetch_event& event) noexcept = 0;
  virtual void on_request(const prefetch_event& event) noexcept = 0;
  virtual void on_routed(const routing_view& view) noexcept = 0;
  virtual void on_forecast(const visit_context& context, const forecast& expected) noexcept = 0;
  virtual void on_evict(slot_id slot, expert_key key) noexcept = 0;
  virtual void on_move(slot_id from, slot_id to) noexcept = 0;
  virtual std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                     std::span<slot_id> out) noexcept = 0;
  [[nodiscard]] virtual eviction_traits facts() const noexcept = 0;
};

}  // namespace detail

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_eviction_policy
    : public detail::any_policy<any_eviction_policy, detail::held_eviction, pool_layout> {
 public:
  static constexpr std::string_view name = "any";
  /// The most that a held policy may be.
  static constexpr eviction_traits traits{.hears_requests = true,
                                          .hears_routes = true,
                                          .hears_forecasts = true,
                                          .needs_weights = true,
                                          .moves_by_itself = true};

  template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, any_eviction_policy> &&
             eviction_policy<std::remove_cvref_t<P>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_eviction_policy(P&& policy)
      : any_policy(std::make_unique<model<std::remove_cvref_t<P>>>(std::forward<P>(policy))) {}
  any_eviction_policy(const pool_layout& layout, const config& options)
      : any_eviction_policy(options.factory(layout)) {}

  void on_visit(const visit_event& event) noexcept { held().on_visit(event); }
  void on_prefetch(const prefetch_event& event) noexcept { held().on_prefetch(event); }
  void on_request(const prefetch_event& event) noexcept { held().on_request(event); }
  void on_routed(const routing_view& view) noexcept { held().on_routed(view); }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    held().on_forecast(context, expected);
  }
  void on_evict(slot_id slot, expert_key key) noexcept { held().on_evict(slot, key); }
  void on_move(slot_id from, slot_id to) noexcept { held().on_move(from, to); }
  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return held().select_victims(context, eligible, out);
  }

  /// The held policy's traits.
  [[nodiscard]] eviction_traits facts() const noexcept { return held().facts(); }

 private:
  template <class P>
  struct model final : detail::held_eviction {
    explicit model(P given) : policy(std::move(given)) {}
    void on_visit(const visit_event& event) noexcept override { policy.on_visit(event); }
    void on_prefetch(const prefetch_event& event) noexcept override { policy.on_prefetch(event); }
    void on_request(const prefetch_event& event) noexcept override { tell_request(policy, event); }
    void on_routed(const routing_view& view) noexcept override { tell_routed(policy, view); }
    void on_forecast(const visit_context& context, const forecast& expected) noexcept override {
      tell_forecast(policy, context, expected);
    }
    void on_evict(slot_id slot, expert_key key) noexcept override { policy.on_evict(slot, key); }
    void on_move(slot_id from, slot_id to) noexcept override { policy.on_move(from, to); }
    std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                               std::span<slot_id> out) noexcept override {
      return policy.select_victims(context, eligible, out);
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return P::name; }
    [[nodiscard]] eviction_traits facts() const noexcept override { return facts_of(policy); }
    P policy;
  };
};

static_assert(is_eviction_policy<any_eviction_policy>());

}  // namespace hotset
