// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Pre-eviction by name: the values of `--pre-eviction`, and the routing policy that needs it.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "hotset/registry/parameters.hpp"

namespace hotset {

/// Reads `active_evict` with its parameters, or `none`.
[[nodiscard]] inline result<std::optional<active_evict::config>> make_pre_eviction(
    std::string_view text) {
  using made = std::optional<active_evict::config>;
  if (text == "none") return made();
  const auto spec = parse_policy(text);
  if (!spec) return spec.error();
  const std::array known{std::string("none"), std::string(active_evict::name)};
  if (spec->name != known.back()) return unknown_name("pre-eviction", spec->name, known);
  parameters read(*spec);
  auto config = active_evict::config::read(read);
  if (auto bad = read.finish()) return *std::move(bad);
  if (auto bad = config.validate()) return *std::move(bad);
  return made(config);
}

/// Refuses a routing policy that needs slots freed ahead if none are. `option`: the setting that frees them.
[[nodiscard]] inline validation check_routing(std::string_view text, const routing_traits& traits,
                                              bool frees_slots, std::string_view option) {
  if (frees_slots || !traits.needs_free_slots) return std::nullopt;
  return refusal("routing policy ", text, " does nothing without slots that were freed ahead, ",
                 "accepted: with ", option, " active_evict, or another routing policy");
}

}  // namespace hotset
