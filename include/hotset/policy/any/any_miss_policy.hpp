// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any miss policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: as the held policy: `facts()`.
/// Cost: the held policy's and one virtual call each; a template instance has none.

#include <concepts>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/miss_policy.hpp"

namespace hotset {

namespace detail {

/// The calls of a held policy.
struct held_miss : held_policy {
  static constexpr std::string_view kind = "miss";
  virtual void decide(std::span<const miss> misses, const routing_view& view,
                      const residency_view& residents, std::span<expert_id> ids,
                      std::span<miss_decision> out) noexcept = 0;
  virtual void observe(std::span<const float> weights) noexcept = 0;
  [[nodiscard]] virtual precision_id prefetch_precision() noexcept = 0;
  [[nodiscard]] virtual miss_traits facts() const noexcept = 0;
};

}  // namespace detail

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_miss_policy : public detail::any_policy<any_miss_policy, detail::held_miss, geometry> {
 public:
  // What holds of some held policy; the held one's own are facts().
  static constexpr std::string_view name = "any";
  static constexpr miss_traits traits{.needs_logits = true, .needs_weights = true};

  template <class M>
    requires(!std::same_as<std::remove_cvref_t<M>, any_miss_policy> &&
             miss_policy<std::remove_cvref_t<M>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_miss_policy(M&& policy)
      : any_policy(std::make_unique<model<std::remove_cvref_t<M>>>(std::forward<M>(policy))) {}
  any_miss_policy(const geometry& shape, const config& options)
      : any_miss_policy(options.factory(shape)) {}

  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept {
    held().decide(misses, view, residents, ids, out);
  }
  void observe(std::span<const float> weights) noexcept { held().observe(weights); }
  [[nodiscard]] precision_id prefetch_precision() noexcept { return held().prefetch_precision(); }

  /// The held policy's traits.
  [[nodiscard]] miss_traits facts() const noexcept { return held().facts(); }

 private:
  template <class M>
  struct model final : detail::held_miss {
    explicit model(M given) : policy(std::move(given)) {}
    void decide(std::span<const miss> misses, const routing_view& view,
                const residency_view& residents, std::span<expert_id> ids,
                std::span<miss_decision> out) noexcept override {
      policy.decide(misses, view, residents, ids, out);
    }
    void observe(std::span<const float> weights) noexcept override { policy.observe(weights); }
    [[nodiscard]] precision_id prefetch_precision() noexcept override {
      return policy.prefetch_precision();
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return M::name; }
    [[nodiscard]] miss_traits facts() const noexcept override { return facts_of(policy); }
    M policy;
  };
};

static_assert(miss_policy<any_miss_policy>);

}  // namespace hotset
