// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any prefetch policy chosen or written at run time, and models the concept itself.
///
/// Rule: the held policy's.
/// Source: the design of std::pmr and cuda::mr: the type-erased class models the concept that it erases.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held policy's cost and one virtual call each; a template instance has none.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/prefetch_policy.hpp"

namespace hotset {

namespace detail {

/// Virtual interface of a held policy.
struct held_prefetch : held_policy<prefetch_traits> {
  static constexpr std::string_view kind = "prefetch";
  template <class P>
  static constexpr bool accepts = prefetch_policy<P>;
  template <class P>
  struct model;

  using held_policy::held_policy;
  [[nodiscard]] virtual std::int32_t depth() const noexcept = 0;
  [[nodiscard]] virtual std::size_t most_requests() const noexcept = 0;
  virtual void observe(const routing_view& view) noexcept = 0;
  virtual std::size_t propose(const routing_view& view, const forecast& expected,
                              std::span<prefetch_request> out) noexcept = 0;
};

template <class P>
struct held_prefetch::model final : held_prefetch {
  explicit model(P given) : held_prefetch(P::name, facts_of(given)), policy(std::move(given)) {}
  [[nodiscard]] std::int32_t depth() const noexcept override { return policy.depth(); }
  [[nodiscard]] std::size_t most_requests() const noexcept override {
    return policy.most_requests();
  }
  void observe(const routing_view& view) noexcept override { policy.observe(view); }
  std::size_t propose(const routing_view& view, const forecast& expected,
                      std::span<prefetch_request> out) noexcept override {
    return policy.propose(view, expected, out);
  }
  P policy;
};

}  // namespace detail

/// Move-only. Pre, for every call except destruction and assignment: it holds a policy.
class any_prefetch_policy
    : public detail::any_policy<any_prefetch_policy, detail::held_prefetch, geometry> {
 public:
  using any_policy::any_policy;
  static constexpr std::string_view name = "any";
  /// Every need that a held policy may have.
  static constexpr prefetch_traits traits{.needs = forecast_need::truth};

  [[nodiscard]] std::int32_t depth() const noexcept { return held().depth(); }
  [[nodiscard]] std::size_t most_requests() const noexcept { return held().most_requests(); }
  void observe(const routing_view& view) noexcept { held().observe(view); }
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    return held().propose(view, expected, out);
  }
};

static_assert(prefetch_policy<any_prefetch_policy>);

}  // namespace hotset
