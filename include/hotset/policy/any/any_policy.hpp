// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What every any_*_policy has: how the policy that it holds is built, and its name.

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset::detail {

/// A policy behind virtual calls; each kind of policy adds its own.
struct held_policy {
  held_policy() = default;
  held_policy(const held_policy&) = delete;
  held_policy& operator=(const held_policy&) = delete;
  virtual ~held_policy() = default;
  [[nodiscard]] virtual std::string_view held_name() const noexcept = 0;
};

/// Any: the class derived from this. Held: the calls, derived from held_policy, and `kind`. Shape: what policies are built for.
template <class Any, class Held, class Shape>
class any_policy {
 public:
  /// How to build the policy that will be held.
  struct config {
    std::function<Any(const Shape&)> factory{};
    validation inner_validation{};  ///< why the held policy's own configuration is refused
    std::function<validation(const geometry&)> inner_shape_validation{};  ///< none: any shape
    [[nodiscard]] validation validate() const {
      if (inner_validation) return inner_validation;
      if (factory) return std::nullopt;
      return error{"any_" + std::string(Held::kind) +
                   "_policy factory = none, accepted: a factory"};
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return inner_shape_validation ? inner_shape_validation(shape) : std::nullopt;
    }
  };

  /// A config that builds P with these options.
  template <class P>
    requires std::constructible_from<Any, P>
  [[nodiscard]] static config holding(typename P::config options = {}) {
    config out;
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

  [[nodiscard]] bool has_value() const noexcept { return held_ != nullptr; }
  /// The held policy's name.
  [[nodiscard]] std::string_view held_name() const noexcept { return held_->held_name(); }

 protected:
  explicit any_policy(std::unique_ptr<Held> held) : held_(std::move(held)) {}
  [[nodiscard]] Held& held() const noexcept { return *held_; }

 private:
  std::unique_ptr<Held> held_;
};

}  // namespace hotset::detail
