// SPDX-License-Identifier: Apache-2.0
// tiny_moe serve-trace: options to runs and their report.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "hotset/cache/live_view.hpp"
#include "lab/errors.hpp"
#include "lab/files/program.hpp"
#include "lab/sizes.hpp"
#include "lab/traces/requests.hpp"
#include "tiny_moe/commands/commands.hpp"
#include "tiny_moe/serving/request_shapes.hpp"
#include "tiny_moe/serving/trace_serving.hpp"
#include "tiny_moe/studies/calibration.hpp"
#include "tiny_moe/studies/verification.hpp"

namespace tiny_moe {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text,
                         std::string_view accepted) {
  throw hotset::lab::usage_error(fmt::format("{} '{}'; accepted: {}", option, text, accepted));
}

double rate_of(const std::string& text) {
  return static_cast<double>(
      hotset::lab::for_option("--link", [&] { return hotset::lab::read_rate(text); }));
}

/// Prices from the options; missing ones are measured.
hotset::cost_model prices_of(const model& weights, const serving_options& chosen) {
  hotset::cost_model prices;
  if (chosen.link.empty() || chosen.recompute.empty()) prices = calibrate(weights);
  if (!chosen.link.empty()) prices.seconds_per_byte = 1 / rate_of(chosen.link);
  if (chosen.recompute.empty()) return prices;
  const auto recompute = hotset::lab::for_option(
      "--recompute", [&] { return hotset::lab::read_duration(chosen.recompute); });
  prices.recompute_seconds_per_token = static_cast<double>(recompute) * 1e-9;
  return prices;
}

/// Texts whose names begin with the prefix; all for an empty prefix.
std::vector<std::string> texts_of_user(std::span<const named_text> texts,
                                       const std::string& beginning) {
  std::vector<named_text> own;
  for (const auto& one : texts)
    if (one.name.starts_with(beginning)) own.push_back(one);
  if (own.empty())
    refuse("--user-prompts", beginning,
           "the beginning of a prompt's name, such as " + texts.front().name.substr(0, 4));
  return words_of(own);
}

