// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any eviction policy chosen or written at run time, and models the concept itself.
///
/// Rule: the held policy's.
/// Source: the design of std::pmr and cuda::mr: the type-erased class models the concept that it erases.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held policy's cost and one virtual call each; a template instance has none.

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

namespace detail {

/// Virtual interface of a held policy.
struct held_eviction : held_policy<eviction_traits> {
  static constexpr std::string_view kind = "eviction";
  template <class P>
  static constexpr bool accepts = eviction_policy<P>;
  template <class P>
  struct model;

  using held_policy::held_policy;
  virtual void on_visit(const visit_event& event) noexcept = 0;
  virtual void on_prefetch(const prefetch_event& event) noexcept = 0;
  virtual void on_request(const prefetch_event& event) noexcept = 0;
  virtual void on_routed(const routing_view& view) noexcept = 0;
  virtual void on_forecast(const visit_context& context, const forecast& expected) noexcept = 0;
  virtual void on_evict(slot_id slot, expert_key key) noexcept = 0;
  virtual void on_move(slot_id from, slot_id to) noexcept = 0;
  virtual std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                     std::span<slot_id> out) noexcept = 0;
};

template <class P>
struct held_eviction::model final : held_eviction {
  explicit model(P given) : held_eviction(P::name, facts_of(given)), policy(std::move(given)) {}
  void on_visit(const visit_event& event) noexcept override { policy.on_visit(event); }
  void on_prefetch(const prefetch_event& event) noexcept override { policy.on_prefetch(event); }
  void on_request(const prefetch_event& event) noexcept override { notify_request(policy, event); }
  void on_routed(const routing_view& view) noexcept override { notify_routed(policy, view); }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept override {
    notify_forecast(policy, context, expected);
  }
  void on_evict(slot_id slot, expert_key key) noexcept override { policy.on_evict(slot, key); }
  void on_move(slot_id from, slot_id to) noexcept override { policy.on_move(from, to); }
  std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept override {
    return policy.select_victims(context, eligible, out);
  }
  P policy;
};

}  // namespace detail

/// Move-only. Pre, for every call except destruction and assignment: it holds a policy.
class any_eviction_policy
    : public detail::any_policy<any_eviction_policy, detail::held_eviction, pool_layout> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// Every trait that a held policy may have.
  static constexpr eviction_traits traits{.wants_requests = true,
                                          .wants_routes = true,
                                          .wants_forecasts = true,
                                          .needs_weights = true,
                                          .needs_future = true,
                                          .moves_by_itself = true,
                                          .is_called = true};

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
};

static_assert(is_eviction_policy<any_eviction_policy>());

}  // namespace hotset
