// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Serves requests within one byte budget, under fixed splits and controllers, and reports the cost of each.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "hotset/cache/live_view.hpp"
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

/// Rule that decides the split.
enum class split_rule : std::uint8_t { fixed, marginal_value, dual_resize, right_sizing };
struct split_choice {
  split_rule rule = split_rule::fixed;
  std::uint64_t cap = 0;  ///< initial or fixed cap; 0: the configurator's split

  /// Parses "12" (a fixed cap), "mv-wsa", "dual-resize" or "right-size". Errors: hotset::lab::usage_error.
  static split_choice parse(const std::string& text);
  [[nodiscard]] std::string name() const;
};

struct trace_serving_config {
  std::uint64_t budget_bytes = 0;  ///< for expert slots and KV blocks
  std::size_t block_tokens = 16;
  serving_config serving{};
  std::string eviction = "lru";
  /// Link whose time copies really take; none: as fast as memory.
  std::optional<hotset::link_model::config> link{};
  hotset::cost_model prices{};
  std::size_t warmup = 0;    ///< requests that must end before accounting begins
  std::uint64_t burst = 32;  ///< passes; at their end a controller may move the split
  double decay = 0.9;        ///< for marginal_value, and the three below
  double gate = 0.02;
  std::uint64_t max_move = 4;
  std::uint64_t dead_zone = 0;
  std::uint64_t headroom_percent = 10;  ///< for dual_resize
  bool count_reuse = false;             ///< for dual_resize
  double coverage = 0.95;               ///< for right_sizing
  /// A short representative trace, served before and not charged: the split to which MV-WSA converges on it is the
  /// configurator's (WiSP 3.4). Empty: KV gets its floor and experts the rest.
  std::vector<serving_request> profile{};
  /// Sees the run, without the profile's; it outlives it. Null: none.
  hotset::live_view* view = nullptr;

  [[nodiscard]] hotset::validation validate() const;
};

/// One run. Seconds are those of WiSP eq. 4: the cost of misses at the given prices.
struct trace_serving_result {
  split_choice choice{};
  hotset::pool_sizes first{};
  hotset::pool_sizes last{};
  double seconds = 0;
  double expert_seconds = 0;
  double kv_seconds = 0;
  std::uint64_t expert_misses = 0;  ///< since the warm-up, like the seconds and the next one
  std::uint64_t prefilled_tokens = 0;
  std::uint64_t peak_bytes = 0;  ///< maximum bytes of the budget in use
  double wall_seconds = 0;       ///< on this machine
  serving_report served{};
  live_split_stats split{};
};

/// Limits of every split: a token's experts, and the blocks of the longest request.
/// Errors: hotset::lab::infeasible_error, with the smallest budget that works.
[[nodiscard]] hotset::split_limits limits_of(const model& weights,
                                             std::span<const serving_request> requests,
                                             const trace_serving_config& config);

/// Geometry of the experts that a run serves, for its view.
[[nodiscard]] hotset::geometry served_shape(const model& weights,
                                            const trace_serving_config& config);

/// Initial cap of a controller without a given one. Errors: those of serve_trace.
[[nodiscard]] std::uint64_t configured_cap(const model& weights,
                                           std::span<const serving_request> requests,
                                           const trace_serving_config& config);

/// `budget` has the limits' size and is empty; a test may lower it meanwhile. `watch` is called between passes,
/// before the controller.
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

/// Whether every run gave every request the same bytes.
[[nodiscard]] bool same_outputs(std::span<const trace_serving_result> runs);

/// The fixed split with the fewest seconds; null if there is none.
[[nodiscard]] const trace_serving_result* best_fixed(std::span<const trace_serving_result> runs);

/// {"schema", "model", "budget_bytes", "bytes_per_expert_slot", "kv_bytes_per_block", "block_tokens", "requests",
/// "seconds_per_byte", "seconds_per_token", "outputs_identical", "results": [{"split", "first_cap", "cap",
/// "kv_blocks", "seconds", "expert_seconds", "kv_seconds", "over_best_fixed", "expert_misses", "prefilled_tokens",
/// "reused_tokens", "recomputed_tokens", "preemptions", "refusals", "passes", "moves", "refused_moves", "peak_bytes",
/// "wall_seconds", "caps": [[pass, cap], ..]}]}. cap and kv_blocks are the final ones.
[[nodiscard]] nlohmann::ordered_json to_json(const model& weights,
                                             const trace_serving_config& config,
                                             std::span<const trace_serving_result> runs);
[[nodiscard]] std::string to_table(const model& weights, const trace_serving_config& config,
                                   std::span<const trace_serving_result> runs,
                                   const hotset::lab::table_view& view = {});
/// Accepted names in table_view::columns, besides "all".
[[nodiscard]] std::vector<std::string> serving_columns();

}  // namespace tiny_moe
