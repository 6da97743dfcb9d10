// SPDX-License-Identifier: Apache-2.0
// hotset train-gate: networks that predict the layers ahead from hidden states, learnt from a trace and judged.
#include "lab/studies/train_gate.hpp"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/errors.hpp"
#include "lab/files/output_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/gate_report.hpp"

namespace hotset::cli {
namespace {

struct train_gate_options {
  std::filesystem::path trace;
  std::filesystem::path out;
  lab::gate_training training{};
  std::string target = "routed";
  bool as_json = false;
  trace_options reading;
};

lab::gate_training checked_training(const train_gate_options& options) {
  auto training = options.training;
  if (options.target != "routed" && options.target != "probabilities")
    lab::refuse_name("--target:", options.target, {"routed", "probabilities"});
  training.target =
      options.target == "routed" ? lab::gate_target::routed : lab::gate_target::probabilities;
  if (const auto bad = training.validate()) throw lab::usage_error(bad->message);
  return training;
}

std::string report_of(const lab::gate_training_result& result, bool as_json) {
  if (!as_json) return lab::to_table(result, {.width = lab::output_width(), .columns = {}});
  return lab::to_json_text(result);
}

int train(const train_gate_options& options) {
  const auto training = checked_training(options);
  const auto& reading = options.reading;
  output_file out(options.out, lab::output_content::binary);
  const auto opened = open_input(options.trace, reading);
  const auto result = [&] {
    const shown_progress shown(fmt::format("training on {}", printable(opened.trace.name, 40)));
    try {
      return lab::train_gate(opened.trace, training);
    } catch (const trace_error& error) {
      throw trace_error(with_path(opened.path, error.what()));
    }
  }();
  write_and_report(out, result.weights.save(), report_of(result, options.as_json));
  return ok;
}

}  // namespace

command add_train_gate(CLI::App& root) {
  auto* app = root.add_subcommand(
      "train-gate", "Train a predictor of the layers ahead on a trace's hidden states");
  auto options = std::make_shared<train_gate_options>();
  auto& training = options->training;
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  app->add_option("TRACE", options->trace, "trace that recorded hidden states")
      ->required()
      ->type_name("FILE");
  app->add_option("--out", options->out,
                  "weights to write, for --predictor learned-gate:weights=FILE")
      ->required()
      ->type_name("FILE");
  add_number(*app, "--depth", training.depth, 1, most, "layers ahead, each by networks of its own");
  add_number(*app, "--width", training.width, 0, 1 << 20,
             "hidden units of a network; 0: none, the networks are linear");
  add_number(*app, "--epochs", training.epochs, 1, 1 << 20, "times that each token is learnt from");
  add_number(*app, "--seed", training.seed, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max(),
             "the same seed gives the same weights on one machine");
  add_number(*app, "--holdout", training.holdout, 0.0, 0.99,
             "share of the sequences that are judged on, not learnt from; 0: none");
  app->add_option("--target", options->target,
                  "what the networks should give: routed (1/K for each routed expert), or "
                  "probabilities (those of the trace)")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.train-gate/1)");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset train-gate hidden.trace --out model.gate
  hotset train-gate hidden.trace --out model.gate --depth 4 --width 128 --epochs 20 --holdout 0.1
  hotset simulate hidden.trace --slots 25% --prefetch next_layer_top_k:depth=2 --predictor learned-gate:weights=model.gate)");
  return {app, [options] { return train(*options); }};
}

}  // namespace hotset::cli
