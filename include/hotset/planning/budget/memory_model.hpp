// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory of a model: its experts, what is always on the device, and what a sequence adds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/numbers/saturating.hpp"

namespace hotset {

/// Layers with equal caches of keys and values.
struct kv_layers {
  std::int32_t layers = 0;
  std::uint64_t bytes_per_token = 0;  ///< in one of these layers
  std::uint64_t window = 0;           ///< newest tokens, the only ones kept; 0: all are kept

  friend bool operator==(const kv_layers&, const kv_layers&) = default;
};

/// One decoder layer, MoE or not. Engines number all of them, and split a model between them.
struct model_block {
  bool is_moe = true;
  std::uint64_t resident_bytes = 0;      ///< its weights except the routed experts'
  std::uint64_t kv_bytes_per_token = 0;  ///< 0: keeps nothing per token
  std::uint64_t window = 0;              ///< see kv_layers::window
  std::uint64_t state_bytes = 0;         ///< of one sequence of any length

  friend bool operator==(const model_block&, const model_block&) = default;
};

/// Plain data. Units: bytes, and tokens of one sequence, without padding or reserve of an engine.
/// Results saturate at 2^64 - 1. For a model that validate() accepts, only absurd contexts reach that.
/// Complexity: O(MoE layers) or O(kv), integers only.
struct memory_model {
  std::string name{};
  geometry experts{};  ///< the MoE layers only
  /// Always on the device: all weights except the routed experts'.
  std::uint64_t resident_bytes = 0;
  std::vector<kv_layers> kv{};                 ///< empty: nothing is kept between steps
  std::uint64_t state_bytes_per_sequence = 0;  ///< recurrent state, for any length
  std::uint64_t max_context = 0;               ///< tokens; 0: unknown
  bool is_causal = true;                       ///< false: every token sees every other
  /// All layers in order. Empty: unknown, and layer l of `experts` counts as block l.
  std::vector<model_block> blocks{};

  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 60U;

  [[nodiscard]] bool has_kv() const noexcept { return !kv.empty(); }

  /// Bytes of one resident expert in every MoE layer: the cost of one more slot per layer.
  [[nodiscard]] std::uint64_t expert_slot_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto l : each<layer_id>(experts.layers))
      bytes = detail::saturating_sum(bytes, experts.bytes_of(l));
    return bytes;
  }
  /// Bytes of all routed experts of all layers.
  [[nodiscard]] std::uint64_t all_expert_bytes() const noexcept {
    return detail::saturating_product(expert_slot_bytes(),
                                      static_cast<std::uint64_t>(experts.experts));
  }
  /// Bytes that each further token of a long sequence adds: the layers without a window.
  [[nodiscard]] std::uint64_t kv_bytes_per_token() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& group : kv)
      if (group.window == 0) bytes = detail::saturating_sum(bytes, bytes_of(group, 1));
    return bytes;
  }
  /// Bytes of keys, values and recurrent state of one sequence with this many tokens.
  [[nodiscard]] std::uint64_t kv_bytes(std::uint64_t tokens) const noexcept {
    std::uint64_t bytes = state_bytes_per_sequence;
    for (const auto& group : kv) {
      const auto kept = group.window == 0 ? tokens : std::min(tokens, group.window);
      bytes = detail::saturating_sum(bytes, bytes_of(group, kept));
    }
    return bytes;
  }

  [[nodiscard]] validation validate() const {
    if (auto bad = experts.validate()) return bad;
    if (experts.expert_bytes.empty())
      return refusal("expert_bytes is empty, accepted: 1 or one per layer (", experts.layers, ")");
    for (std::size_t i = 0; i < kv.size(); ++i)
      if (auto bad = validate_group(i)) return bad;
    if (auto bad = validate_total("all_expert_bytes", all_expert_bytes())) return bad;
    if (auto bad = validate_total("resident_bytes", resident_bytes)) return bad;
    if (auto bad = validate_total("state_bytes_per_sequence", state_bytes_per_sequence)) return bad;
    if (auto bad = validate_total("kv_bytes of one token", kv_bytes(1))) return bad;
    return validate_blocks();
  }

 private:
  [[nodiscard]] static std::uint64_t bytes_of(const kv_layers& group,
                                              std::uint64_t tokens) noexcept {
    const auto all =
        detail::saturating_product(static_cast<std::uint64_t>(group.layers), group.bytes_per_token);
    return detail::saturating_product(all, tokens);
  }
  [[nodiscard]] validation validate_group(std::size_t i) const {
    if (kv[i].layers < 1)
      return refusal("kv[", i, "].layers = ", kv[i].layers, ", accepted: 1 or more");
    if (kv[i].bytes_per_token == 0)
      return refusal("kv[", i, "].bytes_per_token = 0, accepted: 1 or more");
    return std::nullopt;
  }
  [[nodiscard]] validation validate_blocks() const {
    if (blocks.empty()) return std::nullopt;
    std::uint64_t resident = 0;
    for (const auto& block : blocks)
      resident = detail::saturating_sum(resident, block.resident_bytes);
    if (resident > resident_bytes)
      return refusal("resident_bytes of all blocks = ", resident, ", accepted: at most ",
                     resident_bytes, ", those of the model");
    if (const auto moe = std::ranges::count_if(blocks, &model_block::is_moe); moe != experts.layers)
      return refusal(moe, " blocks with experts, accepted: ", experts.layers,
                     ", one for each layer of experts");
    return std::nullopt;
  }
  [[nodiscard]] static validation validate_total(const std::string& what, std::uint64_t bytes) {
    if (bytes <= max_bytes) return std::nullopt;
    return refusal(what, " = ", bytes, ", accepted: at most ", max_bytes);
  }
};

}  // namespace hotset
