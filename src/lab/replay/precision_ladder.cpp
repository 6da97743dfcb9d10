// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/precision_ladder.hpp"

#include <cmath>

#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/errors.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {

namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw usage_error(fmt::format(
      "precision '{}': {}; accepted: falling bits from 1 to 64, highest first, such as 8:4, with "
      "shares in percent 8:4@75:25",
      text, why));
}

std::vector<double> numbers(std::string_view part, std::string_view text) {
  std::vector<double> out;
  for (const auto one : detail::split_at(part, ':')) {
    const auto value = parse_number<double>(one, std::chars_format::fixed);
    if (!value) refuse(text, fmt::format("'{}' is no number", one));
    out.push_back(*value);
  }
  return out;
}

}  // namespace

precision_ladder precision_ladder::parse(std::string_view text) {
  precision_ladder out;
  out.text = std::string(text);
  const auto at = text.find('@');
  for (const auto bits : numbers(text.substr(0, at), text)) {
    if (!(bits >= 1 && bits <= 64) || bits != std::floor(bits))
      refuse(text, fmt::format("{} bits", bits));
    if (!out.bits.empty() && bits >= out.bits.back())
      refuse(text, fmt::format("{} does not fall", bits));
    out.bits.push_back(static_cast<std::uint32_t>(bits));
  }
  if (out.bits.size() > geometry::max_precisions)
    refuse(text,
           fmt::format("{} precisions, at most {}", out.bits.size(), geometry::max_precisions));
  if (at == std::string_view::npos) {
    out.shares.assign(out.bits.size(), 1.0 / static_cast<double>(out.bits.size()));
    return out;
  }
  out.shares = numbers(text.substr(at + 1), text);
  double sum = 0;
  for (auto& share : out.shares) {
    if (!(share > 0)) refuse(text, "a share of 0");
    sum += share;
  }
  if (out.shares.size() != out.bits.size())
    refuse(text, fmt::format("{} shares for {} precisions", out.shares.size(), out.bits.size()));
  if (std::abs(sum - 100) > 1e-9) refuse(text, fmt::format("shares of {} % in all", sum));
  for (auto& share : out.shares) share /= 100;
  return out;
}

geometry with_precisions(const geometry& shape, const precision_ladder& ladder) {
  auto out = shape;
  if (!ladder.several()) return out;
  if (shape.expert_bytes.empty())
    throw usage_error(
        fmt::format("precision {}: the trace does not say how large an expert is, accepted: traces "
                    "with expert bytes",
                    ladder.text));
  for (std::size_t p = 1; p < ladder.bits.size(); ++p) {
    auto bytes = shape.expert_bytes;
    for (auto& b : bytes) b = b * ladder.bits[p] / ladder.bits[0];
    out.lower_precisions.push_back(std::move(bytes));
  }
  if (const auto bad = out.validate()) throw usage_error(bad->message);
  return out;
}

pool_layout divide_by_precision(const pool_layout& whole, const geometry& shape,
                                std::span<const double> shares) {
  const bool shared = whole.pools() == 1;
  if (!shared && whole.pools() != shape.layer_count())
    throw usage_error("several precisions and size classes, accepted: one or the other");
  // Converts slots to the same bytes at another precision, for the layer with the largest expert.
  const auto slots_of = [&](std::int32_t slots, layer_id layer, std::size_t p) {
    const auto full = static_cast<double>(shape.bytes_of(layer));
    const auto each = static_cast<double>(shape.bytes_of(layer, static_cast<precision_id>(p)));
    return static_cast<std::int64_t>(static_cast<double>(slots) * shares[p] * full / each + 1e-9);
  };
  std::vector<std::int64_t> slots;
  for (std::size_t p = 0; p < shape.precisions(); ++p)
    slots.push_back(slots_of(whole.at(pool_id{}).slots, layer_id{}, p));
  auto made = shared ? pool_layout::shared_by_precision(shape, slots)
                     : pool_layout::per_layer_by_precision(shape, slots);
  if (!made) throw infeasible_error(made.error().message);
  return *std::move(made);
}

}  // namespace hotset::lab
