// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/trace_serving.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/sizes.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/engine.hpp"

namespace tiny_moe {
namespace {

using nlohmann::ordered_json;

std::size_t longest_of(std::span<const serving_request> requests, std::size_t most) {
  std::size_t longest = 1;
  for (const auto& one : requests)
    if (one.longest() <= most) longest = std::max(longest, one.longest());
  return longest;
}

/// Upper bound on distinct full blocks: the full blocks of all requests.
std::uint64_t most_contents(std::span<const serving_request> requests, std::size_t block_tokens) {
  std::uint64_t blocks = 0;
  for (const auto& one : requests) blocks += one.longest() / block_tokens;
  return blocks;
}

std::uint32_t users_of(std::span<const serving_request> requests) {
  std::uint32_t last = 0;
  for (const auto& one : requests) last = std::max(last, one.user);
  return last + 1;
}

/// Maximum rows of a pass, of prompts or of one token per session.
std::size_t rows_of_pass(const trace_serving_config& config) {
  return std::max(config.serving.max_tokens, config.serving.max_sessions);
}

paging_config paging_of(const model& weights, const trace_serving_config& config,
                        hotset::memory_budget& budget) {
  const auto shape = served_shape(weights, config);
  return {.layout = hotset::pool_layout::per_layer(shape, shape.experts).value(),
          .link = config.link,
          .memory = &budget,
          .view = config.view};
}

std::uint64_t slot_bytes_of(const model& weights, const trace_serving_config& config) {
  hotset::memory_budget none;
  return bank_of(weights, paging_of(weights, config, none)).slot_bytes(0) * weights.config().layers;
}

split_controller controller_of(const model& weights, const trace_serving_config& config,
                               const hotset::split_limits& limits, split_rule rule) {
  if (rule == split_rule::marginal_value) {
    hotset::marginal_value::config options;
    options.limits = limits;
    options.seconds_per_expert_miss = config.prices.expert_miss(weights.config().expert_bytes());
    options.seconds_per_kv_miss = config.prices.kv_miss(config.block_tokens);
    options.decay = config.decay;
    options.gate = config.gate;
    options.max_move = config.max_move;
    options.dead_zone = config.dead_zone;
    return hotset::marginal_value::create(options).value();
  }
  if (rule == split_rule::dual_resize)
    return hotset::dual_resize::create({.limits = limits,
                                        .headroom_percent = config.headroom_percent,
                                        .dead_zone = config.dead_zone,
                                        .count_reuse = config.count_reuse})
        .value();
  if (rule == split_rule::right_sizing)
    return hotset::right_sizing::create({.limits = limits,
                                         .experts = weights.config().experts,
                                         .coverage = config.coverage,
                                         .dead_zone = config.dead_zone})
        .value();
  return fixed_split{};
}

hotset::pool_sizes first_split(const hotset::split_limits& limits, const split_choice& choice) {
  if (choice.cap < limits.min_cap || choice.cap > limits.largest_cap())
    throw hotset::lab::usage_error(fmt::format("a cap of {}; accepted: {}..{}", choice.cap,
                                               limits.min_cap, limits.largest_cap()));
  return {choice.cap, limits.blocks_beside(choice.cap)};
}

double over_best(double seconds, double best) { return best > 0 ? seconds / best - 1 : 0; }

/// Experts, blocks and an engine within one budget.
class shared_memory_engine {
 public:
  shared_memory_engine(const model& weights, std::span<const serving_request> requests,
                       const trace_serving_config& config, const split_choice& choice,
                       hotset::memory_budget& budget)
      : limits_(limits_of(weights, requests, config)),
        first_(first_split(limits_, choice)),
        experts_(make_paged_experts(weights, paging_of(weights, config, budget), config.eviction)),
        pool_(weights.config(), blocks_of(config, budget)),
        split_(weights.config(), rows_of_pass(config), *experts_->slots(), pool_,
               [this] { experts_->drain(); },
               {.limits = limits_,
                .controller = controller_of(weights, config, limits_, choice.rule),
                .burst = config.burst,
                .most_contents = most_contents(requests, config.block_tokens),
                .users = users_of(requests)}),
        observed_(*experts_, split_),
        decoder_(weights, observed_, pool_,
                 {.max_positions = 0, .max_tokens = rows_of_pass(config)}) {
    if (experts_->slots()->open(first_.cap) != hotset::status::ok)
      throw hotset::lab::infeasible_error(fmt::format(
          "memory for {} expert slots a layer is refused; accepted: fewer", first_.cap));
  }

