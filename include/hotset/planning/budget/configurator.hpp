// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Splits one budget between experts and KV cache, in the units of an engine's two settings.
///
/// Rule: for every cap C that both floors allow, KV takes the remaining N = floor((M - C m_E) / m_KV) blocks. The
///   split with the least T = a_E misses_E(C) + a_KV misses_KV(N) is chosen. Ties: the smallest cap, because KV can
///   use its bytes.
/// Source: WiSP eq. 1, 4, 6, 7.
/// Deviations: all caps are tried, so curves need not be convex. The result is the best split, not only a point of
///   equal marginal values.
/// Cost: O(caps).

#include <cstdint>
#include <optional>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/planning/budget/split_limits.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Constraint that prevents a larger cap.
enum class binding : std::uint8_t {
  floor,   ///< the blocks that admission needs
  budget,  ///< KV blocks are worth more; or there are none, and all bytes are used
  full,    ///< no constraint: every expert is resident
};
/// "floor", "budget", "full".
[[nodiscard]] constexpr std::string_view name_of(binding b) noexcept {
  switch (b) {
    case binding::floor: return "floor";
    case binding::budget: return "budget";
    case binding::full: return "full";
  }
  return "unknown";
}

/// One split of the budget.
struct expert_kv_split {
  std::uint64_t cap = 0;     ///< resident experts per layer, C
  std::uint64_t blocks = 0;  ///< KV blocks, N
  double seconds = 0;        ///< seconds per step, T
  double expert_misses = 0;  ///< misses per step, all layers
  double kv_misses = 0;      ///< misses per step
  binding binds = binding::budget;
};

/// Threads: const use is safe. The curves must outlive it.
struct configurator : split_limits {
  miss_curve_ref experts{};  ///< misses per step over all layers, by cap
  miss_curve_ref kv{};       ///< misses per step, by blocks; empty: KV needs only its floor
  double seconds_per_expert_miss = 0;
  double seconds_per_kv_miss = 0;

  /// Returns the first invalid value; see split_limits::validate.
  [[nodiscard]] validation validate() const {
    if (auto bad = split_limits::validate()) return bad;
    if (!(seconds_per_expert_miss >= 0) || !(seconds_per_kv_miss >= 0))
      return error{"seconds of a miss below 0, accepted: 0 or more"};
    return std::nullopt;
  }

  /// Returns the split of one cap. Pre: min_cap <= cap <= largest_cap().
  [[nodiscard]] expert_kv_split at(std::uint64_t cap) const noexcept {
    expert_kv_split out;
    out.cap = cap;
    out.blocks = blocks_beside(cap);
    out.expert_misses = experts.misses(static_cast<std::size_t>(cap));
    out.kv_misses = kv.misses(static_cast<std::size_t>(out.blocks));
    out.seconds = seconds_per_expert_miss * out.expert_misses + seconds_per_kv_miss * out.kv_misses;
    if (cap == max_cap)
      out.binds = binding::full;
    else if (cap == largest_cap() && block_bytes != 0)
      out.binds = binding::floor;
    return out;
  }
  /// Returns the best split. Pre: validate() returns no error.
  [[nodiscard]] expert_kv_split best() const noexcept {
    auto found = at(min_cap);
    for (auto cap = min_cap + 1; cap <= largest_cap(); ++cap)
      if (const auto other = at(cap); other.seconds < found.seconds) found = other;
    return found;
  }
};

}  // namespace hotset
