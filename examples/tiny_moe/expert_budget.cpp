// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/expert_budget.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "hotset/core/units.hpp"
#include "hotset/sim/errors.hpp"

namespace tiny_moe {
namespace {

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc{} || rest != end) return std::nullopt;
  return value;
}

}  // namespace

expert_budget parse_expert_budget(std::string_view text) {
  expert_budget budget;
  budget.text = text;
  if (text.ends_with('%')) {
    const auto percent = whole_number<double>(text.substr(0, text.size() - 1));
    if (percent && *percent >= 0.0 && *percent <= 100.0) {
      budget.percent = *percent;
      return budget;
    }
  } else if (const auto slots = whole_number<std::uint64_t>(text)) {
    budget.kind = expert_budget::unit::slots;
    budget.amount = *slots;
    return budget;
  } else if (const auto bytes = hotset::parse_bytes(text);
             bytes && text.find_first_not_of("0123456789.") != std::string_view::npos) {
    budget.kind = expert_budget::unit::bytes;
    budget.amount = *bytes;
    return budget;
  }
  throw hotset::sim::usage_error(
      fmt::format("expert budget '{}', accepted: 0%..100% of the experts, a number of slots, or {}",
                  text, hotset::byte_size_syntax));
}

hotset::cache_scope parse_scope(std::string_view text) {
  for (const auto scope : {hotset::cache_scope::shared, hotset::cache_scope::per_layer}) {
    if (text == name_of(scope)) return scope;
  }
  throw hotset::sim::usage_error(fmt::format("scope '{}', accepted: shared, per-layer", text));
}

std::string_view name_of(hotset::cache_scope scope) noexcept {
  return scope == hotset::cache_scope::shared ? "shared" : "per-layer";
}

std::int64_t slots_of(const expert_budget& budget, const hotset::geometry& shape,
                      hotset::cache_scope scope) {
  const bool shared = scope == hotset::cache_scope::shared;
  const std::uint64_t pools = shared ? 1 : static_cast<std::uint64_t>(shape.layers);
  const std::uint64_t most = shape.keys() / pools;
  const auto least = static_cast<std::uint64_t>(shape.top_k);
  const std::uint64_t slot_bytes = shape.bytes_of(0);

  std::uint64_t slots = budget.amount;
  if (budget.kind == expert_budget::unit::percent) {
    const double share = static_cast<double>(most) * budget.percent / 100.0;
    slots = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::floor(share + 0.5)));
  } else if (budget.kind == expert_budget::unit::bytes) {
    slots = std::min(most, budget.amount / slot_bytes / pools);
  }
  const char* const where = shared ? "" : " in every layer";
  if (slots > most) {
    throw hotset::sim::usage_error(fmt::format("expert budget '{}': {} slots{}, accepted: {}..{}",
                                               budget.text, slots, where, least, most));
  }
  if (slots < least) {
    throw hotset::sim::infeasible_error(fmt::format(
        "expert budget '{}' is {} slots{}, fewer than the {} experts of one token; the smallest "
        "that works is {} slots{} ({} bytes)",
        budget.text, slots, where, least, least, where, least * pools * slot_bytes));
  }
  return static_cast<std::int64_t>(slots);
}

}  // namespace tiny_moe
