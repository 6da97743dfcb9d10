// SPDX-License-Identifier: Apache-2.0
#pragma once
/// MV-WSA, online: once per burst, moves the split between experts and KV towards the least predicted time.
///
/// Rule: both streams' reuse distances go into decayed histograms. At the end of a burst, T (WiSP eq. 4) is evaluated
///   on a fixed grid of caps between the floors; the cap with the least T is the target. The cap moves towards it by
///   at most `max_move` slots, if T would fall by more than the share `gate` and the target is more than `dead_zone`
///   slots away.
/// Source: WiSP 3.4, Appendix B, Algorithm 2; the closed form for an engine's KV is dual_resize.
/// Deviations: the target is the best grid point, not the next one downhill: between the two modes of reuse distances
///   the predicted cost is flat, and steps downhill end there. A move that was cut short continues to its target,
///   even inside the dead zone: at a cliff the last slot is worth all the others.
/// Cost: O(grid + slots + blocks) per burst; O(1) per distance.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/planning/budget/configurator.hpp"
#include "hotset/planning/curve/decayed_histogram.hpp"

namespace hotset {

/// Threads: compatible. Allocates at construction only.
class marginal_value {
 public:
  struct config {
    split_limits limits{};
    double seconds_per_expert_miss = 0;
    double seconds_per_kv_miss = 0;
    double decay = 0.8;           ///< factor on a burst's counts when the next burst ends
    std::uint64_t grid = 64;      ///< number of caps tried, both ends included
    double gate = 0.02;           ///< share of T that a move must save
    std::uint64_t max_move = 8;   ///< slots per burst
    std::uint64_t dead_zone = 1;  ///< slots; a target within this distance counts as reached

    [[nodiscard]] validation validate() const {
      if (auto bad = split().validate()) return bad;
      if (limits.block_bytes == 0)
        return error{"marginal_value block_bytes = 0, accepted: 1 or more"};
      if (grid < 2) return refusal("marginal_value grid = ", grid, ", accepted: 2 or more");
      if (!(gate >= 0 && gate < 1))
        return refusal("marginal_value gate = ", gate, ", accepted: 0..1");
      if (max_move == 0) return error{"marginal_value max_move = 0, accepted: 1 or more"};
      return expert_distances().validate();
    }
    /// Returns the configurator's problem, without curves.
    [[nodiscard]] configurator split() const {
      configurator out{limits};
      out.seconds_per_expert_miss = seconds_per_expert_miss;
      out.seconds_per_kv_miss = seconds_per_kv_miss;
      return out;
    }
    [[nodiscard]] decayed_histogram::config expert_distances() const {
      return {static_cast<std::size_t>(limits.max_cap), decay};
    }
    [[nodiscard]] decayed_histogram::config kv_distances() const {
      const auto most = std::max<std::uint64_t>(1, limits.blocks_beside(limits.min_cap));
      return {static_cast<std::size_t>(most), decay};
    }
  };

  static result<marginal_value> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    auto experts = decayed_histogram::create(options.expert_distances());
    auto kv = decayed_histogram::create(options.kv_distances());
    return marginal_value(options, *std::move(experts), *std::move(kv));
  }

  /// Records an expert's use at this distance in its layer's stack; 0: first use.
  void on_expert(std::uint32_t distance) noexcept { experts_.add(distance); }
  /// Records a block's use at this distance; 0: first use.
  void on_block(std::uint32_t distance) noexcept { kv_.add(distance); }

  /// Ends the burst. Returns the split to move to, or the split of `cap` if no move is worthwhile.
  /// Pre: min_cap <= cap <= largest_cap(). Complexity: O(grid + slots + blocks).
  [[nodiscard]] expert_kv_split end_burst(std::uint64_t cap) noexcept {
    experts_.end_burst();
    kv_.end_burst();
    const auto question = predicted();
    const auto now = question.at(cap);
    const auto target = best_of_grid(question, cap);
    const auto distance = target.cap > cap ? target.cap - cap : cap - target.cap;
    const bool gains = now.seconds - target.seconds > options_.gate * now.seconds;
    const bool worth = gains && (distance > options_.dead_zone || (on_the_way_ && distance > 0));
    const auto move = worth ? std::min(distance, options_.max_move) : 0;
    on_the_way_ = move < distance && worth;
    if (!worth) return now;
    return question.at(target.cap > cap ? cap + move : cap - move);
  }

 private:
  marginal_value(const config& options, decayed_histogram experts, decayed_histogram kv)
      : options_(options), experts_(std::move(experts)), kv_(std::move(kv)) {}

  [[nodiscard]] configurator predicted() const noexcept {
    auto question = options_.split();
    question.experts = experts_;
    question.kv = kv_;
    return question;
  }
  /// Returns the best split of the grid. Ties: the cap nearest to the present one.
  [[nodiscard]] expert_kv_split best_of_grid(const configurator& question,
                                             std::uint64_t cap) const noexcept {
    const auto low = options_.limits.min_cap;
    const auto range = question.largest_cap() - low;
    auto best = question.at(cap);
    for (std::uint64_t i = 0; i < options_.grid; ++i) {
      const auto other = question.at(low + range * i / (options_.grid - 1));
      const auto apart = [cap](const expert_kv_split& s) {
        return s.cap > cap ? s.cap - cap : cap - s.cap;
      };
      if (other.seconds < best.seconds ||
          (other.seconds == best.seconds && apart(other) < apart(best)))
        best = other;
    }
    return best;
  }

  config options_;
  decayed_histogram experts_;
  decayed_histogram kv_;
  bool on_the_way_ = false;  ///< the last move was cut short by max_move
};

}  // namespace hotset
