// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts of a model and of adapters over it as one row of virtual experts per layer: the model's, then each
/// adapter's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Threads: const use is safe.
class adapter_experts {
 public:
  /// The i-th adapter belongs to sequences with id i + 1. Pre: all outlive this.
  adapter_experts(const model& weights, std::span<const adapter_weights* const> adapters);

  /// Virtual experts of a layer, including unused places.
  [[nodiscard]] std::size_t virtual_experts() const noexcept;
  /// Replaces the ids of a visit by those of its rows' adapters. `adapter_of_row` is overwritten.
  /// Errors: provider_error for a row with an unknown adapter; its ids are then -1.
  void reroute(const visit_inputs& visit, std::vector<std::int32_t>& adapter_of_row) const;

  /// gate, up and down; empty for a key that does not exist or an unused place.
  [[nodiscard]] std::span<const hotset::tensor_bytes> tensors(
      hotset::expert_key key) const noexcept;
  /// The tensors of an expert for computing; null for an unused place. Pre: layer and expert in range.
  [[nodiscard]] expert_tensors expert(std::size_t layer, std::size_t expert) const noexcept;

 private:
  hotset::per_layer<hotset::expert_redirect> redirects_;
  std::vector<std::array<hotset::tensor_bytes, 3>> tensors_{};  ///< [layers, virtual experts]
};

/// Full residency of the base model and of adapters. Each row of a pass has its own adapter; the pass is one visit of
/// all rows.
class resident_adapters final : public expert_provider {
 public:
  /// Pre: those of adapter_experts; the engine has room for virtual_experts().
  resident_adapters(const model& weights, std::span<const adapter_weights* const> adapters)
      : experts_(weights, adapters) {}
  [[nodiscard]] std::size_t virtual_experts() const noexcept { return experts_.virtual_experts(); }
  /// Errors: provider_error for a row with an unknown adapter.
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  adapter_experts experts_;
  std::vector<std::int32_t> adapter_of_row_;
};

}  // namespace tiny_moe