  serving_report serve(std::span<const serving_request> requests,
                       const trace_serving_config& config, const between_steps& watch) {
    auto serving = config.serving;
    serving.on_rows = [this](std::span<const std::uint32_t> users) { split_.on_rows(users); };
    auto report = tiny_moe::serve(decoder_, requests, serving, [&](const drained_point& now) {
      experts_->publish();
      if (now.ended < config.warmup)
        before_ = {experts_->stats().misses, now.stats.prefilled_tokens};
      if (watch) watch(now);
      split_.between(now);
    });
    experts_->drain();
    experts_->publish();
    return report;
  }
  [[nodiscard]] const hotset::pool_sizes& first() const noexcept { return first_; }
  [[nodiscard]] const live_split& split() const noexcept { return split_; }
  [[nodiscard]] std::uint64_t expert_misses() const {
    return experts_->stats().misses - before_.expert_misses;
  }
  /// Tokens prefilled before accounting began.
  [[nodiscard]] std::uint64_t free_tokens() const noexcept { return before_.prefilled_tokens; }

 private:
  struct account {
    std::uint64_t expert_misses = 0;
    std::uint64_t prefilled_tokens = 0;
  };
  kv_pool_config blocks_of(const trace_serving_config& config, hotset::memory_budget& budget) {
    return {.block_tokens = config.block_tokens,
            .blocks = first_.blocks,
            .on_reference = [this](const block_reference& block) { split_.on_reference(block); },
            .budget = &budget};
  }

  hotset::split_limits limits_;
  hotset::pool_sizes first_;
  std::unique_ptr<paged_provider> experts_;
  kv_pool pool_;
  live_split split_;
  observed_experts observed_;
  batch_engine decoder_;
  account before_;
};

std::int64_t refusals_of(const trace_serving_result& run) {
  return std::count_if(run.served.requests.begin(), run.served.requests.end(),
                       [](const served_request& one) { return !one.refusal.empty(); });
}

ordered_json row_of(const trace_serving_result& run, const trace_serving_result* best) {
  const auto& served = run.served.stats;
  ordered_json caps = ordered_json::array();
  for (const auto& at : run.split.history) caps.push_back({at.step, at.sizes.cap});
  ordered_json row;
  row["split"] = run.choice.name();
  row["first_cap"] = run.first.cap;
  row["cap"] = run.last.cap;
  row["kv_blocks"] = run.last.blocks;
  row["seconds"] = run.seconds;
  row["expert_seconds"] = run.expert_seconds;
  row["kv_seconds"] = run.kv_seconds;
  row["over_best_fixed"] =
      best == nullptr ? ordered_json() : ordered_json(over_best(run.seconds, best->seconds));
  row["expert_misses"] = run.expert_misses;
  row["prefilled_tokens"] = run.prefilled_tokens;
  row["reused_tokens"] = served.reused_tokens;
  row["recomputed_tokens"] = served.recomputed_tokens;
  row["preemptions"] = served.preemptions;
  row["refusals"] = refusals_of(run);
  row["passes"] = served.steps;
  row["moves"] = run.split.moves;
  row["refused_moves"] = run.split.refused;
  row["peak_bytes"] = run.peak_bytes;
  row["wall_seconds"] = run.wall_seconds;
  row["caps"] = std::move(caps);
  return row;
}

}  // namespace

split_choice split_choice::parse(const std::string& text) {
  if (text == "mv-wsa") return {.rule = split_rule::marginal_value};
  if (text == "dual-resize") return {.rule = split_rule::dual_resize};
  if (text == "right-size") return {.rule = split_rule::right_sizing};
  split_choice out;
  const auto* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, out.cap);
  if (code != std::errc{} || rest != end || out.cap == 0)
    hotset::lab::refuse_name("split", text, {"mv-wsa", "dual-resize", "right-size", "sweep"},
                             ", sweep:4, or experts of a layer (1 or more)");
  return out;
}

