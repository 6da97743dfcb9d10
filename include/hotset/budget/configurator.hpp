// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The split of one budget between experts and KV cache, in the units of an engine's two settings.
///
/// Rule: for every cap C that both floors allow, KV takes the N = floor((M - C m_E) / m_KV) blocks that are left; the split
/// of the least T = a_E misses_E(C) + a_KV misses_KV(N) is chosen. Ties: the smallest cap, whose bytes KV can use.
/// Source: wisp eq. 1, 4, 6, 7.
/// Deviations: all caps are tried, so curves need not be convex and the split is the best one, not only a point where
/// marginal values meet.
/// Cost: O(caps).

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/curve/miss_curve_ref.hpp"

namespace hotset::inline v0 {

/// What stands against a larger cap.
enum class binding : std::uint8_t {
  floor,   ///< the blocks that admission needs
  budget,  ///< neither floor nor fullness: KV blocks are worth more, or there are none and all bytes are used
  full,    ///< nothing: every expert is resident
};
[[nodiscard]] constexpr std::string_view name_of(binding b) noexcept {
  switch (b) {
    case binding::floor: return "floor";
    case binding::budget: return "budget";
    case binding::full: return "full";
  }
  return "unknown";
}

/// One division.
struct expert_kv_split {
  std::uint64_t cap = 0;     ///< resident experts of every layer, C
  std::uint64_t blocks = 0;  ///< KV blocks, N
  double seconds = 0;        ///< of a step, T
  double expert_misses = 0;  ///< of a step, all layers
  double kv_misses = 0;      ///< of a step
  binding binds = binding::budget;
};

/// Threads: const use is safe; the curves must outlive it.
struct configurator {
  std::uint64_t budget_bytes = 0;  ///< M, for experts and KV together
  std::uint64_t slot_bytes = 0;    ///< m_E, an expert in every layer
  std::uint64_t block_bytes = 0;   ///< m_KV, of all layers; 0: the model has no KV cache
  std::uint64_t min_cap = 1;       ///< top-k, or the widest union of a decode step
  std::uint64_t max_cap = 0;       ///< experts of a layer
  std::uint64_t min_blocks = 0;    ///< admission_floor
  miss_curve_ref experts{};        ///< misses of a step over all layers, by cap
  miss_curve_ref kv{};  ///< misses of a step, by blocks; of nothing: the floor is all that KV needs
  double seconds_per_expert_miss = 0;
  double seconds_per_kv_miss = 0;

  /// The least budget that works.
  [[nodiscard]] std::uint64_t smallest_budget() const noexcept {
    return min_cap * slot_bytes + min_blocks * block_bytes;
  }
  /// Why there is no split, with the smallest budget that works.
  [[nodiscard]] validation validate() const {
    if (slot_bytes == 0) return error{"slot_bytes = 0, accepted: 1 or more"};
    if (min_cap < 1 || min_cap > max_cap)
      return error{"min_cap = " + std::to_string(min_cap) + ", accepted: 1.." +
                   std::to_string(max_cap)};
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    if (max_cap > most / 2 / slot_bytes ||
        (block_bytes != 0 && min_blocks > most / 2 / block_bytes))
      return error{"floors and caps of 2^63 bytes or more, accepted: fewer"};
    if (!(seconds_per_expert_miss >= 0) || !(seconds_per_kv_miss >= 0))
      return error{"seconds of a miss below 0, accepted: 0 or more"};
    if (budget_bytes < smallest_budget())
      return error{"a budget of " + std::to_string(budget_bytes) +
                   " bytes, accepted: " + std::to_string(smallest_budget()) + " bytes or more (" +
                   std::to_string(min_cap) + " experts a layer and " + std::to_string(min_blocks) +
                   " KV blocks)"};
    return std::nullopt;
  }

  /// Blocks that a cap leaves. Pre: the cap's bytes fit.
  [[nodiscard]] std::uint64_t blocks_beside(std::uint64_t cap) const noexcept {
    return block_bytes == 0 ? 0 : (budget_bytes - cap * slot_bytes) / block_bytes;
  }
  /// The largest cap that leaves the floor, at most max_cap. Pre: validate() has nothing to say.
  [[nodiscard]] std::uint64_t largest_cap() const noexcept {
    return std::min(max_cap, (budget_bytes - min_blocks * block_bytes) / slot_bytes);
  }
  /// The split of one cap. Pre: min_cap <= cap <= largest_cap().
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
  /// The best split. Pre: validate() has nothing to say.
  [[nodiscard]] expert_kv_split best() const noexcept {
    auto found = at(min_cap);
    for (auto cap = min_cap + 1; cap <= largest_cap(); ++cap)
      if (const auto other = at(cap); other.seconds < found.seconds) found = other;
    return found;
  }
};

}  // namespace hotset::inline v0
