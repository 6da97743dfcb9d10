// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any miss policy chosen or written at run time, and models the concept itself.
///
/// Rule: the held policy's.
/// Source: the design of std::pmr and cuda::mr: the type-erased class models the concept that it erases.
/// Deviations: none.
/// Exact: depends on the held policy, see `facts()`.
/// Cost: the held policy's cost and one virtual call each; a template instance has none. A policy that fetches
/// everything is not called.

#include <span>
#include <string_view>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/miss_policy.hpp"

namespace hotset {

namespace detail {

/// Virtual interface of a held policy.
struct held_miss : held_policy<miss_traits> {
  static constexpr std::string_view kind = "miss";
  template <class M>
  static constexpr bool accepts = miss_policy<M>;
  template <class M>
  struct model;

  using held_policy::held_policy;
  virtual void decide(std::span<const miss> misses, const routing_view& view,
                      const residency_view& residents, std::span<expert_id> ids,
                      std::span<miss_decision> out) noexcept = 0;
  virtual void observe(std::span<const float> weights) noexcept = 0;
  [[nodiscard]] virtual precision_id prefetch_precision() noexcept = 0;
};

template <class M>
struct held_miss::model final : held_miss {
  explicit model(M given) : held_miss(M::name, facts_of(given)), policy(std::move(given)) {}
  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept override {
    policy.decide(misses, view, residents, ids, out);
  }
  void observe(std::span<const float> weights) noexcept override { policy.observe(weights); }
  [[nodiscard]] precision_id prefetch_precision() noexcept override {
    return policy.prefetch_precision();
  }
  M policy;
};

}  // namespace detail

/// Move-only. Pre, for every call except destruction and assignment: it holds a policy.
class any_miss_policy : public detail::any_policy<any_miss_policy, detail::held_miss, geometry> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// Every need that a held policy may have.
  static constexpr miss_traits traits{.needs_logits = true, .needs_weights = true};

  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept {
    held().decide(misses, view, residents, ids, out);
  }
  void observe(std::span<const float> weights) noexcept { held().observe(weights); }
  [[nodiscard]] precision_id prefetch_precision() noexcept { return held().prefetch_precision(); }
};

static_assert(miss_policy<any_miss_policy>);

}  // namespace hotset
