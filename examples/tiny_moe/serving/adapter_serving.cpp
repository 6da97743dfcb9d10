// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/adapter_serving.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "lab/sizes.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/kv_pool.hpp"

namespace tiny_moe {
namespace {

using nlohmann::ordered_json;

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t block_tokens = 16;

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// Texts on an adapter's topic: "math#2" has the topic of "math".
std::vector<const std::string*> texts_about(const std::string& adapter,
                                            std::span<const named_text> texts) {
  const auto topic = adapter.substr(0, adapter.find('#'));
  std::vector<const std::string*> own;
  for (const auto& one : texts)
    if (one.name.starts_with(topic)) own.push_back(&one.text);
  if (own.empty())
    for (const auto& one : texts) own.push_back(&one.text);
  return own;
}

/// Requests of one adapter; the next one is known.
class request_stream {
 public:
  request_stream(adapter_id adapter, double rate, std::uint64_t seed,
                 std::vector<const std::string*> texts)
      : adapter_(adapter), rate_(rate), random_(seed), texts_(std::move(texts)) {
    wait();
  }
  [[nodiscard]] double next_seconds() const noexcept { return next_; }
  serving_request take(const adapter_serving_config& config) {
    constexpr double most = 9e18;  // in nanoseconds
    serving_request out;
    out.arrival = static_cast<std::uint64_t>(std::min(next_ * 1e9, most));
    out.prompt = prompt(config.prompt_tokens);
    out.tokens = config.tokens;
    out.adapter = adapter_;
    wait();
    return out;
  }

 private:
  void wait() { next_ += -std::log1p(-random_.uniform()) / rate_; }
  /// A piece of one of the texts from a random position, wrapping around.
  std::vector<std::uint8_t> prompt(std::size_t bytes) {
    const auto& text = *texts_[random_.below(texts_.size())];
    auto at = random_.below(text.size());
    std::vector<std::uint8_t> out;
    out.reserve(bytes);
    for (; out.size() < bytes; at = at + 1 == text.size() ? 0 : at + 1)
      out.push_back(static_cast<std::uint8_t>(text[at]));
    return out;
  }

  adapter_id adapter_;
  double rate_;
  hotset::splitmix64 random_;
  std::vector<const std::string*> texts_;
  double next_ = 0;  // in seconds
};

struct timed_report {
  serving_report served;
  double ns = 0;
};

timed_report serve_timed(const model& weights, expert_provider& experts,
                         std::span<const serving_request> requests,
                         const adapter_serving_config& config, std::size_t virtual_experts = 0,
                         serving_config serving = {}) {
  const auto longest = config.prompt_tokens + config.tokens - 1;
  const auto blocks_of_one = (longest + block_tokens - 1) / block_tokens;
  kv_pool pool(weights.config(),
               {.block_tokens = block_tokens,
                .blocks = blocks_of_one * std::min(config.max_sessions, requests.size()),
                .reuse = false});
  batch_engine decoder(weights, experts, pool,
                       {.max_positions = longest,
                        .max_tokens = std::max(config.max_tokens, config.max_sessions),
                        .virtual_experts = virtual_experts});
  serving.max_sessions = config.max_sessions;
  serving.max_tokens = config.max_tokens;
  serving.clock = now_ns;
  const auto begin = now_ns();
  auto served = serve(decoder, requests, serving);
  return {std::move(served), static_cast<double>(now_ns() - begin)};
}

/// Requests and adapters of a configuration.
struct workload {
  std::vector<const adapter_weights*> adapters;
  std::vector<serving_request> requests;
  std::vector<serving_request> of_base;  ///< the requests, all for the base model
};

workload workload_of(std::span<const adapter_weights> adapters, std::span<const named_text> texts,
                     const adapter_serving_config& config) {
  workload out;
  for (std::size_t a = 0; a < config.adapters; ++a)
    out.adapters.push_back(&adapters[a % adapters.size()]);
  std::vector<std::string> names;
  for (const auto& one : source_of(out.adapters).adapters) names.push_back(one.name);
  out.requests = adapter_requests(config, names, texts);
  out.of_base = out.requests;
  for (auto& one : out.of_base) one.adapter = base_model;
  return out;
}

/// Compares the first complete request of each adapter in each run with the same request alone on the merged model.
class output_check {
 public:
  /// Pre: all outlive it.
  output_check(const model& weights, const workload& work, const adapter_serving_config& config)
      : weights_(weights), work_(work), config_(config), found_(work.adapters.size()) {}

