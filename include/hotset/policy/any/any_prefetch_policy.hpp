// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any prefetch policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held policy's and one virtual call each; a template instance has none.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/prefetch_policy.hpp"

namespace hotset {

namespace detail {

/// The calls of a held policy.
struct held_prefetch : held_policy {
  static constexpr std::string_view kind = "prefetch";
  [[nodiscard]] virtual prefetch_traits facts() const noexcept = 0;
  [[nodiscard]] virtual forecast_need needs() const noexcept = 0;
  [[nodiscard]] virtual std::int32_t depth() const noexcept = 0;
  [[nodiscard]] virtual std::size_t most_requests() const noexcept = 0;
  virtual void observe(const routing_view& view) noexcept = 0;
  virtual std::size_t propose(const routing_view& view, const forecast& expected,
                              std::span<prefetch_request> out) noexcept = 0;
};

}  // namespace detail

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_prefetch_policy
    : public detail::any_policy<any_prefetch_policy, detail::held_prefetch, geometry> {
 public:
  static constexpr std::string_view name = "any";
  static constexpr prefetch_traits traits{.sees_future = true};

  template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, any_prefetch_policy> &&
             prefetch_policy<std::remove_cvref_t<P>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_prefetch_policy(P&& policy)
      : any_policy(std::make_unique<model<std::remove_cvref_t<P>>>(std::forward<P>(policy))) {}
  any_prefetch_policy(const geometry& shape, const config& options)
      : any_prefetch_policy(options.factory(shape)) {}

  /// The held policy's traits.
  [[nodiscard]] prefetch_traits facts() const noexcept { return held().facts(); }
  [[nodiscard]] forecast_need needs() const noexcept { return held().needs(); }
  [[nodiscard]] std::int32_t depth() const noexcept { return held().depth(); }
  [[nodiscard]] std::size_t most_requests() const noexcept { return held().most_requests(); }
  void observe(const routing_view& view) noexcept { held().observe(view); }
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    return held().propose(view, expected, out);
  }

 private:
  template <class P>
  struct model final : detail::held_prefetch {
    explicit model(P given) : policy(std::move(given)) {}
    [[nodiscard]] prefetch_traits facts() const noexcept override { return facts_of(policy); }
    [[nodiscard]] forecast_need needs() const noexcept override { return policy.needs(); }
    [[nodiscard]] std::int32_t depth() const noexcept override { return policy.depth(); }
    [[nodiscard]] std::size_t most_requests() const noexcept override {
      return policy.most_requests();
    }
    void observe(const routing_view& view) noexcept override { policy.observe(view); }
    std::size_t propose(const routing_view& view, const forecast& expected,
                        std::span<prefetch_request> out) noexcept override {
      return policy.propose(view, expected, out);
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return P::name; }
    P policy;
  };
};

static_assert(prefetch_policy<any_prefetch_policy>);

}  // namespace hotset
