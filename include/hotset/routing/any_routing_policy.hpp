// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any routing policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: as the held policy: `exact()`.
/// Cost: the held policy's and one virtual call per visit; a template instance has none.

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/concepts/routing_policy.hpp"

namespace hotset::inline v0 {

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_routing_policy {
 public:
  /// How to build the policy that will be held.
  struct config {
    std::function<any_routing_policy(const geometry&)> factory{};
    [[nodiscard]] validation validate() const {
      if (inner_validation) return inner_validation;
      if (!factory) return error{"any_routing_policy factory = none, accepted: a factory"};
      return std::nullopt;
    }
    validation inner_validation{};  ///< why the held policy's own configuration is refused
  };
  // What holds of some held policy; the held one's own are exact() and wants_logits().
  static constexpr std::string_view name = "any";
  static constexpr bool is_exact = false;
  static constexpr bool needs_logits = true;

  /// A config that builds R with these options.
  template <routing_policy R>
  [[nodiscard]] static config holding(typename R::config options = {}) {
    config out;
    out.inner_validation = options.validate();
    out.factory = [options = std::move(options)](const geometry& shape) {
      return any_routing_policy(R(shape, options));
    };
    return out;
  }

  template <class R>
    requires(!std::same_as<std::remove_cvref_t<R>, any_routing_policy> &&
             routing_policy<std::remove_cvref_t<R>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_routing_policy(R&& policy)
      : held_(std::make_unique<model<std::remove_cvref_t<R>>>(std::forward<R>(policy))) {}
  any_routing_policy(const geometry& shape, const config& options)
      : any_routing_policy(options.factory(shape)) {}

  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    return held_->route(view, residents, selected, weights);
  }

  [[nodiscard]] bool has_value() const noexcept { return held_ != nullptr; }
  /// The held policy's name.
  [[nodiscard]] std::string_view held_name() const noexcept { return held_->held_name(); }
  [[nodiscard]] bool exact() const noexcept { return held_->exact(); }
  [[nodiscard]] bool wants_logits() const noexcept { return held_->wants_logits(); }

 private:
  struct interface {
    interface() = default;
    interface(const interface&) = delete;
    interface& operator=(const interface&) = delete;
    virtual ~interface() = default;
    virtual status route(const routing_view& view, const residency_view& residents,
                         std::span<expert_id> selected, std::span<float> weights) noexcept = 0;
    [[nodiscard]] virtual std::string_view held_name() const noexcept = 0;
    [[nodiscard]] virtual bool exact() const noexcept = 0;
    [[nodiscard]] virtual bool wants_logits() const noexcept = 0;
  };

  template <class R>
  struct model final : interface {
    explicit model(R&& r) : policy(std::move(r)) {}
    explicit model(const R& r) : policy(r) {}
    status route(const routing_view& view, const residency_view& residents,
                 std::span<expert_id> selected, std::span<float> weights) noexcept override {
      return policy.route(view, residents, selected, weights);
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return R::name; }
    [[nodiscard]] bool exact() const noexcept override { return R::is_exact; }
    [[nodiscard]] bool wants_logits() const noexcept override { return R::needs_logits; }
    R policy;
  };

  std::unique_ptr<interface> held_;
};

static_assert(routing_policy<any_routing_policy>);

}  // namespace hotset::inline v0