  void look_at(const serving_report& served) {
    std::vector<std::uint8_t> is_compared(found_.size());
    for (std::size_t r = 0; r < work_.requests.size(); ++r) {
      const auto a = work_.requests[r].adapter - 1;
      if (is_compared[a] != 0 || !served.requests[r].refusal.empty()) continue;
      is_compared[a] = 1;
      const bool is_same = served.requests[r].output == alone(r);
      found_[a] = std::max(found_[a], is_same ? outcome::same : outcome::different);
    }
  }
  [[nodiscard]] std::size_t checked() const { return found_.size() - count(outcome::not_compared); }
  [[nodiscard]] std::size_t different() const { return count(outcome::different); }

 private:
  enum class outcome : std::uint8_t { not_compared, same, different };

  [[nodiscard]] std::size_t count(outcome what) const {
    return static_cast<std::size_t>(std::ranges::count(found_, what));
  }
  /// Cached, because all runs need mostly the same ones.
  const std::vector<std::uint8_t>& alone(std::size_t request) {
    const auto [known, is_new] = alone_.try_emplace(request);
    if (is_new) {
      merged_experts merged(weights_, *work_.adapters[work_.requests[request].adapter - 1]);
      auto own = work_.requests[request];
      own.arrival = 0;
      known->second = serve_timed(weights_, merged, {&own, 1}, config_).served.requests[0].output;
    }
    return known->second;
  }

