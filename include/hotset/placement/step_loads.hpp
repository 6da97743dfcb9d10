// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many tokens each expert of a layer got in each of some steps.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Counts [steps][experts] of a layer.
class step_loads {
 public:
  explicit step_loads(std::int32_t experts) : experts_(static_cast<std::size_t>(experts)) {}
  /// Errors: no expert, counts that are not whole steps.
  static result<step_loads> of(std::int32_t experts, std::vector<std::uint32_t> counts) {
    if (experts < 1) return refusal("experts = ", experts, ", accepted: 1 or more");
    if (counts.size() % static_cast<std::size_t>(experts) != 0)
      return refusal(counts.size(), " loads, accepted: a multiple of the ", experts, " experts");
    step_loads out(experts);
    out.counts_ = std::move(counts);
    return out;
  }

  /// Adds a step without tokens.
  void add_step() { counts_.resize(counts_.size() + experts_, 0); }
  /// Adds a token of the last step. Pre: there is a step.
  void add(expert_id e) noexcept { ++counts_[counts_.size() - experts_ + index_of(e)]; }

  [[nodiscard]] std::int32_t experts() const noexcept {
    return static_cast<std::int32_t>(experts_);
  }
  [[nodiscard]] std::size_t steps() const noexcept { return counts_.size() / experts_; }
  /// Shape: [experts].
  [[nodiscard]] std::span<const std::uint32_t> step(std::size_t s) const noexcept {
    return std::span(counts_).subspan(s * experts_, experts_);
  }
  /// Tokens of each expert in all steps.
  [[nodiscard]] std::vector<std::uint64_t> sums() const {
    std::vector<std::uint64_t> out(experts_, 0);
    for (std::size_t i = 0; i < counts_.size(); ++i) out[i % experts_] += counts_[i];
    return out;
  }

 private:
  std::size_t experts_;
  std::vector<std::uint32_t> counts_;
};

}  // namespace hotset
