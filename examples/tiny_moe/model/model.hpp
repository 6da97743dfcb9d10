// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights and shape of the decoder, read from a folder in the Hugging Face format.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "lab/files/safetensors.hpp"
#include "tiny_moe/model/kernels.hpp"

namespace tiny_moe {

/// A tensor of a safetensors file that must have this dtype and shape.
/// Returns: its bytes, possibly unaligned. Errors: hotset::trace_error.
[[nodiscard]] std::span<const std::byte> tensor_bytes(const hotset::lab::safetensors_file& file,
                                                      std::string_view name, std::string_view dtype,
                                                      std::initializer_list<std::uint64_t> shape);

/// The shape, as in config.json.
struct model_config {
  std::size_t layers = 0;
  std::size_t hidden_size = 0;
  std::size_t heads = 0;
  std::size_t head_size = 0;
  std::size_t experts = 0;
  std::size_t top_k = 0;
  std::size_t inner_size = 0;  ///< per expert
  std::size_t max_positions = 0;
  float norm_epsilon = 0.0F;
  float rope_theta = 0.0F;

  static constexpr std::size_t vocabulary = 256;  ///< tokens are bytes

  /// Bytes of one expert, all three tensors.
  [[nodiscard]] std::size_t expert_bytes() const noexcept {
    return 3 * hidden_size * inner_size * sizeof(std::uint16_t);
  }

  /// Errors: hotset::trace_error if the file is unreadable, not JSON, or needs features that this decoder lacks.
  [[nodiscard]] static model_config from_file(const std::filesystem::path& path);
};

/// Dense weights of one layer, in float. Projections are transposed: [inputs, outputs].
struct layer_weights {
  std::vector<float> attention_norm;
  std::vector<float> query;
  std::vector<float> key;
  std::vector<float> value;
  std::vector<float> output;
  std::vector<float> expert_norm;
  std::vector<float> router;
};

/// A loaded model: dense weights converted to float, experts left in the mapped file.
class model {
 public:
  /// Reads `folder`/config.json and `folder`/model.safetensors.
  /// Errors: hotset::trace_error, one line: file, place, the found and the accepted value.
  explicit model(const std::filesystem::path& folder);
  model(model&&) noexcept = default;
  model(const model&) = delete;
  model& operator=(model&&) = delete;
  model& operator=(const model&) = delete;
  ~model() = default;

  [[nodiscard]] const model_config& config() const noexcept { return config_; }
  [[nodiscard]] const layer_weights& layer(std::size_t layer) const noexcept {
    return layers_[layer];
  }
  /// Shape: [256, hidden_size].
  [[nodiscard]] std::span<const float> embedding() const noexcept { return embedding_; }
  /// Shape: [hidden_size, 256], the tied output projection.
  [[nodiscard]] std::span<const float> unembedding() const noexcept { return unembedding_; }
  [[nodiscard]] std::span<const float> final_norm() const noexcept { return final_norm_; }

  /// Pre: layer < layers, expert < experts.
  [[nodiscard]] const expert_tensors& expert(std::size_t layer, std::size_t expert) const noexcept {
    return experts_[layer * config_.experts + expert];
  }
  /// Bytes of gate, up and down, as in the file. Pre: layer < layers, expert < experts.
  [[nodiscard]] std::array<std::span<const std::byte>, 3> expert_bytes(
      std::size_t layer, std::size_t expert) const noexcept;

 private:
  [[nodiscard]] std::vector<float> dense(std::string_view name,
                                         std::initializer_list<std::uint64_t> shape) const;
  [[nodiscard]] const std::uint16_t* halves(std::string_view name,
                                            std::initializer_list<std::uint64_t> shape);

  model_config config_;
  hotset::lab::safetensors_file file_;
  std::vector<layer_weights> layers_;
  std::vector<float> embedding_;
  std::vector<float> unembedding_;
  std::vector<float> final_norm_;
  std::vector<expert_tensors> experts_;
  std::deque<std::vector<std::uint16_t>>
      realigned_;  // copies of tensors at odd addresses in the file
};

}  // namespace tiny_moe
