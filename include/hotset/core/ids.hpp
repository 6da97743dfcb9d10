// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The identifiers that every part shares; all are dense and start at zero.

#include <compare>
#include <cstdint>

namespace hotset::inline v0 {

/// Index of a MoE layer in execution order (dense layers are not counted).
using layer_id = std::int32_t;
/// Router's index of an expert within its layer. Negative: no expert.
using expert_id = std::int32_t;
/// Global index of a slot. -1: no slot, which is also what a map row holds for an absent expert.
using slot_id = std::int32_t;
/// Number of a forward pass; grows by one each step.
using step_id = std::uint64_t;
/// Index of a pool of slots (one for all layers, or one per layer, or one per size class).
using pool_id = std::int32_t;
/// Index of a class of experts with equal tensor layout.
using size_class_id = std::int32_t;
/// Stored precision of an expert; 0 is the highest.
using precision_id = std::uint8_t;

/// One request's tokens, from its prompt to its end.
using sequence_id = std::uint32_t;

/// Of an absent expert.
inline constexpr slot_id no_slot = -1;
/// Of a place without an expert.
inline constexpr expert_id no_expert = -1;
/// Where a step is before its first layer.
inline constexpr layer_id before_layers = -1;

/// One expert of one layer.
struct expert_key {
  layer_id layer = -1;
  expert_id expert = no_expert;
  friend constexpr auto operator<=>(const expert_key&, const expert_key&) = default;
};

/// Of a slot that holds nothing.
inline constexpr expert_key no_key{};

/// A step as a mark of which 0 says never. The last step of all has the mark of the one before it.
[[nodiscard]] constexpr step_id mark_of(step_id step) noexcept {
  return step == ~step_id{0} ? step : step + 1;
}

/// What kind of work a visit serves.
enum class request_class : std::uint8_t {
  decode = 0,   ///< one new token per sequence
  prefill = 1,  ///< the tokens of a prompt
  verify = 2,   ///< drafted tokens of speculative decoding
};

}  // namespace hotset::inline v0
