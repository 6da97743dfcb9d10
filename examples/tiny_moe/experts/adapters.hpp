// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fine-tuned experts of one adapter, and the model with them merged into it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/ids.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Trained experts of each layer; all other weights are unchanged. Shape: [layers], ascending.
using tuned_experts = std::vector<std::vector<hotset::expert_id>>;

/// An adapter in host memory.
class adapter_weights {
 public:
  /// Shape: `halves` is gate, up and down of each tuned expert, layer by layer.
  /// Errors: hotset::invalid_config for another number of layers, an expert that is invalid or out of order, another
  /// size.
  adapter_weights(const model_config& shape, std::string name, tuned_experts tuned,
                  std::vector<std::uint16_t> halves);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const tuned_experts& tuned() const noexcept { return tuned_; }
  /// The place-th tuned expert of a layer. Pre: it exists.
  [[nodiscard]] expert_tensors expert(std::size_t layer, std::size_t place) const noexcept;
  /// Bytes of gate, up and down. Pre: the place-th tuned expert exists.
  [[nodiscard]] std::array<std::span<const std::byte>, 3> expert_bytes(
      std::size_t layer, std::size_t place) const noexcept;

 private:
  /// First weight of a tuned expert.
  [[nodiscard]] const std::uint16_t* first_half(std::size_t layer,
                                                std::size_t place) const noexcept {
    return halves_.data() + (first_[layer] + place) * 3 * tensor_halves_;
  }

  std::string name_;
  tuned_experts tuned_;
  std::size_t tensor_halves_;
  std::vector<std::size_t> first_;  ///< [layers], tuned experts of the earlier layers
  std::vector<std::uint16_t> halves_;
};

/// The model with the adapter's experts in place of its own: the reference for every request of that adapter.
class merged_experts final : public expert_provider {
 public:
  /// Pre: both outlive the provider.
  merged_experts(const model& weights, const adapter_weights& adapter);
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  std::size_t experts_;
  std::vector<expert_tensors> all_;  ///< [layers, experts]
};

}  // namespace tiny_moe
