// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the vote of a past token counts, by how similar it is to the running one.
///
/// Rule: w = exp(sharpness * (similarity - middle)), similarity 0..1 in steps of 1/2048.
/// Promise: looked up by the upper bits of a similarity, so that all processors have the same.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Memory: 16 KiB. Threads: const use is safe.
class similarity_weights {
 public:
  struct config {
    double sharpness = 10;
    double middle = 0.7;  ///< the similarity of weight 1

    [[nodiscard]] validation validate() const {
      return detail::first_of({detail::refuse_unless(sharpness >= 0 && sharpness <= 80,
                                                     "similar rows sharpness", sharpness, "0..80"),
                               detail::refuse_unless(middle >= 0 && middle <= 1,
                                                     "similar rows middle", middle, "0..1")});
    }
  };

  /// Pre: validate() has no reason to refuse.
  explicit similarity_weights(const config& options)
      : weights_((2 * history_kernels::alike) >> shift) {
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = static_cast<float>(
          std::exp(options.sharpness * ((static_cast<double>(i) + 0.5) / one - options.middle)));
  }
  /// Of a similarity of routing_history.
  [[nodiscard]] float operator[](std::uint16_t similarity) const noexcept {
    return weights_[similarity >> shift];
  }

 private:
  static constexpr unsigned shift = 4;
  static constexpr double one = static_cast<double>(history_kernels::alike >> shift);

  std::vector<float> weights_;
};

}  // namespace hotset
