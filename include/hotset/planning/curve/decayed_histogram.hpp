// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reuse distances of the recent past, with older bursts weighted less: a live estimate of a miss curve.
///
/// Rule: at the end of each burst h[d] <- decay * h[d] + new counts. First uses are left out: they miss at every
///   capacity and would draw memory to the pool that was observed less. The tail sum is the predicted curve.
/// Source: WiSP Appendix B.
/// Deviations: misses are divided by the weight of the counted bursts, 1 + decay + decay^2 + ..., so that they are
///   misses per burst from the first burst on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Threads: compatible. Memory: 16 bytes per slot, allocated once.
class decayed_histogram {
 public:
  struct config {
    std::size_t slots = 0;  ///< largest distance that is counted by itself
    double decay = 0.5;     ///< factor on a burst's counts when the next burst ends

    [[nodiscard]] validation validate() const {
      if (slots < 1) return refusal("decayed_histogram slots = ", slots, ", accepted: 1 or more");
      if (!(decay >= 0 && decay < 1))
        return refusal("decayed_histogram decay = ", decay, ", accepted: 0 or more, less than 1");
      return std::nullopt;
    }
  };

  decayed_histogram() = default;
  static result<decayed_histogram> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    decayed_histogram out;
    out.decay_ = options.decay;
    out.fresh_.assign(options.slots, 0);
    out.tail_.assign(options.slots + 1, 0.0);
    return out;
  }

  /// Ignores distance 0, a first use. Distances beyond `slots` miss at every capacity.
  void add(std::uint32_t distance) noexcept {
    if (distance == 0) return;
    ++(distance <= fresh_.size() ? fresh_[distance - 1] : beyond_);
  }
  /// Complexity: O(slots).
  void end_burst() noexcept {
    weight_ = decay_ * weight_ + 1;
    // tail_[d] is the sum over distances above d, so one pass applies the decay and adds the tail of the new counts.
    auto fresh = static_cast<double>(beyond_);
    for (std::size_t d = tail_.size(); d-- > 0;) {
      if (d < fresh_.size()) fresh += static_cast<double>(fresh_[d]);
      tail_[d] = decay_ * tail_[d] + fresh;
    }
    std::fill(fresh_.begin(), fresh_.end(), 0U);
    beyond_ = 0;
  }

  [[nodiscard]] std::size_t max_slots() const noexcept { return fresh_.size(); }
  /// Warm misses per burst with `slots` slots. Complexity: O(1).
  [[nodiscard]] double misses(std::size_t slots) const noexcept {
    return weight_ == 0 ? 0 : tail_[std::min(slots, max_slots())] / weight_;
  }

 private:
  double decay_ = 0.5;
  std::vector<std::uint64_t> fresh_;  ///< [distance - 1] counts of the current burst
  std::uint64_t beyond_ = 0;
  std::vector<double> tail_{0.0};  ///< [slots] decayed counts of all greater distances
  double weight_ = 0;
};

static_assert(miss_curve<decayed_histogram>);

}  // namespace hotset
