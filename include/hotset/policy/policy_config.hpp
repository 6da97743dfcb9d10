// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Helpers for policies of every kind: validated configurations, and traits.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

/// Configuration of a policy without parameters.
struct no_options {
  [[nodiscard]] validation validate() const { return std::nullopt; }
};

/// Requirements on every policy that is built for a Shape: a name, Traits, and a configuration that validates itself.
template <class P, class Shape, class Traits>
concept policy_for = std::move_constructible<P> &&
    std::constructible_from<P, const Shape&, const typename P::config&> &&
    requires(const typename P::config& config) {
  { P::name } -> std::convertible_to<std::string_view>;
  { config.validate() } -> std::same_as<validation>;
  requires std::same_as<decltype(P::traits), const Traits>;
};

/// Calls `validate()`, and `validate(shape)` if the configuration has it. Returns the first error.
template <class Config>
[[nodiscard]] validation validate_for(const Config& config, const geometry& shape) {
  if (auto bad = config.validate()) return bad;
  if constexpr (requires { config.validate(shape); }) return config.validate(shape);
  return std::nullopt;
}

/// Builds the error for a refused number: "name = value, accepted: range".
template <class Number>
[[nodiscard]] validation refuse_value(std::string_view name, Number value,
                                      std::string_view accepted) {
  return refusal(name, " = ", value, ", accepted: ", accepted);
}

namespace detail {
/// Returns the first error, or none.
[[nodiscard]] inline validation first_of(std::initializer_list<validation> checks) {
  for (const auto& check : checks)
    if (check) return check;
  return std::nullopt;
}
/// Returns "name = value, accepted: range" unless `fits`.
template <class Number>
[[nodiscard]] validation refuse_unless(bool fits, std::string_view name, Number value,
                                       std::string_view accepted) {
  return fits ? validation() : refuse_value(name, value, accepted);
}
/// Returns "name = value, accepted: least..most", with the reason for the limit in brackets, unless the value fits.
[[nodiscard]] inline validation within(std::string_view name, std::int64_t value,
                                       std::int64_t least, std::int64_t most,
                                       std::string_view of = {}) {
  if (value >= least && value <= most) return std::nullopt;
  const auto limit = of.empty() ? std::string() : " (" + std::string(of) + ")";
  return refuse_value(name, value, std::to_string(least) + ".." + std::to_string(most) + limit);
}
/// Returns "name = value, accepted: 0 (first), 1 (second)" unless the value is one of the named enumerators.
template <class Enum>
[[nodiscard]] validation one_of(std::string_view name, Enum value,
                                std::initializer_list<std::string_view> names) {
  if (static_cast<std::size_t>(value) < names.size()) return std::nullopt;
  std::string accepted;
  int number = 0;
  for (const auto each : names)
    accepted += (number == 0 ? "" : ", ") + std::to_string(number) + " (" + std::string(each) + ")",
        ++number;
  return refuse_value(name, static_cast<int>(value), accepted);
}
}  // namespace detail

/// Returns the traits of the policy: `facts()` if it holds a policy chosen at run time, otherwise its class `traits`.
template <class P>
[[nodiscard]] constexpr auto facts_of(const P& policy) noexcept {
  if constexpr (requires { policy.facts(); })
    return policy.facts();
  else
    return P::traits;
}
/// Returns the traits of the policy that a configuration will build.
template <class P>
[[nodiscard]] constexpr auto facts_of_config(
    [[maybe_unused]] const typename P::config& config) noexcept {
  if constexpr (requires { config.traits; })
    return config.traits;
  else
    return P::traits;
}
/// Sets the factory of a config of a run-time policy to `Plain` if it has none.
template <class Policy, class Plain>
void choose_unless_chosen(typename Policy::config& config) {
  if constexpr (requires { Policy::template holding<Plain>(); })
    if (!config.factory) config = Policy::template holding<Plain>();
}

}  // namespace hotset
