// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Loads of all ranks in all steps under a placement, kept while the placement changes.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/platform/in_vectors.hpp"
#include "hotset/placement/placement_shape.hpp"
#include "hotset/placement/step_loads.hpp"

namespace hotset::detail {

/// The two largest of some loads.
struct two_fullest {
  std::int32_t first = 0;
  std::int32_t second = 0;

  constexpr two_fullest& add(std::int32_t load) noexcept {
    second = std::max(second, std::min(first, load));
    first = std::max(first, load);
    return *this;
  }
  [[nodiscard]] constexpr std::int32_t cost() const noexcept { return 2 * first + second; }
};

/// An expert's tokens are shared evenly by its replicas. Loads are integers in fractions of a token.
///
/// The cost of a step is twice its fullest rank's load plus the second fullest's. The fullest alone decides how long
/// the step takes; the second one keeps the search from fitting single steps, and lowers the fullest of later traffic.
class rank_loads {
 public:
  /// Steps are padded to whole blocks with steps without tokens, so that loops over a block are compiled to vectors.
  static constexpr std::size_t block = 16;
  using row = std::span<const std::int32_t>;

  rank_loads(const placement_shape& shape, const step_loads& loads)
      : shape_(shape),
        steps_((loads.steps() + block - 1) / block * block),
        tokens_(steps_ * static_cast<std::size_t>(shape.experts), 0),
        shares_(tokens_.size() * 3, 0),
        loads_(steps_ * static_cast<std::size_t>(shape.ranks), 0),
        replicas_(static_cast<std::size_t>(shape.experts), 1),
        sums_(replicas_.size(), 0) {
    const auto shift = shift_of(loads);
    for (std::size_t s = 0; s < loads.steps(); ++s) {
      const auto counts = loads.step(s);
      for (std::size_t e = 0; e < counts.size(); ++e) {
        const auto scaled = shift < 0 ? counts[e] >> -shift : counts[e] << shift;
        tokens_[e * steps_ + s] = static_cast<std::int32_t>(scaled);
        all_ += scaled;
        sums_[e] += scaled;
      }
    }
    for (auto& top : tops_) top.assign(steps_, 0);
    for (auto& rank : top_ranks_) rank.assign(steps_, -1);
  }

  /// Removes the expert's loads from the ranks that hold it.
  void take(expert_id e, std::span<const expert_id> placed) noexcept {
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      if (placed[slot] == e) add(shape_.rank_of(slot), e, -1);
  }
  /// Adds the expert's loads to the ranks that hold it. Pre: take(e, ...) was called before the placement changed.
  void put(expert_id e, std::span<const expert_id> placed) noexcept {
    const auto replicas = static_cast<std::int32_t>(std::ranges::count(placed, e));
    replicas_[index_of(e)] = replicas;
    for (const auto change : {-1, 0, 1}) share_out(e, replicas, change);
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      if (placed[slot] == e) add(shape_.rank_of(slot), e, 1);
  }
  /// Finds the fullest ranks of each step. Call it after changes, before costs are asked for.
  void find_fullest() noexcept {
    for (auto& top : tops_) std::ranges::fill(top, 0);
    for (auto& rank : top_ranks_) std::ranges::fill(rank, -1);
    for (std::int32_t r = 0; r < shape_.ranks; ++r) {
      const auto* const load = loads_.data() + static_cast<std::size_t>(r) * steps_;
      for (std::size_t s = 0; s < steps_; ++s) insert(s, r, load[s]);
    }
    cost_ = 0;
    for (std::size_t s = 0; s < steps_; ++s) cost_ += 2 * std::int64_t{tops_[0][s]} + tops_[1][s];
  }

