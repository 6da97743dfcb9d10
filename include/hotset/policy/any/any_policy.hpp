// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Base of every any_*_policy. It builds and owns the held policy, and stores its name and traits.

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset::detail {

/// A policy behind virtual calls. Each kind of policy adds its own calls.
template <class Traits>
struct held_policy {
  using traits_type = Traits;
  held_policy(std::string_view of, const Traits& what) : name(of), facts(what) {}
  held_policy(const held_policy&) = delete;
  held_policy& operator=(const held_policy&) = delete;
  virtual ~held_policy() = default;
  std::string_view name;
  Traits facts;
};

/// Owns the policy. Move-only.
template <class Held>
class policy_holder {
 public:
  [[nodiscard]] bool has_value() const noexcept { return held_ != nullptr; }
  /// Name of the held policy.
  [[nodiscard]] std::string_view held_name() const noexcept { return held_->name; }
  /// Traits of the held policy.
  [[nodiscard]] const typename Held::traits_type& facts() const noexcept { return held_->facts; }

 protected:
  explicit policy_holder(std::unique_ptr<Held> held) : held_(std::move(held)) {}
  [[nodiscard]] Held& held() const noexcept { return *held_; }

 private:
  std::unique_ptr<Held> held_;
};

/// Any: the class derived from this one. Shape: the constructor argument of the policies.
/// Held: a class derived from held_policy with the virtual calls, `kind`, `accepts<P>` (true if it can hold P) and
/// `model<P>` (which holds P).
template <class Any, class Held, class Shape>
class any_policy : public policy_holder<Held> {
 public:
  /// Builds the policy that will be held.
  struct config {
    std::function<Any(const Shape&)> factory{};
    /// Why the held policy's own configuration is refused; empty if it is valid.
    validation inner_validation{};
    /// Empty: any shape is accepted.
    std::function<validation(const geometry&)> inner_shape_validation{};
    typename Held::traits_type traits{};  ///< traits of the class that will be held
    [[nodiscard]] validation validate() const {
      if (inner_validation) return inner_validation;
      if (factory) return std::nullopt;
      return refusal("any_", Held::kind, "_policy factory = none, accepted: a factory");
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return inner_shape_validation ? inner_shape_validation(shape) : std::nullopt;
    }
  };

  template <class P>
    requires(!std::derived_from<std::remove_cvref_t<P>, any_policy> &&
             Held::template accepts<std::remove_cvref_t<P>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint excludes moves
  explicit any_policy(P&& policy)
      : policy_holder<Held>(std::make_unique<typename Held::template model<std::remove_cvref_t<P>>>(
            std::forward<P>(policy))) {}
  any_policy(const Shape& shape, const config& options) : any_policy(options.factory(shape)) {}

  /// Returns a config that builds P with these options.
  template <class P>
    requires std::constructible_from<Any, P>
  [[nodiscard]] static config holding(typename P::config options = {}) {
    config out;
    out.traits = P::traits;
    out.inner_validation = options.validate();
    if constexpr (requires(const geometry& shape) { options.validate(shape); })
      out.inner_shape_validation = [options](const geometry& shape) {
        return options.validate(shape);
      };
    out.factory = [options = std::move(options)](const Shape& shape) {
      return Any(P(shape, options));
    };
    return out;
  }
};

}  // namespace hotset::detail
