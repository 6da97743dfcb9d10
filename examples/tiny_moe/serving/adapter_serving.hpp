// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests for many adapters over one base model: how they arrive, what serving them costs beside the base model alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "hotset/core/error.hpp"
#include "lab/reports/rows.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/experts/registered_adapters.hpp"
#include "tiny_moe/model/model.hpp"
#include "tiny_moe/serving/serving.hpp"
#include "tiny_moe/studies/verification.hpp"

namespace tiny_moe {

inline constexpr std::string_view adapter_serving_schema = "hotset.serve_adapters/1";

struct adapter_serving_config {
  std::size_t adapters = 5;        ///< N
  double alpha = 1;                ///< 1: all alike; the less, the more the first one gets
  double rate = 20;                ///< requests a second, for all adapters
  std::size_t requests = 100;      ///< of all adapters, the first ones to arrive
  std::size_t prompt_tokens = 64;  ///< of a request
  std::size_t tokens = 32;         ///< to generate
  std::size_t places = 0;          ///< adapters on the device at once; 0: all
  std::uint64_t seed = 1;
  std::size_t repeats = 3;  ///< pairs of runs, of the base model and of the adapters
  std::size_t max_sessions = 32;
  std::size_t max_tokens = 64;  ///< of a pass of prompts

  static constexpr std::size_t most_adapters = 256;
  static constexpr std::size_t most_requests = std::size_t{1} << 20U;
  static constexpr std::size_t most_repeats = 99;

  [[nodiscard]] hotset::validation validate(const model_config& shape) const;
};

/// What adapter i of N gets of all requests: ((i + 1) / N)^alpha - (i / N)^alpha.
/// Source: ExpertWeave, section 5.2 (the power law of S-LoRA). Pre: adapters >= 1, alpha > 0.
[[nodiscard]] std::vector<double> adapter_shares(std::size_t adapters, double alpha);

/// Requests of each adapter by a Poisson process of its own, with its share of the rate; in the order of arrival, which is
/// in nanoseconds. Prompts are pieces of the texts that are named after the adapter ("math" has "math-1"), or of all where
/// there is none. An adapter's requests do not depend on what others get. Pre: a valid config, a name for each adapter,
/// texts that are not empty.
[[nodiscard]] std::vector<serving_request> adapter_requests(const adapter_serving_config& config,
                                                            std::span<const std::string> names,
                                                            std::span<const named_text> texts);

/// Units: milliseconds; NaN where no request was complete, or of more than one token.
struct request_times {
  double first_mean = 0;  ///< from arrival to the first token
  double first_p50 = 0;   ///< nearest rank
  double first_p99 = 0;
  double token = 0;  ///< from one token to the next, mean of the requests' means
};
/// Pre: the clock's unit was the nanosecond.
[[nodiscard]] request_times times_of(const serving_report& served);

/// A run of the adapters, and one of the base model right before it.
struct adapter_serving_pair {
  request_times adapters{};
  request_times base{};  ///< the same requests, all of them the base model's
  std::uint64_t passes = 0;
  /// Mean of what the clock advanced by while something ran: admission, loads and all.
  double pass_ns = 0;
  registered_adapters_stats experts{};
  hotset::adapter_registry_stats registry{};
  std::size_t refusals = 0;  ///< requests

  /// Shares, 0 as fast: the mean time to the first token, and from one to the next.
  [[nodiscard]] double first_over_base() const noexcept;
  [[nodiscard]] double token_over_base() const noexcept;
  [[nodiscard]] double reroute_ns() const noexcept;     ///< a pass
  [[nodiscard]] double reroute_share() const noexcept;  ///< of a pass
  /// Experts a pass that the base model alone would not have read with the same routing.
  [[nodiscard]] double extra_experts() const noexcept;
  [[nodiscard]] double weight_byte_ratio() const noexcept;
};

struct adapter_serving_result {
  adapter_serving_config config{};
  std::size_t expert_bytes = 0;
  std::vector<adapter_serving_pair> pairs{};  ///< [repeats], as they followed each other
  std::size_t checked = 0;    ///< adapters whose first complete request of a run was compared
  std::size_t different = 0;  ///< those of them that differ in any run from the merged model alone
};

/// Serves the same requests without a prefix cache, each by its adapter and all by the base model, in turn and `repeats`
/// times. Every run begins with no adapter on the device. Where there are fewer adapters than the configuration says they
/// are repeated, each time as another one.
/// Pre: there is an adapter, and a text. Errors: hotset::invalid_config.
[[nodiscard]] adapter_serving_result serve_adapters(const model& weights,
                                                    std::span<const adapter_weights> adapters,
                                                    std::span<const named_text> texts,
                                                    const adapter_serving_config& config);

/// What was compared was equal.
[[nodiscard]] bool same_as_merged(std::span<const adapter_serving_result> runs);

/// {"schema", "model", "rate", "requests", "prompt_tokens", "tokens", "places", "seed", "repeats", "bytes_per_expert",
/// "outputs_identical", "results": [{"adapters", "alpha", "ttft_ms": {"mean", "p50", "p99"}, "token_ms", "base": {"ttft_ms",
/// "token_ms"}, "ttft_over_base", "token_over_base", "passes", "pass_ns", "reroute_ns", "reroute_share",
/// "extra_weight_bytes", "weight_byte_ratio", "loads", "evictions", "refused_acquires", "refusals", "outputs_checked",
/// "outputs_identical", "ttft_over_base_of_pairs": [repeats], "token_over_base_of_pairs": [repeats]}]}. A run has one of
/// each figure, and what stands here is its median over the runs (of an even number the lower of the middle two); over_base
/// is a pair's, a share, 0 as fast, so that its median need not be the ratio of those beside it. Refusals are the most of a
/// run. Times that nothing was measured for are null, and in no median.
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const adapter_serving_result> runs);
/// The same figures, but for those of the base model.
[[nodiscard]] std::string to_table(std::span<const adapter_serving_result> runs,
                                   const hotset::lab::table_view& view = {});
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> adapter_serving_columns();

}  // namespace tiny_moe
