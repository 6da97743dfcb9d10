// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Serves requests from one byte budget, under fixed splits and under controllers, and says what each cost.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "hotset/core/error.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/planning/budget/cost_model.hpp"
#include "hotset/planning/budget/split_limits.hpp"
#include "lab/replay/link_model.hpp"
#include "lab/reports/rows.hpp"
#include "tiny_moe/model/model.hpp"
#include "tiny_moe/serving/live_split.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace tiny_moe {

inline constexpr std::string_view serving_schema = "hotset.serve/1";

/// Who decides the split.
enum class split_rule : std::uint8_t { fixed, marginal_value, dual_resize, right_sizing };
struct split_choice {
  split_rule rule = split_rule::fixed;
  std::uint64_t cap = 0;  ///< where it begins, or stays; 0: at the configurator's split

  /// Reads "12" (a fixed cap), "mv-wsa", "dual-resize" or "right-size". Errors: hotset::lab::usage_error.
  static split_choice parse(const std::string& text);
  [[nodiscard]] std::string name() const;
};

struct trace_serving_config {
  std::uint64_t budget_bytes = 0;  ///< for expert slots and KV blocks
  std::size_t block_tokens = 16;
  serving_config serving{};
  std::string eviction = "lru";
  /// Copies really take so long; none: as fast as the memory.
  std::optional<hotset::link_model::config> link{};
  hotset::cost_model prices{};
  std::size_t warmup = 0;    ///< the account begins when so many requests have ended
  std::uint64_t burst = 32;  ///< passes, at whose end a controller may move
  double decay = 0.9;        ///< of marginal_value, and the three below
  double gate = 0.02;
  std::uint64_t max_move = 4;
  std::uint64_t dead_zone = 0;
  std::uint64_t headroom_percent = 10;  ///< of dual_resize
  bool count_reuse = false;             ///< of dual_resize
  double coverage = 0.95;               ///< of right_sizing
  /// A short representative trace, served before and not charged: the split to which MV-WSA converges on it is the
  /// configurator's (WiSP 3.4). Empty: nothing is known, KV gets its floor and experts the rest.
  std::vector<serving_request> profile{};

  [[nodiscard]] hotset::validation validate() const;
};

/// One run. Seconds are those of WiSP eq. 4: what misses cost at the given prices, nothing else.
struct trace_serving_result {
  split_choice choice{};
  hotset::pool_sizes first{};
  hotset::pool_sizes last{};
  double seconds = 0;
  double expert_seconds = 0;
  double kv_seconds = 0;
  std::uint64_t expert_misses = 0;  ///< since the warm-up, as the seconds and the next one
  std::uint64_t prefilled_tokens = 0;
  std::uint64_t peak_bytes = 0;  ///< of the budget, at any instant
  double wall_seconds = 0;       ///< of this machine
  serving_report served{};
  live_split_stats split{};
};

/// What no split may pass: a token's experts, and the blocks of the longest request.
/// Errors: hotset::lab::infeasible_error, with the smallest budget that works.
[[nodiscard]] hotset::split_limits limits_of(const model& weights,
                                             std::span<const serving_request> requests,
                                             const trace_serving_config& config);

/// Where a controller begins that is not told. Errors: as serve_trace.
[[nodiscard]] std::uint64_t configured_cap(const model& weights,
                                           std::span<const serving_request> requests,
                                           const trace_serving_config& config);

/// `budget` is that of the limits and is empty; a test may lower it meanwhile. `watch` is called between passes, before
/// the controller.
/// Errors: hotset::lab::usage_error, hotset::lab::infeasible_error, hotset::invalid_config.
[[nodiscard]] trace_serving_result serve_trace(const model& weights,
                                               std::span<const serving_request> requests,
                                               const trace_serving_config& config,
                                               const split_choice& choice,
                                               hotset::memory_budget& budget,
                                               const between_steps& watch = {});
[[nodiscard]] trace_serving_result serve_trace(const model& weights,
                                               std::span<const serving_request> requests,
                                               const trace_serving_config& config,
                                               const split_choice& choice);

/// Every run gave every request the same bytes.
[[nodiscard]] bool same_outputs(std::span<const trace_serving_result> runs);

/// The fixed split of the least seconds; none if none is there.
[[nodiscard]] const trace_serving_result* best_fixed(std::span<const trace_serving_result> runs);

/// {"schema", "model", "budget_bytes", "bytes_per_expert_slot", "kv_bytes_per_block", "block_tokens", "requests",
/// "seconds_per_byte", "seconds_per_token", "outputs_identical", "results": [{"split", "first_cap", "cap", "kv_blocks",
/// "seconds", "expert_seconds", "kv_seconds", "over_best_fixed", "expert_misses", "prefilled_tokens", "reused_tokens",
/// "recomputed_tokens", "preemptions", "refusals", "passes", "moves", "refused_moves", "peak_bytes", "wall_seconds",
/// "caps": [[pass, cap], ..]}]}. cap and kv_blocks are the last ones.
[[nodiscard]] nlohmann::ordered_json to_json(const model& weights,
                                             const trace_serving_config& config,
                                             std::span<const trace_serving_result> runs);
[[nodiscard]] std::string to_table(const model& weights, const trace_serving_config& config,
                                   std::span<const trace_serving_result> runs,
                                   const hotset::lab::table_view& view = {});
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> serving_columns();

}  // namespace tiny_moe