/// Requests of several traces in sequence; each trace is a user.
std::vector<serving_request> requests_of(const options& chosen,
                                         std::span<const std::filesystem::path> traces) {
  const auto& serving = chosen.serving;
  const auto texts = read_texts(chosen.prompts, chosen.model);
  const auto& topics = serving.user_prompts;
  if (!topics.empty() && topics.size() != serving.traces.size())
    refuse("--user-prompts", fmt::format("{} names", topics.size()),
           fmt::format("one for each of the {} traces", serving.traces.size()));
  std::vector<serving_request> all;
  std::uint32_t user = 0;
  request_scaling scaling{.scale = serving.scale,
                          .steps_per_second = serving.steps_per_second,
                          .most = serving.requests,
                          .first_arrival = 0,
                          .seed = serving.seed};
  for (const auto& path : traces) {
    const auto own = texts_of_user(texts, topics.empty() ? "" : topics[user]);
    auto some =
        shaped_requests(hotset::lab::open_requests(hotset::lab::input_path(path)), own, scaling);
    for (auto& one : some) {
      scaling.first_arrival = std::max(scaling.first_arrival, one.arrival + 1);
      one.user = user;
    }
    ++scaling.seed;  // the next trace gets other texts
    ++user;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

trace_serving_config config_of(const model& weights, const options& all) {
  const auto& chosen = all.serving;
  trace_serving_config out;
  out.budget_bytes = hotset::lab::for_option(
      "--budget", [&] { return hotset::lab::read_size(chosen.budget, "MiB"); });
  out.block_tokens = chosen.block_tokens;
  out.serving = {.max_sessions = chosen.max_sessions, .max_tokens = chosen.max_tokens};
  out.eviction = chosen.eviction;
  out.prices = prices_of(weights, chosen);
  if (chosen.emulates_link)
    out.link = hotset::link_model::config{.bytes_per_second =
                                              static_cast<std::uint64_t>(rate_of(chosen.link))};
  out.warmup = chosen.warmup;
  out.burst = chosen.burst;
  out.decay = chosen.decay;
  out.gate = chosen.gate;
  out.max_move = chosen.max_move;
  out.dead_zone = chosen.dead_zone;
  out.headroom_percent = chosen.headroom;
  out.count_reuse = chosen.count_reuse;
  out.coverage = chosen.coverage;
  if (!chosen.profile.empty()) out.profile = requests_of(all, std::span(&chosen.profile, 1));
  return out;
}

/// Expands "sweep" and "sweep:4" to fixed splits, including the last one.
void add_sweep(const std::string& text, const hotset::split_limits& limits,
               std::vector<split_choice>& out) {
  std::uint64_t stride = 1;
  const auto digits = std::string_view(text).substr(std::min<std::size_t>(text.size(), 6));
  const auto* const end = digits.data() + digits.size();
  if (!digits.empty()) {
    const auto [rest, code] = std::from_chars(digits.data(), end, stride);
    if (code != std::errc{} || rest != end || stride == 0 || stride > limits.max_cap)
      refuse("--split", text, "sweep, or sweep:4 for every fourth split");
  }
  for (auto cap = limits.min_cap; cap < limits.largest_cap(); cap += stride)
    out.push_back({.rule = split_rule::fixed, .cap = cap});
  out.push_back({.rule = split_rule::fixed, .cap = limits.largest_cap()});
}

std::vector<split_choice> choices_of(const std::vector<std::string>& splits,
                                     const hotset::split_limits& limits) {
  std::vector<split_choice> out;
  for (const auto& text : splits) {
    if (text == "sweep" || text.starts_with("sweep:"))
      add_sweep(text, limits, out);
    else
      out.push_back(split_choice::parse(text));
  }
  return out;
}

/// The run's view, or null. Errors: hotset::lab::usage_error for several runs or no address; std::runtime_error for an
/// address or a file that cannot be used.
std::unique_ptr<hotset::live_view> view_of(const model& weights, const serving_options& chosen,
                                           const trace_serving_config& config, std::size_t runs) {
  const hotset::live_view_config wanted{
      .metrics = chosen.metrics, .timeline = chosen.timeline, .engine = "tiny_moe serve-trace"};
  if (wanted.is_empty()) return nullptr;
  if (runs != 1)
    refuse(chosen.metrics.empty() ? "--timeline" : "--metrics", fmt::format("{} runs", runs),
           "one --split");
  hotset::lab::for_option("--metrics", [&] { hotset::require_valid(wanted.validate()); });
  auto made = hotset::live_view::create(wanted, served_shape(weights, config), config.eviction);
  if (!made) throw std::runtime_error(made.error().message);
  if (!chosen.metrics.empty()) fmt::print(stderr, "metrics: {}\n", (*made)->url());
  return *std::move(made);
}

void print_refusals(const trace_serving_result& run) {
  for (const auto& one : run.served.requests)
    if (!one.refusal.empty()) return fmt::print("first refusal: {}\n", one.refusal);
}

}  // namespace

int serve_trace(const options& chosen) {
  const hotset::lab::table_view view{.width = hotset::lab::output_width(),
                                     .columns = chosen.columns};
  hotset::lab::check_columns(view, serving_columns());
  const model weights(chosen.model);
  auto config =
      // Before files are read, so that invalid options are refused at once.
      config_of(weights, chosen);
  const auto requests = requests_of(chosen, chosen.serving.traces);
  const auto choices = choices_of(chosen.serving.splits, limits_of(weights, requests, config));
  const auto live = view_of(weights, chosen.serving, config, choices.size());
  config.view = live.get();
  std::vector<trace_serving_result> runs;
  runs.reserve(choices.size());
  for (const auto& choice : choices) runs.push_back(serve_trace(weights, requests, config, choice));
  if (live != nullptr)
    if (const auto failed = live->finish()) throw std::runtime_error(failed->message);
  if (chosen.as_json) {
    fmt::print("{}\n", to_json(weights, config, runs).dump(2));
  } else {
    fmt::print("{}", to_table(weights, config, runs, view));
    print_refusals(runs.front());
    if (runs.size() > 1)
      fmt::print("outputs of all {} runs: {}\n", runs.size(),
                 same_outputs(runs) ? "identical" : "DIFFER");
  }
  return same_outputs(runs) ? ok : failure;
}

}  // namespace tiny_moe
