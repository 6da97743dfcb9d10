// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/policy_spec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/sim/errors.hpp"
#include "hotset/sim/suggest.hpp"

namespace hotset::inline v0::sim {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class Number>
bool read_whole(const std::string& text, Number& value) {
  const auto* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  return code == std::errc{} && rest == end;
}

}  // namespace

std::string policy_spec::text() const {
  std::string out = name;
  for (const auto& [key, value] : parameters) out += fmt::format(":{}={}", key, value);
  return out;
}

policy_spec parse_policy(std::string_view text) {
  const auto parts = split(text, ':');
  policy_spec spec{std::string(parts.front()), {}};
  const auto refuse = [&] {
    throw usage_error(fmt::format(
        "policy '{}', accepted: name or name:parameter=value, such as lfu:history=resident", text));
  };
  if (spec.name.empty()) refuse();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == parts[i].size()) refuse();
    spec.parameters.emplace_back(parts[i].substr(0, equals), parts[i].substr(equals + 1));
  }
  return spec;
}

std::vector<policy_spec> parse_policy_chain(std::string_view text) {
  std::vector<policy_spec> chain;
  for (const auto part : split(text, '+')) chain.push_back(parse_policy(part));
  return chain;
}

const std::string* parameter_reader::find(std::string_view key) {
  known_.emplace_back(key);
  for (std::size_t i = 0; i < spec_.parameters.size(); ++i)
    if (spec_.parameters[i].first == key) {
      used_[i] = true;
      return &spec_.parameters[i].second;
    }
  return nullptr;
}

std::uint64_t parameter_reader::number(std::string_view key, std::uint64_t otherwise) {
  const auto* text = find(key);
  if (text == nullptr) return otherwise;
  std::uint64_t value = 0;
  if (!read_whole(*text, value))
    throw usage_error(
        fmt::format("{}: {}={}, accepted: a whole number from 0", spec_.name, key, *text));
  return value;
}

double parameter_reader::real(std::string_view key, double otherwise) {
  const auto* text = find(key);
  if (text == nullptr) return otherwise;
  double value = 0;
  if (!read_whole(*text, value) || !std::isfinite(value))
    throw usage_error(fmt::format("{}: {}={}, accepted: a number", spec_.name, key, *text));
  return value;
}

std::size_t parameter_reader::choice(std::string_view key, std::vector<std::string_view> accepted,
                                     std::size_t otherwise) {
  const auto* text = find(key);
  if (text == nullptr) return otherwise;
  const auto found = std::ranges::find(accepted, std::string_view(*text));
  if (found == accepted.end())
    refuse_name(fmt::format("{}: {}", spec_.name, key), *text, {accepted.begin(), accepted.end()});
  return static_cast<std::size_t>(found - accepted.begin());
}

std::string parameter_reader::text(std::string_view key, std::string_view otherwise) {
  const auto* text = find(key);
  return text == nullptr ? std::string(otherwise) : *text;
}

void parameter_reader::finish() const {
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!used_[i])
      throw usage_error(fmt::format(
          "{}: unknown parameter '{}'{}, accepted: {}", spec_.name, spec_.parameters[i].first,
          did_you_mean(spec_.parameters[i].first, known_),
          known_.empty() ? std::string("none") : fmt::format("{}", fmt::join(known_, ", "))));
}

}  // namespace hotset::inline v0::sim