std::string split_choice::name() const {
  switch (rule) {
    case split_rule::fixed: return fmt::format("fixed {}", cap);
    case split_rule::marginal_value: return "mv-wsa";
    case split_rule::dual_resize: return "dual-resize";
    case split_rule::right_sizing: return "right-size";
  }
  return "unknown";
}

hotset::validation trace_serving_config::validate() const {
  if (block_tokens < 1) return hotset::error{"block_tokens = 0, accepted: 1 or more"};
  if (burst < 1) return hotset::error{"burst = 0, accepted: 1 or more"};
  return prices.validate();
}

hotset::geometry served_shape(const model& weights, const trace_serving_config& config) {
  return geometry_of(weights, rows_of_pass(config));
}

hotset::split_limits limits_of(const model& weights, std::span<const serving_request> requests,
                               const trace_serving_config& config) {
  hotset::require_valid(config.validate());
  const auto longest = longest_of(requests, weights.config().max_positions);
  const hotset::split_limits limits{
      .budget_bytes = config.budget_bytes,
      .slot_bytes = slot_bytes_of(weights, config),
      .block_bytes = kv_pool::block_bytes(weights.config(), config.block_tokens),
      .min_cap = weights.config().top_k,
      .max_cap = weights.config().experts,
      .min_blocks = (longest + config.block_tokens - 1) / config.block_tokens};
  if (const auto bad = limits.validate()) throw hotset::lab::infeasible_error(bad->message);
  return limits;
}

std::uint64_t configured_cap(const model& weights, std::span<const serving_request> requests,
                             const trace_serving_config& config) {
  const auto limits = limits_of(weights, requests, config);
  if (config.profile.empty()) return limits.largest_cap();
  auto open_loop = config;
  open_loop.warmup = 0;
  open_loop.profile.clear();
  open_loop.link.reset();  // its cost is counted, not waited for
  open_loop.view = nullptr;
  const auto profiled =
      serve_trace(weights, config.profile, open_loop, {.rule = split_rule::marginal_value});
  return std::clamp(profiled.last.cap, limits.min_cap, limits.largest_cap());
}

trace_serving_result serve_trace(const model& weights, std::span<const serving_request> requests,
                                 const trace_serving_config& config, const split_choice& choice,
                                 hotset::memory_budget& budget, const between_steps& watch) {
  const split_choice placed{
      .rule = choice.rule,
      .cap = choice.cap == 0 ? configured_cap(weights, requests, config) : choice.cap};
  if (config.warmup > 0 && config.warmup >= requests.size())
    throw hotset::lab::usage_error(fmt::format("a warm-up of {} requests; accepted: fewer than {}",
                                               config.warmup, requests.size()));
  shared_memory_engine engine(weights, requests, config, placed, budget);
  const auto start = std::chrono::steady_clock::now();
  trace_serving_result out;
  out.served = engine.serve(requests, config, watch);
  out.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.choice = choice;
  out.first = engine.first();
  out.last = engine.split().sizes();
  out.split = engine.split().stats();
  out.expert_misses = engine.expert_misses();
  out.expert_seconds = config.prices.expert_miss(weights.config().expert_bytes()) *
                       static_cast<double>(out.expert_misses);
  out.prefilled_tokens = out.served.stats.prefilled_tokens - engine.free_tokens();
  out.kv_seconds = config.prices.kv_miss(out.prefilled_tokens);
  out.seconds = out.expert_seconds + out.kv_seconds;
  out.peak_bytes = budget.peak();
  return out;
}

trace_serving_result serve_trace(const model& weights, std::span<const serving_request> requests,
                                 const trace_serving_config& config, const split_choice& choice) {
  hotset::memory_budget budget(config.budget_bytes);
  return serve_trace(weights, requests, config, choice, budget);
}

bool same_outputs(std::span<const trace_serving_result> runs) {
  return std::all_of(runs.begin(), runs.end(), [&](const trace_serving_result& run) {
    return std::equal(run.served.requests.begin(), run.served.requests.end(),
                      runs.front().served.requests.begin(), runs.front().served.requests.end(),
                      [](const served_request& a, const served_request& b) {
                        return a.output == b.output && a.refusal.empty() == b.refusal.empty();
                      });
  });
}

