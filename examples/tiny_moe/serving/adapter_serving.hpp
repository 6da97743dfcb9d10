// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests for many adapters over one base model: arrivals, and the cost of serving compared with the base model
/// alone.

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
  double alpha = 1;                ///< 1: equal shares; smaller values favour the first adapters
  double rate = 20;                ///< per second, over all adapters
  std::size_t requests = 100;      ///< first requests to arrive, over all adapters
  std::size_t prompt_tokens = 64;  ///< per request
  std::size_t tokens = 32;         ///< tokens to generate per request
  std::size_t places = 0;          ///< adapters on the device at the same time; 0: all
  std::uint64_t seed = 1;
  std::size_t repeats = 3;  ///< pairs of runs: base model, then adapters
  std::size_t max_sessions = 32;
  std::size_t max_tokens = 64;  ///< prompt tokens of a pass

  static constexpr std::size_t most_adapters = 256;
  static constexpr std::size_t most_requests = std::size_t{1} << 20U;
  static constexpr std::size_t most_repeats = 99;

  [[nodiscard]] hotset::validation validate(const model_config& shape) const;
};

/// Share of the requests for adapter i of N: ((i + 1) / N)^alpha - (i / N)^alpha.
/// Source: ExpertWeave, section 5.2 (the power law of S-LoRA). Pre: adapters >= 1, alpha > 0.
[[nodiscard]] std::vector<double> adapter_shares(std::size_t adapters, double alpha);

/// Requests of each adapter by a separate Poisson process with its share of the rate, in order of arrival in
/// nanoseconds. Prompts are pieces of the texts named after the adapter ("math" has "math-1"), or of all texts if
/// there is none. An adapter's requests do not depend on those of others. Pre: a valid config, a name for each
/// adapter, non-empty texts.
[[nodiscard]] std::vector<serving_request> adapter_requests(const adapter_serving_config& config,
                                                            std::span<const std::string> names,
                                                            std::span<const named_text> texts);

/// Units: milliseconds; NaN if no request was complete, or none had more than one token.
struct request_times {
  double first_mean = 0;  ///< from arrival to the first token
  double first_p50 = 0;   ///< nearest rank
  double first_p99 = 0;
  double token = 0;  ///< between tokens, mean of the requests' means
};
/// Pre: the clock's unit was the nanosecond.
[[nodiscard]] request_times times_of(const serving_report& served);

/// A run of the adapters, and a run of the base model directly before it.
struct adapter_serving_pair {
  request_times adapters{};
  request_times base{};  ///< the same requests, all for the base model
  std::uint64_t passes = 0;
  /// Mean clock advance per pass while something ran, including admission and loads.
  double pass_ns = 0;
  registered_adapters_stats experts{};
  hotset::adapter_registry_stats registry{};
  std::size_t refusals = 0;  ///< refused requests

  /// Relative increase, 0: equally fast, of the mean time to the first token, and between tokens.
  [[nodiscard]] double first_over_base() const noexcept;
  [[nodiscard]] double token_over_base() const noexcept;
  [[nodiscard]] double reroute_ns() const noexcept;     ///< per pass
  [[nodiscard]] double reroute_share() const noexcept;  ///< share of a pass
  /// Experts per pass that the base model alone would not have read with the same routing.
  [[nodiscard]] double extra_experts() const noexcept;
  [[nodiscard]] double weight_byte_ratio() const noexcept;
};

struct adapter_serving_result {
  adapter_serving_config config{};
  std::size_t expert_bytes = 0;
  std::vector<adapter_serving_pair> pairs{};  ///< [repeats], in order
  std::size_t checked = 0;  ///< adapters whose first complete request of a run was compared
  /// Compared adapters that differ in any run from the merged model alone.
  std::size_t different = 0;
};

/// Serves the same requests without a prefix cache, each with its adapter and all with the base model, alternately
/// and `repeats` times. Every run begins without adapters on the device. If there are fewer adapters than the
/// configuration needs, they are repeated as separate adapters.
/// Pre: there is an adapter, and a text. Errors: hotset::invalid_config.
[[nodiscard]] adapter_serving_result serve_adapters(const model& weights,
                                                    std::span<const adapter_weights> adapters,
                                                    std::span<const named_text> texts,
                                                    const adapter_serving_config& config);

/// Whether all compared outputs were equal.
[[nodiscard]] bool same_as_merged(std::span<const adapter_serving_result> runs);

/// {"schema", "model", "rate", "requests", "prompt_tokens", "tokens", "places", "seed", "repeats",
/// "bytes_per_expert", "outputs_identical", "results": [{"adapters", "alpha", "ttft_ms": {"mean", "p50", "p99"},
/// "token_ms", "base": {"ttft_ms", "token_ms"}, "ttft_over_base", "token_over_base", "passes", "pass_ns",
/// "reroute_ns", "reroute_share", "extra_weight_bytes", "weight_byte_ratio", "loads", "evictions",
/// "refused_acquires", "refusals", "outputs_checked", "outputs_identical", "ttft_over_base_of_pairs": [repeats],
/// "token_over_base_of_pairs": [repeats]}]}.
/// Each figure is the median over the runs (of an even number the lower of the middle two). over_base is a share
/// within a pair, 0: equally fast; its median need not be the ratio of the other medians. Refusals are the maximum
/// over runs. Times without a measurement are null, and in no median.
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const adapter_serving_result> runs);
/// A table of these figures without those of the base model.
[[nodiscard]] std::string to_table(std::span<const adapter_serving_result> runs,
                                   const hotset::lab::table_view& view = {});
/// Accepted names in table_view::columns, besides "all".
[[nodiscard]] std::vector<std::string> adapter_serving_columns();

}  // namespace tiny_moe