  const model& weights_;
  const workload& work_;
  const adapter_serving_config& config_;
  std::vector<outcome> found_;                              // [adapters], over all runs
  std::map<std::size_t, std::vector<std::uint8_t>> alone_;  // by request
};

double mean(std::span<const double> values) {
  return values.empty() ? nothing
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}
/// Pre: ascending, 1 <= of_hundred <= 100.
double nearest_rank(std::span<const double> sorted, std::size_t of_hundred) {
  return sorted.empty() ? nothing : sorted[(sorted.size() * of_hundred + 99) / 100 - 1];
}

double over(double value, double base) { return value / base - 1; }
double ratio(double part, std::uint64_t whole) {
  return whole == 0 ? nothing : part / static_cast<double>(whole);
}

adapter_serving_pair serve_pair(const model& weights, const workload& work,
                                const adapter_serving_config& config, output_check& check) {
  // Reads the whole model file, so that neither run is the first to touch it.
  registered_adapters experts(weights, source_of(work.adapters), {.places = config.places});
  resident_experts base(weights);
  adapter_serving_pair out;
  out.base = times_of(serve_timed(weights, base, work.of_base, config).served);
  const auto run = serve_timed(weights, experts, work.requests, config, experts.virtual_experts(),
                               with_pins({}, experts));
  out.adapters = times_of(run.served);
  out.passes = run.served.stats.steps;
  out.pass_ns = ratio(run.ns, out.passes);
  out.experts = experts.stats();
  out.registry = experts.registry_stats();
  out.refusals = static_cast<std::size_t>(std::ranges::count_if(
      run.served.requests, [](const served_request& one) { return !one.refusal.empty(); }));
  check.look_at(run.served);
  return out;
}

/// The figure of each pair. Shape: [pairs].
template <class Figure>
std::vector<double> each(const adapter_serving_result& run, Figure figure) {
  std::vector<double> out;
  for (const auto& pair : run.pairs) out.push_back(static_cast<double>(std::invoke(figure, pair)));
  return out;
}
/// Median; of an even number the lower of the middle two, so that a count stays a measured one.
template <class Figure>
double median(const adapter_serving_result& run, Figure figure) {
  auto values = each(run, figure);
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::ranges::sort(values);
  return nearest_rank(values, 50);
}
template <class Figure>
std::uint64_t median_count(const adapter_serving_result& run, Figure figure) {
  return static_cast<std::uint64_t>(median(run, figure));
}
request_times median_times(const adapter_serving_result& run,
                           request_times adapter_serving_pair::*side) {
  const auto of = [&](double request_times::*time) {
    return median(run, [&](const adapter_serving_pair& pair) { return pair.*side.*time; });
  };
  return {.first_mean = of(&request_times::first_mean),
          .first_p50 = of(&request_times::first_p50),
          .first_p99 = of(&request_times::first_p99),
          .token = of(&request_times::token)};
}
std::uint64_t median_of_registry(const adapter_serving_result& run,
                                 std::uint64_t hotset::adapter_registry_stats::*what) {
  return median_count(run, [&](const adapter_serving_pair& pair) { return pair.registry.*what; });
}
double extra_bytes(const adapter_serving_result& run) {
  return median(run, &adapter_serving_pair::extra_experts) * static_cast<double>(run.expert_bytes);
}
std::size_t most_refusals(const adapter_serving_result& run) {
  return std::ranges::max_element(run.pairs, {}, &adapter_serving_pair::refusals)->refusals;
}

ordered_json number(double value) {
  return std::isnan(value) ? ordered_json() : ordered_json(value);
}
ordered_json first_token_json(const request_times& times) {
  ordered_json out;
  out["mean"] = number(times.first_mean);
  out["p50"] = number(times.first_p50);
  out["p99"] = number(times.first_p99);
  return out;
}

template <class Figure>
ordered_json numbers(const adapter_serving_result& run, Figure figure) {
  ordered_json out = ordered_json::array();
  for (const auto value : each(run, figure)) out.push_back(number(value));
  return out;
}

ordered_json row_of(const adapter_serving_result& run) {
  using pair = adapter_serving_pair;
  using registry = hotset::adapter_registry_stats;
  const auto adapters = median_times(run, &pair::adapters);
  const auto base = median_times(run, &pair::base);
  ordered_json row;
  row["adapters"] = run.config.adapters;
  row["alpha"] = run.config.alpha;
  row["ttft_ms"] = first_token_json(adapters);
  row["token_ms"] = number(adapters.token);
  row["base"]["ttft_ms"] = first_token_json(base);
  row["base"]["token_ms"] = number(base.token);
  row["ttft_over_base"] = number(median(run, &pair::first_over_base));
  row["token_over_base"] = number(median(run, &pair::token_over_base));
  row["passes"] = median_count(run, &pair::passes);
  row["pass_ns"] = number(median(run, &pair::pass_ns));
  row["reroute_ns"] = number(median(run, &pair::reroute_ns));
  row["reroute_share"] = number(median(run, &pair::reroute_share));
  row["extra_weight_bytes"] = number(extra_bytes(run));
  row["weight_byte_ratio"] = number(median(run, &pair::weight_byte_ratio));
  row["loads"] = median_of_registry(run, &registry::loads);
  row["evictions"] = median_of_registry(run, &registry::evictions);
  row["refused_acquires"] = median_of_registry(run, &registry::refusals);
  row["refusals"] = most_refusals(run);
  row["outputs_checked"] = run.checked;
  row["outputs_identical"] = run.different == 0;
  row["ttft_over_base_of_pairs"] = numbers(run, &pair::first_over_base);
  row["token_over_base_of_pairs"] = numbers(run, &pair::token_over_base);
  return row;
}

std::string decimals(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}
std::string signed_percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:+.1f}", 100 * share);
}

/// Minimum and maximum over all pairs.
template <class Figure>
std::string range_percent(const adapter_serving_result& run, Figure figure) {
  auto values = each(run, figure);
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return "-";
  const auto [least, most] = std::ranges::minmax(values);
  return fmt::format("{:+.1f}..{:+.1f}", 100 * least, 100 * most);
}

