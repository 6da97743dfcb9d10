// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much room the experts get, as a user writes it: "25%", "1500KiB" or "96" slots.

#include <cstdint>
#include <string>
#include <string_view>

#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"

namespace tiny_moe {

/// A share of the experts, a number of bytes for all layers together, or a number of slots.
struct expert_budget {
  enum class unit : std::uint8_t { percent, bytes, slots };
  unit kind = unit::percent;
  double percent = 100.0;
  std::uint64_t amount = 0;  ///< bytes, or slots
  std::string text = "100%";
};

/// Reads "25%", "1500KiB" or "96". Errors: hotset::sim::usage_error that shows what is accepted.
[[nodiscard]] expert_budget parse_expert_budget(std::string_view text);

/// Reads "shared" or "per-layer". Errors: hotset::sim::usage_error.
[[nodiscard]] hotset::cache_scope parse_scope(std::string_view text);
[[nodiscard]] std::string_view name_of(hotset::cache_scope scope) noexcept;

/// The slots that a budget buys: in all (shared), or in every layer (per-layer, where a percentage
/// is of the layer's experts and bytes are divided by the layers). A percentage is rounded half up.
/// Errors: hotset::sim::infeasible_error below top_k, with the smallest workable budget;
/// hotset::sim::usage_error for more slots than there are experts.
[[nodiscard]] std::int64_t slots_of(const expert_budget& budget, const hotset::geometry& shape,
                                    hotset::cache_scope scope);

}  // namespace tiny_moe
