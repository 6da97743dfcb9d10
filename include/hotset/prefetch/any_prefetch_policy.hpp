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
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/concepts/prefetch_policy.hpp"

namespace hotset::inline v0 {

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_prefetch_policy {
 public:
  /// How to build the policy that will be held.
  struct config {
    std::function<any_prefetch_policy(const geometry&)> factory{};
    [[nodiscard]] validation validate() const {
      if (inner_validation) return inner_validation;
      if (!factory) return error{"any_prefetch_policy factory = none, accepted: a factory"};
      return std::nullopt;
    }
    validation inner_validation{};  ///< why the held policy's own configuration is refused
  };
  static constexpr std::string_view name = "any";

  /// A config that builds P with these options.
  template <prefetch_policy P>
  [[nodiscard]] static config holding(typename P::config options = {}) {
    config out;
    out.inner_validation = options.validate();
    out.factory = [options = std::move(options)](const geometry& shape) {
      return any_prefetch_policy(P(shape, options));
    };
    return out;
  }

  template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, any_prefetch_policy> &&
             prefetch_policy<std::remove_cvref_t<P>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_prefetch_policy(P&& policy)
      : held_(std::make_unique<model<std::remove_cvref_t<P>>>(std::forward<P>(policy))) {}
  any_prefetch_policy(const geometry& shape, const config& options)
      : any_prefetch_policy(options.factory(shape)) {}

  [[nodiscard]] forecast_need needs() const noexcept { return held_->needs(); }
  [[nodiscard]] std::int32_t depth() const noexcept { return held_->depth(); }
  [[nodiscard]] std::size_t most_requests() const noexcept { return held_->most_requests(); }
  void observe(const routing_view& view) noexcept { held_->observe(view); }
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    return held_->propose(view, expected, out);
  }

  [[nodiscard]] bool has_value() const noexcept { return held_ != nullptr; }
  /// The held policy's name.
  [[nodiscard]] std::string_view held_name() const noexcept { return held_->held_name(); }

 private:
  struct interface {
    interface() = default;
    interface(const interface&) = delete;
    interface& operator=(const interface&) = delete;
    virtual ~interface() = default;
    [[nodiscard]] virtual forecast_need needs() const noexcept = 0;
    [[nodiscard]] virtual std::int32_t depth() const noexcept = 0;
    [[nodiscard]] virtual std::size_t most_requests() const noexcept = 0;
    virtual void observe(const routing_view& view) noexcept = 0;
    virtual std::size_t propose(const routing_view& view, const forecast& expected,
                                std::span<prefetch_request> out) noexcept = 0;
    [[nodiscard]] virtual std::string_view held_name() const noexcept = 0;
  };

  template <class P>
  struct model final : interface {
    explicit model(P&& p) : policy(std::move(p)) {}
    explicit model(const P& p) : policy(p) {}
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

  std::unique_ptr<interface> held_;
};

static_assert(prefetch_policy<any_prefetch_policy>);

}  // namespace hotset::inline v0