const trace_serving_result* best_fixed(std::span<const trace_serving_result> runs) {
  const trace_serving_result* best = nullptr;
  for (const auto& run : runs)
    if (run.choice.rule == split_rule::fixed && (best == nullptr || run.seconds < best->seconds))
      best = &run;
  return best;
}

ordered_json to_json(const model& weights, const trace_serving_config& config,
                     std::span<const trace_serving_result> runs) {
  ordered_json out;
  out["schema"] = serving_schema;
  out["model"] = "tiny-moe";
  out["budget_bytes"] = config.budget_bytes;
  out["bytes_per_expert_slot"] = slot_bytes_of(weights, config);
  out["kv_bytes_per_block"] = kv_pool::block_bytes(weights.config(), config.block_tokens);
  out["block_tokens"] = config.block_tokens;
  out["requests"] = runs.empty() ? 0 : runs.front().served.requests.size();
  out["seconds_per_byte"] = config.prices.seconds_per_byte;
  out["seconds_per_token"] = config.prices.recompute_seconds_per_token;
  out["outputs_identical"] = same_outputs(runs);
  out["results"] = ordered_json::array();
  const auto* const best = best_fixed(runs);
  for (const auto& run : runs) out["results"].push_back(row_of(run, best));
  return out;
}

namespace {
constexpr hotset::lab::column run_columns[] = {
    {"split", "split", "split", {hotset::lab::cell::word}},
    {"cap", "cap", "cap"},
    {"blocks", "blocks", "blocks", {}, 2},
    {"seconds", "seconds", "seconds"},
    {"experts", "experts", "experts s", {}, 1},
    {"kv", "kv", "KV s", {}, 1},
    {"over-best", "over-best", "over best %"},
    {"misses", "misses", "misses", {}, 2},
    {"prefilled", "prefilled", "prefilled", {}, 3},
    {"reused", "reused", "reused", {}, 3},
    {"preempted", "preempted", "preem.", {}, 4},
    {"moves", "moves", "moves", {}, 2},
    {"refused", "refused", "refused", {}, 4}};
}  // namespace

std::vector<std::string> serving_columns() { return hotset::lab::names_of(run_columns); }

std::string to_table(const model& weights, const trace_serving_config& config,
                     std::span<const trace_serving_result> runs,
                     const hotset::lab::table_view& view) {
  using hotset::lab::size_text;
  const auto head = fmt::format(
      "{} requests, {}: an expert in every layer is {}, a KV block of {} tokens {}\n"
      "a byte over the link {:.3g} s, a token computed again {:.3g} s\n\n",
      runs.front().served.requests.size(), size_text(config.budget_bytes),
      size_text(slot_bytes_of(weights, config)), config.block_tokens,
      size_text(kv_pool::block_bytes(weights.config(), config.block_tokens)),
      config.prices.seconds_per_byte, config.prices.recompute_seconds_per_token);
  std::vector<hotset::lab::row> rows;
  const auto* const best = best_fixed(runs);
  const auto seconds = [](double value) { return fmt::format("{:.4f}", value); };
  for (const auto& run : runs)
    rows.push_back(
        {{"split", run.choice.name()},
         {"cap", run.last.cap},
         {"blocks", run.last.blocks},
         {"seconds", seconds(run.seconds)},
         {"experts", seconds(run.expert_seconds)},
         {"kv", seconds(run.kv_seconds)},
         {"over-best", best == nullptr
                           ? "-"
                           : fmt::format("{:+.1f}", 100 * over_best(run.seconds, best->seconds))},
         {"misses", run.expert_misses},
         {"prefilled", run.prefilled_tokens},
         {"reused", run.served.stats.reused_tokens},
         {"preempted", run.served.stats.preemptions},
         {"moves", run.split.moves},
         {"refused", refusals_of(run)}});
  return hotset::lab::folded(head, view.width) + hotset::lab::to_table(run_columns, rows, view);
}

}  // namespace tiny_moe
