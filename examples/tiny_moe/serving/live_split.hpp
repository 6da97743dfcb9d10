// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One budget for a running engine's expert slots and KV blocks: a controller moves the split between passes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/planning/budget/split_limits.hpp"
#include "hotset/planning/control/dual_resize.hpp"
#include "hotset/planning/control/marginal_value.hpp"
#include "hotset/planning/control/right_sizing.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"
#include "hotset/predict/co_activation.hpp"
#include "tiny_moe/experts/expert_pool.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/kv_pool.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace tiny_moe {

/// A split that never moves.
struct fixed_split {};
using split_controller =
    std::variant<fixed_split, hotset::marginal_value, hotset::dual_resize, hotset::right_sizing>;

/// State of a split at the end of a burst.
struct split_at {
  std::uint64_t step = 0;
  hotset::pool_sizes sizes{};
};

struct live_split_stats {
  std::uint64_t moves = 0;
  std::uint64_t refused = 0;  ///< failed resizes, which left the split unchanged
  std::vector<split_at> history{};
};

/// Observes use, and is called between passes. Both pools outlive it. Threads: one at a time.
class live_split {
 public:
  struct config {
    hotset::split_limits limits{};
    split_controller controller{};
    std::uint64_t burst = 32;         ///< passes
    std::uint64_t most_contents = 1;  ///< maximum number of distinct full blocks
    std::uint32_t users = 1;          ///< for right_sizing: each user has a separate table
  };
  /// drain: waits for outstanding copies of experts.
  live_split(const model_config& shape, std::size_t max_tokens, expert_pool& experts,
             kv_pool& blocks, std::function<void()> drain, const config& options);

  /// Follows reuse distances only if the controller uses them.
  void on_visit(const visit_inputs& visit);
  void on_reference(const block_reference& block);
  /// User of each row of the next pass. Keeps tables only if the controller uses them.
  void on_rows(std::span<const std::uint32_t> users);
  /// Moves the split if a burst has ended. A move that would take blocks from running sessions, or leave too few for
  /// a request that has arrived, is limited.
  void between(const drained_point& now);

  [[nodiscard]] hotset::pool_sizes sizes() const noexcept {
    return {experts_.capacity(), blocks_.capacity()};
  }
  [[nodiscard]] const live_split_stats& stats() const noexcept { return stats_; }
  /// Uses by each user's tokens so far; empty if the controller does not need them.
  [[nodiscard]] std::span<const hotset::co_activation> tables() const noexcept { return tables_; }

 private:
  [[nodiscard]] hotset::pool_sizes wanted();
  void count_reuse(std::size_t content);
  void learn(const visit_inputs& visit);
  [[nodiscard]] std::vector<double> uses_of_burst() const;
  [[nodiscard]] hotset::pool_sizes allowed(const hotset::pool_sizes& to,
                                           std::uint64_t least_blocks) const noexcept;
  void move(const hotset::pool_sizes& to);

  config options_;
  expert_pool& experts_;
  kv_pool& blocks_;
  std::function<void()> drain_;
  hotset::per_layer<hotset::reuse_distance> expert_distances_;  // for marginal_value
  hotset::recency_bitmap block_distances_;
  std::vector<std::uint64_t>
      block_marks_;                  // by content: last burst that read it again; for count_reuse
  std::uint64_t reused_blocks_ = 0;  // distinct blocks that this burst read again
  std::vector<hotset::co_activation> tables_;  // by user; for right_sizing
  std::vector<std::uint32_t> row_users_;       // user of each row of the pass
  std::vector<std::uint8_t> served_;           // by user: 1 if served in this burst
  std::vector<hotset::expert_id> ids_;         // scratch: ids of one user's rows
  std::uint64_t passes_ = 0;
  live_split_stats stats_;
};

/// Forwards visits to another provider, and notifies the split of the routing.
class observed_experts final : public expert_provider {
 public:
  observed_experts(expert_provider& inner, live_split& split) : inner_(inner), split_(split) {}
  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    split_.on_visit(visit);
    inner_.run(visit, compute);
  }

 private:
  expert_provider& inner_;
  live_split& split_;
};

}  // namespace tiny_moe