constexpr hotset::lab::column table_columns[] = {
    {"adapters", "adapters", "adapters"},
    {"alpha", "alpha", "alpha"},
    {"ttft", "ttft", "TTFT ms"},
    {"p50", "p50", "p50", {}, 2},
    {"p99", "p99", "p99", {}, 1},
    {"ttft-over-base", "ttft-over-base", "over base %"},
    {"ttft-of-pairs", "ttft-of-pairs", "of pairs", {}, 2},
    {"token", "token", "ms/token"},
    {"token-over-base", "token-over-base", "over base %"},
    {"token-of-pairs", "token-of-pairs", "of pairs", {}, 2},
    {"reroute", "reroute", "reroute us", {}, 1},
    {"reroute-share", "reroute-share", "% of pass"},
    {"extra", "extra", "extra KiB", {}, 1},
    {"weights", "weights", "weights"},
    {"loads", "loads", "loads", {}, 1},
    {"waits", "waits", "waits", {}, 3},
    {"refused", "refused", "refused", {}, 3}};

/// One text per column.
std::vector<std::string> cells_of(const adapter_serving_result& run) {
  using pair = adapter_serving_pair;
  using registry = hotset::adapter_registry_stats;
  const auto times = median_times(run, &pair::adapters);
  return {std::to_string(run.config.adapters),
          fmt::format("{}", run.config.alpha),
          decimals(times.first_mean, 2),
          decimals(times.first_p50, 2),
          decimals(times.first_p99, 2),
          signed_percent(median(run, &pair::first_over_base)),
          range_percent(run, &pair::first_over_base),
          decimals(times.token, 3),
          signed_percent(median(run, &pair::token_over_base)),
          range_percent(run, &pair::token_over_base),
          decimals(median(run, &pair::reroute_ns) * 1e-3, 2),
          decimals(100 * median(run, &pair::reroute_share), 2),
          decimals(extra_bytes(run) / 1024, 0),
          decimals(median(run, &pair::weight_byte_ratio), 3),
          std::to_string(median_of_registry(run, &registry::loads)),
          std::to_string(median_of_registry(run, &registry::refusals)),
          std::to_string(most_refusals(run))};
}

}  // namespace

hotset::validation adapter_serving_config::validate(const model_config& shape) const {
  const auto refuse = [](const char* name, auto value, auto least, auto most) {
    return hotset::error{fmt::format("{} = {}, accepted: {}..{}", name, value, least, most)};
  };
  if (adapters < 1 || adapters > most_adapters)
    return refuse("adapters", adapters, 1, most_adapters);
  if (!(alpha >= 0.001 && alpha <= 1)) return refuse("alpha", alpha, 0.001, 1);
  if (!(rate >= 0.001 && rate <= 1e6)) return refuse("rate", rate, 0.001, 1'000'000);
  if (requests < 1 || requests > most_requests)
    return refuse("requests", requests, 1, most_requests);
  if (repeats < 1 || repeats > most_repeats) return refuse("repeats", repeats, 1, most_repeats);
  if (prompt_tokens < 1 || prompt_tokens > shape.max_positions)
    return refuse("prompt tokens", prompt_tokens, 1, shape.max_positions);
  const auto most = shape.max_positions - prompt_tokens + 1;
  if (tokens < 1 || tokens > most) return refuse("tokens", tokens, 1, most);
  return std::nullopt;
}

std::vector<double> adapter_shares(std::size_t adapters, double alpha) {
  const auto below = [&](std::size_t i) {
    return std::pow(static_cast<double>(i) / static_cast<double>(adapters), alpha);
  };
  std::vector<double> out;
  for (std::size_t i = 0; i < adapters; ++i) out.push_back(below(i + 1) - below(i));
  return out;
}

std::vector<serving_request> adapter_requests(const adapter_serving_config& config,
                                              std::span<const std::string> names,
                                              std::span<const named_text> texts) {
  const auto shares = adapter_shares(config.adapters, config.alpha);
  hotset::splitmix64 seeds(config.seed);
  std::vector<request_stream> streams;
  for (std::size_t a = 0; a < config.adapters; ++a)
    streams.emplace_back(static_cast<adapter_id>(a + 1), config.rate * shares[a], seeds.next(),
                         texts_about(names[a], texts));
  std::vector<serving_request> out;
  out.reserve(config.requests);
  while (out.size() < config.requests)
    out.push_back(
        std::ranges::min_element(streams, {}, &request_stream::next_seconds)->take(config));
  return out;
}

