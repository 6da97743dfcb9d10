// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Expert-specialised fine-tuning: the decoder's loss on a text, its gradient for chosen experts, and steps against it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// The three matrices of an expert, as in the model's file: gate and up [inner, hidden], down [hidden, inner].
template <class Scalar>
struct expert_matrices {
  std::vector<Scalar> gate;
  std::vector<Scalar> up;
  std::vector<Scalar> down;
};

/// Plain gradient descent with momentum. The gradient is that of the whole decoder but for the choice of experts, which is
/// taken as given: their shares have a gradient, as in training.
/// Scalar: float; double for checking the gradient. The same text, model and machine give the same bits.
template <class Scalar>
class fine_tuner {
 public:
  struct rates {
    double step = 0.5;
    double momentum = 0.9;
    double most = 1.0;  ///< norm of the gradient, above which it is scaled down to it
  };

  /// Takes copies: `weights` need not outlive the tuner. `tuned` is sorted.
  /// Errors: hotset::invalid_config for another number of layers, an expert that is none, one that is named twice, or no
  /// expert at all.
  fine_tuner(const model& weights, tuned_experts tuned);
  fine_tuner(fine_tuner&&) noexcept;
  fine_tuner& operator=(fine_tuner&&) = delete;
  ~fine_tuner();

  [[nodiscard]] const tuned_experts& tuned() const noexcept;
  /// Pre: the expert is tuned.
  [[nodiscard]] expert_matrices<Scalar>& expert(std::size_t layer, hotset::expert_id expert);
  [[nodiscard]] const expert_matrices<Scalar>& gradient(std::size_t layer,
                                                        hotset::expert_id expert) const;

  /// The mean over the bytes after the first, in bits. Pre: 2 <= text.size() <= max_positions.
  [[nodiscard]] double loss(std::span<const std::uint8_t> text);
  /// The same, and the gradient of it for every tuned expert, in place of the one before. Pre: as above.
  double differentiate(std::span<const std::uint8_t> text);
  /// Moves the tuned experts against the gradient. Returns its norm.
  double step(const rates& how);

 private:
  class decoder;
  std::unique_ptr<decoder> decoder_;
};

extern template class fine_tuner<float>;
extern template class fine_tuner<double>;

/// What was tuned, at 16 bits. Errors: hotset::invalid_config for a weight that is too large for them.
[[nodiscard]] adapter_weights rounded(fine_tuner<float>& tuner, const model_config& shape,
                                      std::string name);

/// How much each expert is used on a text: what ESFT selects by. Shape of each: [layers, experts].
struct expert_scores {
  std::vector<double> token;  ///< share of the selections
  std::vector<double> gate;   ///< mean probability where it is selected, over all tokens
};

/// Windows of `window` bytes, each a sequence. Pre: 1 <= window <= max_positions, the text is not empty.
[[nodiscard]] expert_scores score_experts(const model& weights, std::span<const std::uint8_t> text,
                                          std::size_t window);

}  // namespace tiny_moe