  [[nodiscard]] vector_level level() const noexcept { return level_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int32_t replicas(expert_id e) const noexcept { return replicas_[index_of(e)]; }
  /// An expert's load in all steps.
  [[nodiscard]] std::int64_t sum(expert_id e) const noexcept { return sums_[index_of(e)]; }
  /// A rank's mean load, summed over the steps.
  [[nodiscard]] std::int64_t mean() const noexcept { return all_ / shape_.ranks; }
  [[nodiscard]] std::int64_t cost() const noexcept { return cost_; }
  [[nodiscard]] row load(std::int32_t rank) const noexcept {
    return {loads_.data() + static_cast<std::size_t>(rank) * steps_, steps_};
  }
  /// Load of one replica, if there were `change` more of them: -1, 0 or 1.
  [[nodiscard]] row share(expert_id e, int change = 0) const noexcept {
    return {shares_.data() + share_at(e, change), steps_};
  }

  /// The two fullest ranks' loads without some ranks, step by step.
  struct others {
    aligned_vector<std::int32_t> fullest, second;
  };
  /// Leaves out p, q and r; -1: no rank. With three, `second` is a lower bound.
  void find_others(std::int32_t p, std::int32_t q, std::int32_t r, others& out) const {
    out.fullest.resize(steps_);
    out.second.resize(steps_);
    in_vectors(level_, [&] {
      for (std::size_t s = 0; s < steps_; ++s) {
        std::array<std::int32_t, 4> top{};
        for (std::size_t k = 0; k < top.size(); ++k) {
          const auto rank = top_ranks_[k][s];
          top[k] = rank == p || rank == q || rank == r ? 0 : tops_[k][s];
        }
        const auto high = std::max(top[0], top[1]);
        const auto also = std::max(top[2], top[3]);
        out.fullest[s] = std::max(high, also);
        out.second[s] =
            std::max({std::min(high, also), std::min(top[0], top[1]), std::min(top[2], top[3])});
      }
    });
  }

 private:
  /// Number of bits by which loads are shifted so that the largest step has nearly 2^20 units: sums of a block of costs
  /// fit into 32 bits.
  [[nodiscard]] static int shift_of(const step_loads& loads) noexcept {
    std::uint64_t most = 1;
    for (std::size_t s = 0; s < loads.steps(); ++s) {
      const auto counts = loads.step(s);
      most = std::max(most, std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    }
    return 20 - static_cast<int>(std::bit_width(most));
  }
  [[nodiscard]] std::size_t share_at(expert_id e, int change) const noexcept {
    return (index_of(e) * 3 + static_cast<std::size_t>(change + 1)) * steps_;
  }
  void share_out(expert_id e, std::int32_t replicas, int change) noexcept {
    const auto parts = std::max(1, replicas + change);
    const auto* const tokens = tokens_.data() + index_of(e) * steps_;
    auto* const out = shares_.data() + share_at(e, change);
    for (std::size_t s = 0; s < steps_; ++s) out[s] = tokens[s] / parts;
  }
  void add(std::int32_t rank, expert_id e, std::int32_t times) noexcept {
    auto* const load = loads_.data() + static_cast<std::size_t>(rank) * steps_;
    const auto* const share = shares_.data() + share_at(e, 0);
    for (std::size_t s = 0; s < steps_; ++s) load[s] += times * share[s];
  }
  void insert(std::size_t s, std::int32_t rank, std::int32_t load) noexcept {
    for (std::size_t k = 0; k < tops_.size(); ++k) {
      if (load <= tops_[k][s]) continue;
      std::swap(load, tops_[k][s]);
      std::swap(rank, top_ranks_[k][s]);
    }
  }

  vector_level level_ = best_vector_level();
  placement_shape shape_;
  std::size_t steps_;
  aligned_vector<std::int32_t> tokens_;  ///< [experts][steps]
  aligned_vector<std::int32_t> shares_;  ///< [experts][one replica fewer, as is, one more][steps]
  aligned_vector<std::int32_t> loads_;   ///< [ranks][steps]
  std::vector<std::int32_t> replicas_;
  std::vector<std::int64_t> sums_;                    ///< [experts]
  std::array<aligned_vector<std::int32_t>, 4> tops_;  ///< the fullest ranks' loads, descending
  std::array<aligned_vector<std::int32_t>, 4> top_ranks_;
  std::int64_t all_ = 0;
  std::int64_t cost_ = 0;
};

}  // namespace hotset::detail
