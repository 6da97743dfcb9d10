// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fine-tuned experts over one base model: one adapter merged into it, or many served at once.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/adapters/expert_redirect.hpp"
#include "tiny_moe/expert_provider.hpp"
#include "tiny_moe/kv_pool.hpp"
#include "tiny_moe/model.hpp"

namespace tiny_moe {

/// The experts of each layer that are trained; all else stays as it is. Shape: [layers], ascending.
using tuned_experts = std::vector<std::vector<std::int32_t>>;

/// An adapter in host memory.
class adapter_weights {
 public:
  /// Shape: `halves` is gate, up and down of each tuned expert, layer by layer.
  /// Errors: hotset::invalid_config for another number of layers, an expert that is none or out of order, another size.
  adapter_weights(const model_config& shape, std::string name, tuned_experts tuned,
                  std::vector<std::uint16_t> halves);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const tuned_experts& tuned() const noexcept { return tuned_; }
  /// The place-th tuned expert of a layer. Pre: there is one.
  [[nodiscard]] expert_tensors expert(std::size_t layer, std::size_t place) const noexcept;

 private:
  std::string name_;
  tuned_experts tuned_;
  std::size_t tensor_halves_;
  std::vector<std::size_t> first_;  ///< [layers], tuned experts of the layers before
  std::vector<std::uint16_t> halves_;
};

/// The model with the adapter's experts in place of its own: what every request of that adapter must get.
class merged_experts final : public expert_provider {
 public:
  /// Pre: both outlive the provider.
  merged_experts(const model& weights, const adapter_weights& adapter);
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  std::size_t experts_;
  std::vector<expert_tensors> all_;  ///< [layers, experts]
};

/// Full residency of the base model and of adapters, of which each row of a pass has its own: ids are rerouted to the
/// places of a virtual weight tensor, and the pass is one visit of them all.
class resident_adapters final : public expert_provider {
 public:
  /// The i-th adapter is that of sequences with id i + 1. Pre: all outlive the provider; the engine has room for
  /// virtual_experts().
  resident_adapters(const model& weights, std::span<const adapter_weights* const> adapters);
  [[nodiscard]] std::size_t virtual_experts() const noexcept;
  /// Errors: provider_error for a row of an adapter that is none of these.
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  std::size_t experts_;
  std::vector<hotset::expert_redirect> redirects_;  ///< [layers]
  std::vector<expert_tensors> all_;                 ///< [layers, virtual experts]
  std::vector<std::int32_t> adapter_of_row_;
};

}  // namespace tiny_moe
