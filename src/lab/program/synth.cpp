// SPDX-License-Identifier: Apache-2.0
// hotset synth: makes a trace from a seed.
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_output.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::cli {
namespace {

struct synth_options {
  std::filesystem::path out;
  synthetic_config config;
  std::string name;
};

/// Returns the amount of noise and sets `kind`. Errors: usage_error.
double read_noise(const std::string& text, noise_kind& kind) {
  const auto colon = text.find(':');
  const auto name = colon == text.npos ? "exchange" : text.substr(0, colon);
  const auto number = text.substr(colon == text.npos ? 0 : colon + 1);
  const bool gaussian = name == "gaussian";
  const auto noise =
      read_number<double>(number, 0.0, gaussian ? synthetic_config::most_gaussian_noise : 1.0);
  if (!noise || (!gaussian && name != "exchange"))
    refuse_option("--predictor-noise", text, "0..1, exchange:0..1 or gaussian:0..16");
  kind = gaussian ? noise_kind::gaussian : noise_kind::exchange;
  return *noise;
}

/// Adds options for traces with scores.
void add_scores(CLI::App& app, synthetic_config& config) {
  auto* const scores = app.add_flag("--scores", config.scores,
                                    "also record router logits, probabilities and predictions");
  add_parsed(
      app, "--predictor-noise", "KIND:N", config.predictor_noise,
      [&config](const std::string& text) { return read_noise(text, config.predictor_noise_kind); },
      "noise of the predictions: exchange:0.2 (chance that an expert gets another one's "
      "probability), gaussian:0.5 (standard deviation of the noise added to the logits)")
      ->default_str("exchange:0")
      ->needs(scores);
}

int synthesise(const synth_options& options) {
  output_file out(options.out, lab::output_content::binary);
  std::optional<routing_trace> trace;
  {
    const shown_progress shown("making the trace");
    std::optional<lab::progress> bar;
    trace = synthetic_trace(options.config, [&](std::uint64_t done, std::uint64_t total) {
              if (!bar) bar.emplace(total);
              bar->at(done);
            }).value();
    if (bar) bar->at(trace->tokens());
  }
  if (!options.name.empty()) trace->name = options.name;
  write_trace(*trace, out);
  return ok;
}

void add_shape(CLI::App& app, synthetic_config& config) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  add_number(app, "--layers", config.layers, 1, most, "MoE layers");
  add_number(app, "--experts", config.experts, 1, 65535, "experts per layer");
  add_number(app, "--top-k", config.top_k, 1, most, "experts per token");
  add_number(app, "--sequences", config.sequences, 1U, many, "sequences, one after the other");
  add_number(app, "--tokens", config.tokens, "decoded tokens of each sequence");
  add_number(app, "--prefill", config.prefill, "prompt tokens of each sequence, in one step");
}

/// Adds options for diffusion steps, which route all positions of a text again; they replace --tokens.
void add_diffusion(CLI::App& app, synthetic_config& config) {
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  auto* const tokens = app.get_option("--tokens");
  auto* const positions =
      add_number(app, "--positions", config.positions, 1U, many,
                 "tokens of each sequence that every step routes again, as in diffusion");
  positions->excludes(tokens);
  add_number(app, "--steps", config.tokens, "steps that route all positions")->needs(positions);
  add_number(app, "--position-stickiness", config.position_stickiness, 0.0, 1.0,
             "chance that a position keeps a layer's experts from the previous step")
      ->needs(positions);
}

/// Adds options for logits that decide the routing; they replace popularity and stickiness.
void add_logits(CLI::App& app, synthetic_config& config) {
  const auto below_1 = [](std::string_view text) {
    const auto value = read_number<double>(text, 0.0, 1.0);
    if (!value || *value == 1) refuse_option("--autoregression", text, "0 or more, below 1");
    return value;
  };
  auto* const correlation = add_parsed(app, "--autoregression", "N", config.autoregression, below_1,
                                       "correlation of router logits from token to token, at least "
                                       "0 and below 1; the logits then decide the routing");
  for (const char* const other : {"--stickiness", "--position-stickiness"})
    correlation->excludes(app.get_option(other));
}

void add_behaviour(CLI::App& app, synthetic_config& config) {
  add_number(app, "--zipf", config.zipf, 0.0, 8.0,
             "the r-th most popular expert has popularity 1 / r^N; 0 is uniform");
  add_number(app, "--stickiness", config.stickiness, 0.0, 1.0,
             "chance that a rank repeats the previous token's expert");
  add_logits(app, config);
  add_number(app, "--phase-every", config.phase_length,
             "tokens after which other experts become popular; 0: never");
  add_number(app, "--seed", config.seed,
             "seed: the same one gives the same trace on every machine");
}

}  // namespace

command add_synth(CLI::App& root) {
  auto* app = root.add_subcommand("synth", "Make a trace from a seed");
  auto options = std::make_shared<synth_options>();
  options->config.expert_bytes = std::uint64_t{1} << 20U;
  add_file(*app, "OUT", options->out, "native trace to write (safetensors)")->required();
  add_shape(*app, options->config);
  add_diffusion(*app, options->config);
  add_behaviour(*app, options->config);
  add_size(*app, "--expert-bytes", options->config.expert_bytes, "MiB", "size of an expert")
      ->default_str("1MiB");
  app->add_option("--name", options->name, "name of the trace in reports")->type_name("TEXT");
  app->add_flag_callback(
      "--no-weights", [&config = options->config] { config.weights = false; },
      "omit the gate weights");
  add_scores(*app, options->config);
  app->footer(R"(Examples:
  hotset synth demo.trace --layers 16 --experts 64 --top-k 6 --tokens 2000
  hotset synth drift.trace --zipf 1.2 --stickiness 0.3 --phase-every 500 --prefill 256 --seed 7
  hotset synth denoised.trace --positions 64 --steps 48 --position-stickiness 0.3
  hotset synth scored.trace --stickiness 0.4 --scores --predictor-noise 0.2
  hotset synth logits.trace --autoregression 0.9 --scores --predictor-noise gaussian:0.5)");
  return {app, [options] { return synthesise(*options); }};
}

}  // namespace hotset::cli
