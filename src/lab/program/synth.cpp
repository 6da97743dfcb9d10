// SPDX-License-Identifier: Apache-2.0
// hotset synth: a trace made from a seed.
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_output.hpp"
#include "lab/sizes.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::cli {
namespace {

struct synth_options {
  std::filesystem::path out;
  synthetic_config config;
  std::string expert_bytes = "1MiB";
  std::string name;
  bool no_weights = false;
};

/// Errors: usage_error.
void read_noise(const std::string& text, synthetic_config& config) {
  constexpr std::string_view exchange = "exchange:";
  constexpr std::string_view gaussian = "gaussian:";
  std::string_view number = text;
  double most = 1;
  config.predictor_noise_kind = noise_kind::exchange;
  if (number.starts_with(gaussian)) {
    config.predictor_noise_kind = noise_kind::gaussian;
    number.remove_prefix(gaussian.size());
    most = synthetic_config::most_gaussian_noise;
  } else if (number.starts_with(exchange)) {
    number.remove_prefix(exchange.size());
  }
  const auto noise = read_number<double>(number, 0.0, most);
  if (!noise) refuse_option("--predictor-noise", text, "0..1, exchange:0..1 or gaussian:0..16");
  config.predictor_noise = *noise;
}

/// What only a trace with scores has.
void add_scores(CLI::App& app, synthetic_config& config) {
  auto* const scores = app.add_flag("--scores", config.scores,
                                    "record router logits, probabilities and predictions, too");
  add_number(app, "--routed-mass", config.routed_mass, 0.0, 0.99,
             "least share of the probability that the routed experts hold")
      ->needs(scores)
      ->excludes(app.get_option("--autoregression"));
  app.add_option_function<std::string>(
         "--predictor-noise", [&config](const std::string& text) { read_noise(text, config); },
         "how wrong predictions are: exchange, chance that an expert's is another one's; gaussian, "
         "standard deviation of what is added to the logits")
      ->type_name("[KIND:]N")
      ->default_str("exchange:0")
      ->needs(scores);
}

routing_trace made(const synthetic_config& config) {
  const shown_progress shown("making the trace");
  std::optional<lab::progress> told;
  auto trace = synthetic_trace(config, [&](std::uint64_t done, std::uint64_t total) {
    if (!told) told.emplace(total);
    told->at(done);
  });
  if (told && trace) told->at(trace->tokens());
  return std::move(trace).value();
}

int synthesise(const synth_options& options) {
  auto config = options.config;
  config.expert_bytes =
      for_option("--expert-bytes", [&] { return lab::read_size(options.expert_bytes, "MiB"); });
  config.weights = !options.no_weights;
  output_file out(options.out, lab::output_content::binary);
  auto trace = made(config);
  if (!options.name.empty()) trace.name = options.name;
  write_trace(trace, out);
  return ok;
}

void add_shape(CLI::App& app, synthetic_config& config) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  add_number(app, "--layers", config.layers, 1, most, "MoE layers");
  add_number(app, "--experts", config.experts, 1, 65535, "experts of a layer");
  add_number(app, "--top-k", config.top_k, 1, most, "experts of a token");
  add_number(app, "--sequences", config.sequences, 1U, many, "sequences, one after the other");
  add_number(app, "--tokens", config.tokens, 0U, many, "decoded tokens of each sequence");
  add_number(app, "--prefill", config.prefill, 0U, many,
             "prompt tokens of each sequence, which are one step");
}

/// Steps that route all positions of a text anew; the other way to say --tokens.
void add_diffusion(CLI::App& app, synthetic_config& config) {
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  auto* const tokens = app.get_option("--tokens");
  auto* const positions =
      add_number(app, "--positions", config.positions, 1U, many,
                 "tokens of each sequence that every step routes anew, as in diffusion");
  positions->excludes(tokens);
  add_number(app, "--steps", config.tokens, 0U, many, "steps that route all positions")
      ->needs(positions);
  add_number(app, "--position-stickiness", config.position_stickiness, 0.0, 1.0,
             "chance that a position keeps its experts in a layer from the step before")
      ->needs(positions);
}

/// Logits that decide the routing; the other way to make it.
void add_logits(CLI::App& app, synthetic_config& config) {
  auto* const correlation =
      app.add_option_function<std::string>(
             "--autoregression",
             [&config](const std::string& text) {
               config.autoregression = read_number<double>(text, 0.0, 1.0);
               if (!config.autoregression || *config.autoregression == 1)
                 refuse_option("--autoregression", text, "0 or more, below 1");
             },
             "correlation of router logits from token to token; they then decide the routing")
          ->type_name("N")
          ->excludes(app.get_option("--stickiness"))
          ->excludes(app.get_option("--position-stickiness"));
  app.add_option_function<std::string>(
         "--logit-spread",
         [&config](const std::string& text) {
           const auto spread = read_number<double>(text, 0.0, synthetic_config::most_logit_spread);
           if (!spread || *spread == 0)
             refuse_option("--logit-spread", text, "more than 0, at most 8");
           config.logit_spread = *spread;
         },
         "standard deviation of those logits")
      ->type_name("N")
      ->default_str(fmt::format("{}", config.logit_spread))
      ->needs(correlation);
}

void add_behaviour(CLI::App& app, synthetic_config& config) {
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  add_number(app, "--zipf", config.zipf, 0.0, 8.0,
             "the r-th most popular expert has popularity 1 / r^N; 0 is uniform");
  add_number(app, "--stickiness", config.stickiness, 0.0, 1.0,
             "chance that a rank repeats the previous token's expert");
  add_logits(app, config);
  add_number(app, "--phase-every", config.phase_length, 0U, many,
             "tokens after which other experts become popular; 0: never");
  add_number(app, "--seed", config.seed, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max(),
             "the same seed gives the same trace anywhere");
}

}  // namespace

command add_synth(CLI::App& root) {
  auto* app = root.add_subcommand("synth", "Make a trace from a seed");
  auto options = std::make_shared<synth_options>();
  app->add_option("OUT", options->out, "native trace to write (safetensors)")
      ->required()
      ->type_name("FILE");
  add_shape(*app, options->config);
  add_diffusion(*app, options->config);
  add_behaviour(*app, options->config);
  app->add_option("--expert-bytes", options->expert_bytes, "bytes of an expert")
      ->type_name("SIZE")
      ->capture_default_str();
  app->add_option("--name", options->name, "what reports call the trace")->type_name("TEXT");
  app->add_flag("--no-weights", options->no_weights, "leave the gate weights out");
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
