// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Helpers for policies of every kind: configurations that say why they cannot work, and traits.

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

/// The configuration of a policy that has nothing to configure.
struct no_options {
  [[nodiscard]] validation validate() const { return std::nullopt; }
};

/// What every policy has that is built for a Shape: a name, its Traits, and a configuration that says why it cannot
/// work.
template <class P, class Shape, class Traits>
concept policy_for = std::move_constructible<P> &&
    std::constructible_from<P, const Shape&, const typename P::config&> &&
    requires(const typename P::config& config) {
  { P::name } -> std::convertible_to<std::string_view>;
  { config.validate() } -> std::same_as<validation>;
  requires std::same_as<decltype(P::traits), const Traits>;
};

/// Asks `validate()`, and `validate(shape)` where the configuration has one: can it work for a model of this shape.
template <class Config>
[[nodiscard]] validation validate_for(const Config& config, const geometry& shape) {
  if (auto bad = config.validate()) return bad;
  if constexpr (requires { config.validate(shape); }) return config.validate(shape);
  return std::nullopt;
}

/// The one line in which a configuration refuses a number: "name = value, accepted: range".
template <class Number>
[[nodiscard]] validation refuse_value(std::string_view name, Number value,
                                      std::string_view accepted) {
  return refusal(name, " = ", value, ", accepted: ", accepted);
}

/// The `traits` of a policy's class; of a policy that was chosen at run time, which has `facts()`, those of what it holds.
template <class P>
[[nodiscard]] constexpr auto facts_of(const P& policy) noexcept {
  if constexpr (requires { policy.facts(); })
    return policy.facts();
  else
    return P::traits;
}
/// The traits of the class of policy that a configuration will build.
template <class P>
[[nodiscard]] constexpr auto facts_of_config(
    [[maybe_unused]] const typename P::config& config) noexcept {
  if constexpr (requires { config.traits; })
    return config.traits;
  else
    return P::traits;
}
/// A policy that is chosen at run time, and is not chosen, is the plain one.
template <class Policy, class Plain>
void choose_unless_chosen(typename Policy::config& config) {
  if constexpr (requires { Policy::template holding<Plain>(); })
    if (!config.factory) config = Policy::template holding<Plain>();
}

}  // namespace hotset
