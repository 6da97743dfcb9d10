// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text form of a policy, `lfu:history=resident`, or of a decorated one, `protect_hot:uses=4+lru`; reads its
/// parameters by name. Keeps the first error until `finish`, because the reading functions return values.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"

namespace hotset {

/// One policy name with its parameters.
struct policy_spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
};

namespace detail {
inline std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}
}  // namespace detail

/// Grammar: name (":" key "=" value)*, each key once. The error shows the text and the grammar.
[[nodiscard]] inline result<policy_spec> parse_policy(std::string_view text) {
  const auto parts = detail::split_at(text, ':');
  const error malformed{"policy '" + std::string(text) +
                        "', accepted: name or name:parameter=value, such as lfu:history=resident"};
  policy_spec spec{std::string(parts.front()), {}};
  if (spec.name.empty()) return malformed;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == parts[i].size())
      return malformed;
    const auto key = parts[i].substr(0, equals);
    if (std::ranges::find(spec.parameters, key, &std::pair<std::string, std::string>::first) !=
        spec.parameters.end())
      return refusal(spec.name, ": parameter '", key, "' is given twice, accepted: once");
    spec.parameters.emplace_back(key, parts[i].substr(equals + 1));
  }
  return spec;
}

/// Parses a policy and its decorators, outermost first; the last element is the policy itself.
/// Grammar: element ("+" element)*. Errors: those of parse_policy.
[[nodiscard]] inline result<std::vector<policy_spec>> parse_policy_chain(std::string_view text) {
  std::vector<policy_spec> chain;
  for (const auto part : detail::split_at(text, '+')) {
    auto spec = parse_policy(part);
    if (!spec) return spec.error();
    chain.push_back(*std::move(spec));
  }
  return chain;
}

/// Reads parameters by name. Pre: the spec outlives it.
class parameters {
 public:
  explicit parameters(const policy_spec& spec)
      : spec_(spec), used_(spec.parameters.size(), false) {}
  explicit parameters(const policy_spec&&) = delete;  ///< the spec must outlive the reading

  /// Reads a whole number that fits into T.
  template <std::integral T>
  [[nodiscard]] T number(std::string_view key, T otherwise) {
    const auto* text = find(key);
    if (text == nullptr) return otherwise;
    T value = 0;
    if (read_whole(*text, value) && std::cmp_greater_equal(value, 0)) return value;
    refuse(key, *text, "a whole number from 0 to " + std::to_string(std::numeric_limits<T>::max()));
    return otherwise;
  }
  [[nodiscard]] double real(std::string_view key, double otherwise) {
    const auto* text = find(key);
    if (text == nullptr) return otherwise;
    double value = 0;
    if (read_whole(*text, value) && std::isfinite(value)) return value;
    refuse(key, *text, "a number");
    return otherwise;
  }
  /// Returns the position of the value in `accepted`.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::initializer_list<std::string_view> accepted,
                                   std::size_t otherwise) {
    const auto* text = find(key);
    if (text == nullptr) return otherwise;
    const auto* const found = std::find(accepted.begin(), accepted.end(), *text);
    if (found != accepted.end()) return static_cast<std::size_t>(found - accepted.begin());
    const std::vector<std::string> names(accepted.begin(), accepted.end());
    keep(unknown_name(spec_.name + ": " + std::string(key), *text, names));
    return otherwise;
  }
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise) {
    const auto* text = find(key);
    return text == nullptr ? std::string(otherwise) : *text;
  }

  /// Returns the first error. Without one, returns the first parameter that was not read, with the accepted names.
  [[nodiscard]] validation finish() const {
    if (wrong_) return wrong_;
    for (std::size_t i = 0; i < used_.size(); ++i)
      if (!used_[i]) {
        const auto& name = spec_.parameters[i].first;
        return error{spec_.name + ": unknown parameter '" + name + "'" +
                     did_you_mean(name, known_) +
                     ", accepted: " + (known_.empty() ? std::string("none") : listed(known_))};
      }
    return std::nullopt;
  }

 private:
  template <class Number>
  static bool read_whole(const std::string& text, Number& value) {
    const auto* const end = text.data() + text.size();
    const auto [rest, code] = std::from_chars(text.data(), end, value);
    return code == std::errc{} && rest == end;
  }
  const std::string* find(std::string_view key) {
    known_.emplace_back(key);
    for (std::size_t i = 0; i < spec_.parameters.size(); ++i)
      if (spec_.parameters[i].first == key) {
        used_[i] = true;
        return &spec_.parameters[i].second;
      }
    return nullptr;
  }
  void refuse(std::string_view key, const std::string& text, const std::string& accepted) {
    keep({spec_.name + ": " + std::string(key) + "=" + text + ", accepted: " + accepted});
  }
  void keep(error reason) {
    if (!wrong_) wrong_ = std::move(reason);
  }

  const policy_spec& spec_;
  std::vector<bool> used_;
  std::vector<std::string> known_;
  validation wrong_{};
};

}  // namespace hotset
