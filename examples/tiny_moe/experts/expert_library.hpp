// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Every expert of a model at several precisions, as a source for a cache.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Parses a ladder of precisions such as "16:8:4", highest first.
/// Errors: hotset::lab::usage_error.
[[nodiscard]] std::vector<int> parse_precisions(std::string_view text);

/// Precision p of an expert is its three tensors at the p-th bits of the ladder. All copies are made at construction;
/// below 16 bits they have the format of quantised.hpp. Threads: const use is safe.
class expert_library {
 public:
  /// Copies the weights: `weights` need not outlive the library.
  /// Errors: hotset::lab::usage_error for the ladder; hotset::trace_error if a weight to quantise is not finite.
  expert_library(const model& weights, std::string_view ladder);
  expert_library(expert_library&&) noexcept = default;
  expert_library(const expert_library&) = delete;
  expert_library& operator=(expert_library&&) noexcept = default;
  expert_library& operator=(const expert_library&) = delete;
  ~expert_library() = default;

  /// Bits of a weight at each precision.
  [[nodiscard]] std::span<const int> bits() const noexcept { return bits_; }

  /// gate, up and down; empty for a key or a precision that does not exist.
  [[nodiscard]] std::span<const hotset::tensor_bytes> tensors(
      hotset::expert_key key, hotset::precision_id precision) const noexcept;
  /// The tensors of an expert for computing. Pre: key and precision exist.
  [[nodiscard]] expert_tensors expert(hotset::expert_key key,
                                      hotset::precision_id precision) const noexcept;

  /// Layout of an expert at each precision.
  [[nodiscard]] std::vector<hotset::expert_layout> layouts() const;
  /// The model's geometry. max_tokens: of one visit; 0: the model's max_positions.
  [[nodiscard]] hotset::geometry shape(std::size_t max_tokens = 0) const;

 private:
  [[nodiscard]] std::size_t rows(std::size_t tensor) const noexcept {
    return tensor == 2 ? config_.hidden_size : config_.inner_size;
  }
  [[nodiscard]] std::size_t columns(std::size_t tensor) const noexcept {
    return tensor == 2 ? config_.inner_size : config_.hidden_size;
  }

  model_config config_;
  std::vector<int> bits_;
  std::vector<std::byte> bytes_;
  std::vector<hotset::tensor_bytes> tensors_;  ///< [precisions, layers, experts, 3], into bytes_
};

static_assert(hotset::expert_source<expert_library>);

/// Full residency at one precision.
class resident_copies final : public expert_provider {
 public:
  /// Pre: `library` outlives the provider and has the precision.
  resident_copies(const expert_library& library, hotset::precision_id precision) noexcept
      : library_(&library), precision_(precision) {}
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  const expert_library* library_;
  hotset::precision_id precision_;
};

}  // namespace tiny_moe
