// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reuse distances of the recent past, with older bursts weighted less: a live estimate of a miss curve.
///
/// Rule: at the end of each burst h[d] <- decay * h[d] + new counts. First uses are left out: they miss at every
///   capacity and would draw memory to the pool that was observed less. The tail sum is the predicted curve.
/// Source: WiSP Appendix B.
/// Deviations: distances may share bins of equal width. Misses are divided by the weight of the counted bursts, 1 +
///   decay + decay^2 + ..., so that they are misses per burst from the first burst on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Threads: compatible. Memory: 16 bytes per bin, allocated once.
class decayed_histogram {
 public:
  struct config {
    std::size_t slots = 0;  ///< largest distance with a bin
    std::size_t width = 1;  ///< distances per bin
    double decay = 0.5;     ///< factor on a burst's counts when the next burst ends

    [[nodiscard]] validation validate() const {
      if (slots < 1) return refusal("decayed_histogram slots = ", slots, ", accepted: 1 or more");
      if (width < 1) return refusal("decayed_histogram width = ", width, ", accepted: 1 or more");
      if (!(decay >= 0 && decay < 1))
        return refusal("decayed_histogram decay = ", decay, ", accepted: 0 or more, less than 1");
      return std::nullopt;
    }
  };

  decayed_histogram() = default;
  static result<decayed_histogram> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    decayed_histogram out;
    out.options_ = options;
    const auto bins = 1 + (options.slots - 1) / options.width;
    out.fresh_.assign(bins, 0);
    out.tail_.assign(bins + 1, 0.0);
    return out;
  }

  /// Ignores distance 0, a first use. Distances beyond `slots` miss at every capacity.
  void add(std::uint32_t distance) noexcept {
    if (distance == 0) return;
    const auto bin = (distance - 1) / options_.width;
    ++(bin < fresh_.size() ? fresh_[bin] : beyond_);
  }
  /// Complexity: O(bins).
  void end_burst() noexcept {
    weight_ = options_.decay * weight_ + 1;
    // tail_[b] is the sum over bins b and up, so one pass applies the decay and adds the tail of the new counts.
    auto fresh = static_cast<double>(beyond_);
    for (std::size_t b = tail_.size(); b-- > 0;) {
      if (b < fresh_.size()) fresh += static_cast<double>(fresh_[b]);
      tail_[b] = options_.decay * tail_[b] + fresh;
    }
    std::fill(fresh_.begin(), fresh_.end(), 0U);
    beyond_ = 0;
  }

  /// End of the last bin: `slots`, or up to one width more.
  [[nodiscard]] std::size_t max_slots() const noexcept {
    return (tail_.size() - 1) * options_.width;
  }
  /// Warm misses per burst with `slots` slots, linear within a bin. Complexity: O(1).
  [[nodiscard]] double misses(std::size_t slots) const noexcept {
    if (weight_ == 0) return 0;
    const auto low = slots / options_.width;
    if (low >= tail_.size() - 1) return tail_.back() / weight_;
    const auto share =
        static_cast<double>(slots % options_.width) / static_cast<double>(options_.width);
    return (tail_[low] + share * (tail_[low + 1] - tail_[low])) / weight_;
  }

 private:
  config options_{};
  std::vector<std::uint64_t> fresh_;  ///< [bin] counts of the current burst
  std::uint64_t beyond_ = 0;
  std::vector<double> tail_{0.0};  ///< [bin] decayed counts of this bin and all later ones
  double weight_ = 0;
};

static_assert(miss_curve<decayed_histogram>);

}  // namespace hotset