request_times times_of(const serving_report& served) {
  constexpr double ms = 1e-6;
  std::vector<double> first;
  std::vector<double> token;
  for (const auto& one : served.requests) {
    if (!one.refusal.empty()) continue;
    first.push_back(static_cast<double>(one.first_token) * ms);
    if (one.output.size() > 1)
      token.push_back(static_cast<double>(one.steps - one.first_token) * ms /
                      static_cast<double>(one.output.size() - 1));
  }
  std::ranges::sort(first);
  return {.first_mean = mean(first),
          .first_p50 = nearest_rank(first, 50),
          .first_p99 = nearest_rank(first, 99),
          .token = mean(token)};
}

double adapter_serving_pair::first_over_base() const noexcept {
  return over(adapters.first_mean, base.first_mean);
}
double adapter_serving_pair::token_over_base() const noexcept {
  return over(adapters.token, base.token);
}
double adapter_serving_pair::reroute_ns() const noexcept {
  return ratio(static_cast<double>(experts.reroute_ns), passes);
}
double adapter_serving_pair::reroute_share() const noexcept { return reroute_ns() / pass_ns; }
double adapter_serving_pair::extra_experts() const noexcept {
  return ratio(
      static_cast<double>(experts.virtual_experts) - static_cast<double>(experts.base_experts),
      passes);
}
double adapter_serving_pair::weight_byte_ratio() const noexcept {
  return ratio(static_cast<double>(experts.virtual_experts), experts.base_experts);
}

adapter_serving_result serve_adapters(const model& weights,
                                      std::span<const adapter_weights> adapters,
                                      std::span<const named_text> texts,
                                      const adapter_serving_config& config) {
  hotset::require_valid(config.validate(weights.config()));
  const auto work = workload_of(adapters, texts, config);
  output_check check(weights, work, config);
  adapter_serving_result out;
  out.config = config;
  out.expert_bytes = weights.config().expert_bytes();
  for (std::size_t i = 0; i < config.repeats; ++i)
    out.pairs.push_back(serve_pair(weights, work, config, check));
  out.checked = check.checked();
  out.different = check.different();
  return out;
}

bool same_as_merged(std::span<const adapter_serving_result> runs) {
  return std::ranges::all_of(runs, [](const auto& run) { return run.different == 0; });
}

ordered_json to_json(std::span<const adapter_serving_result> runs) {
  const auto& config = runs.front().config;
  ordered_json out;
  out["schema"] = adapter_serving_schema;
  out["model"] = "tiny-moe";
  out["rate"] = config.rate;
  out["requests"] = config.requests;
  out["prompt_tokens"] = config.prompt_tokens;
  out["tokens"] = config.tokens;
  out["places"] = config.places;
  out["seed"] = config.seed;
  out["repeats"] = config.repeats;
  out["bytes_per_expert"] = runs.front().expert_bytes;
  out["outputs_identical"] = same_as_merged(runs);
  out["results"] = ordered_json::array();
  for (const auto& run : runs) out["results"].push_back(row_of(run));
  return out;
}

std::vector<std::string> adapter_serving_columns() { return hotset::lab::names_of(table_columns); }

std::string to_table(std::span<const adapter_serving_result> runs,
                     const hotset::lab::table_view& view) {
  const auto& first = runs.front();
  const auto head = fmt::format(
      "{} requests of {} + {} tokens, {} a second of all adapters; an expert is {}\n"
      "base: the same requests by the base model alone; reroute, extra weight bytes: of a pass\n"
      "medians of {} run{}; over base: of a pair, a run of the base model and then one of the "
      "adapters\n\n",
      first.config.requests, first.config.prompt_tokens, first.config.tokens, first.config.rate,
      hotset::lab::size_text(first.expert_bytes), first.config.repeats,
      first.config.repeats == 1 ? "" : "s");
  std::vector<hotset::lab::row> rows;
  for (const auto& run : runs) {
    const auto cells = cells_of(run);
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) row[table_columns[i].key] = cells[i];
  }
  return hotset::lab::folded(head, view.width) + hotset::lab::to_table(table_columns, rows, view);
}

}  // namespace tiny_moe
