// SPDX-License-Identifier: Apache-2.0
// hotset place: places the experts of a model on the ranks of expert parallelism.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/placement_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/rows.hpp"
#include "lab/studies/place_experts.hpp"

namespace hotset::cli {
namespace {

/// Most steps of a profile: enough for deviations, and small for large models.
constexpr std::size_t most_profile_steps = 100;

struct place_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::filesystem::path> score;
  std::filesystem::path out;
  std::filesystem::path profile;
  std::filesystem::path from;
  lab::placement_format format = lab::placement_format::vllm;
  std::int32_t ranks = 0;
  std::int32_t nodes = 1;
  std::int32_t groups = 1;
  std::int32_t redundant = 0;
  std::int32_t dense_layers = 0;
  double copies = 0;
  std::optional<double> move_cost;
  lab::served_steps steps;
  int starts = 1;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  bool as_json = false;
  trace_options reading;
};

/// Traces that were read, and steps of them.
struct traffic {
  std::vector<opened_trace> opened;
  lab::step_sample sample;
};

std::vector<const routing_trace*> traces_of(const std::vector<opened_trace>& opened) {
  std::vector<const routing_trace*> out;
  out.reserve(opened.size());
  for (const auto& one : opened) out.push_back(&one.trace);
  return out;
}

traffic read_traffic(const std::vector<std::filesystem::path>& paths, const place_options& options,
                     const lab::served_steps& steps) {
  std::vector<opened_trace> opened;
  opened.reserve(paths.size());
  for (const auto& path : paths) opened.push_back(open_input(path, options.reading));
  const auto traces = traces_of(opened);
  lab::step_sample sample(traces, steps);
  return {std::move(opened), std::move(sample)};
}

std::uint32_t millionths(double share) {
  return static_cast<std::uint32_t>(std::lround(share * 1e6));
}

/// Steps of a sample as arrays of counts: the plug-in of vLLM, which sees sums alone, adds their deviations to them.
void write_profile(const lab::step_sample& sample, output_file& out) {
  const auto steps = std::min(sample.steps(), most_profile_steps);
  const auto experts = static_cast<std::size_t>(sample.experts());
  const auto layers = static_cast<std::size_t>(sample.layers());
  std::vector<std::uint32_t> counts(steps * layers * experts);
  for (const auto l : each<layer_id>(sample.layers())) {
    const auto loads = sample.loads(l);
    for (std::size_t n = 0; n < steps; ++n)
      std::ranges::copy(
          loads.step(n * sample.steps() / steps),
          counts.begin() + static_cast<std::ptrdiff_t>((n * layers + index_of(l)) * experts));
  }
  safetensors_header header;
  header.add("steps", "U32", std::vector<std::uint64_t>{steps, layers, experts}, 4);
  out.write(header.bytes({{"format", "hotset.placement-profile/1"}}));
  write_bytes(out, std::as_bytes(std::span(counts)));
  out.commit();
}

constexpr lab::column place_columns[] = {
    {"placement", "placement", "placement", {lab::cell::word}},
    {"excess", "excess", "excess %", {lab::cell::number, 2, 100}},
    {"hash", "excess_hash", "by hash %", {lab::cell::number, 2, 100}, 2},
    {"near", "excess_near", "near %", {lab::cell::number, 2, 100}, 3},
    {"own", "excess_own_tokens", "own tokens %", {lab::cell::number, 2, 100}, 1},
    {"copies", "ranks_per_token", "ranks a token", {lab::cell::number, 3}},
    {"moved", "moved", "moved"},
};

lab::row row_of(const char* name, const lab::placed_scores& scores, std::int64_t moved) {
  return {{"placement", name},
          {"excess", scores.even.excess()},
          {"balancedness", scores.even.balancedness()},
          {"excess_hash", scores.hash.excess()},
          {"excess_near", scores.near.excess()},
          {"excess_own_tokens", scores.own_tokens.excess()},
          {"ranks_per_token", scores.hash.ranks_per_token()},
          {"moved", moved}};
}

std::string to_json(const place_options& options, const lab::step_sample& placed,
                    const lab::step_sample& scored, const std::vector<lab::row>& rows) {
  return lab::to_json_lines({{"schema", "hotset.place/1"},
                             {"layers", placed.layers()},
                             {"experts", placed.experts()},
                             {"ranks", options.ranks},
                             {"nodes", options.nodes},
                             {"redundant", options.redundant},
                             {"steps", placed.steps()},
                             {"scored_steps", scored.steps()},
                             {"scored_on", options.score.empty() ? "placed" : "later"}},
                            "placements", rows) +
         "\n";
}

std::string to_text(const place_options& options, const lab::step_sample& placed,
                    const lab::step_sample& scored, const std::vector<lab::row>& rows) {
  auto out = fmt::format("{} layers x {} experts on {} ranks, {} slots a rank; {} steps\n",
                         placed.layers(), placed.experts(), options.ranks,
                         (placed.experts() + options.redundant) / options.ranks, placed.steps());
  out += options.score.empty()
             ? "scored on the same steps; later traffic is worse: --score LATER_TRACE\n"
             : fmt::format("scored on {} steps of {}{}\n", scored.steps(),
                           printable(options.score.front().filename().string(), 60),
                           options.score.size() == 1
                               ? ""
                               : fmt::format(" and {} more", options.score.size() - 1));
  out += lab::to_table(place_columns, rows, {.width = lab::output_width(), .columns = {}});
  return out +
         "excess: how much longer a step lasts than a balanced one, because of its fullest rank; "
         "by\n"
         "hash, near, own tokens: by the replica that a token takes\n"
         "a file alone does not survive a shift of traffic: place again with --from, or in the "
         "engine\n";
}

placement_shape shape_of(const place_options& options, const lab::step_sample& sample) {
  const auto shape = placement_shape::of(sample.experts(), options.redundant, options.ranks,
                                         options.nodes, options.groups);
  if (!shape) throw lab::usage_error(shape.error().message);
  return *shape;
}

place_config config_of(const place_options& options) {
  return {.move_cost = options.from.empty() ? 0 : millionths(options.move_cost.value_or(0.0015)),
          .copy_cost = millionths(options.copies),
          .starts = options.starts};
}

/// The placement to begin with, or nothing.
std::vector<expert_placement> read_start(const place_options& options, const placement_shape& shape,
                                         std::int32_t layers) {
  if (options.from.empty()) return {};
  const auto path = input_path(options.from);
  const lab::mapped_file file(path);
  return lab::parse_placement(file.text(), path.string(), shape, options.dense_layers, layers);
}

std::optional<traffic> read_later(const place_options& options, const lab::step_sample& sample) {
  if (options.score.empty()) return std::nullopt;
  auto steps = options.steps;
  steps.halves = false;
  auto later = read_traffic(options.score, options, steps);
  if (later.sample.layers() != sample.layers() || later.sample.experts() != sample.experts())
    throw lab::usage_error(fmt::format("--score: {} layers x {} experts; accepted: {} x {}",
                                       later.sample.layers(), later.sample.experts(),
                                       sample.layers(), sample.experts()));
  return later;
}

/// Text of the file, which reads back as the same placement.
std::string text_of_placement(const lab::placed_model& model, const place_options& options) {
  auto text = lab::to_text(model, options.format);
  const auto layers = static_cast<std::int32_t>(model.layers.size());
  if (lab::parse_placement(text, options.out.string(), model.shape, options.dense_layers, layers) !=
      model.layers)
    throw std::runtime_error("the placement does not read back as it was written");
  return text;
}

int place(const place_options& options) {
  if (options.dense_layers != 0 && options.out.empty() && options.from.empty())
    refuse_option("--dense-layers", std::to_string(options.dense_layers), "with --out or --from");
  std::optional<output_file> out;
  if (!options.out.empty()) out.emplace(options.out);
  std::optional<output_file> profile;
  if (!options.profile.empty()) profile.emplace(options.profile, lab::output_content::binary);
  const auto learned = read_traffic(options.traces, options, options.steps);
  const auto& sample = learned.sample;
  const auto shape = shape_of(options, sample);
  const auto start = read_start(options, shape, sample.layers());
  const auto later = read_later(options, sample);
  const auto& scored = later ? later->sample : sample;
  lab::placed_model model{shape, options.dense_layers, {}};
  {
    const shown_progress shown("placing");
    model.layers = lab::place_layers(sample, shape, config_of(options), start, options.jobs);
  }
  const auto before = start.empty() ? lab::layers_in_order(sample.layers(), shape) : start;
  std::vector<lab::row> rows;
  const auto add = [&](const char* name, const std::vector<expert_placement>& layers) {
    rows.push_back(row_of(name, lab::score_layers(scored, shape, layers, options.jobs),
                          lab::moved_in_layers(shape, before, layers)));
  };
  add(start.empty() ? "engine's start" : "--from", before);
  add("EPLB", lab::pack_layers(sample, shape));
  add("hotset", model.layers);
  const auto report = options.as_json ? to_json(options, sample, scored, rows)
                                      : to_text(options, sample, scored, rows);
  if (profile) write_profile(sample, *profile);
  if (!out) {
    print(report);
    return ok;
  }
  const auto text = text_of_placement(model, options);
  write_and_report(*out, std::as_bytes(std::span(text)), report);
  return ok;
}

}  // namespace

command add_place(CLI::App& root) {
  auto* app = root.add_subcommand("place", "Place experts on the ranks of expert parallelism");
  auto options = std::make_shared<place_options>();
  add_file(*app, "TRACE", options->traces, "traces of one model")->required();
  add_number(*app, "--ranks", options->ranks, 1, 4096, "ranks that share the experts")->required();
  add_number(*app, "--nodes", options->nodes, 1, 4096, "nodes that the ranks are divided among");
  add_number(*app, "--groups", options->groups, 1, 4096,
             "groups of a router that sends a token to few groups: they are kept in one node; 1: "
             "none");
  add_number(*app, "--redundant", options->redundant, 0, 65536,
             "slots for second copies of experts, in all ranks together");
  add_number(*app, "--running", options->steps.running, 0, 65536,
             "requests that are decoded at once: steps are drawn as a server does them, from the "
             "sequences; 0: the steps of the trace");
  add_number(*app, "--steps", options->steps.steps, 1, 100000, "most steps to place by");
  add_number(*app, "--copies", options->copies, 0.0, 1.0,
             "price of sending each token to one rank more, as a share of a rank's load");
  add_number(*app, "--starts", options->starts, 1, 1000,
             "searches; more find slightly better placements");
  auto* from = add_file(*app, "--from", options->from,
                        "placement to begin with, a file of this command in any format");
  add_number(*app, "--move-cost", options->move_cost, 0.0, 1.0,
             "price of an expert that moves, as a share of a rank's load (default: 0.0015)")
      ->needs(from);
  auto* out = add_file(*app, "-o,--out", options->out, "placement to write");
  // --format names the placement's format; traces are recognised by their content.
  add_parsed(*app, "--format", "NAME", options->format, lab::parse_placement_format,
             "format of the placement: vllm (for hotset's plug-in), sglang, tensorrt-llm, deepseek")
      ->default_str("vllm")
      ->needs(out);
  add_number(*app, "--dense-layers", options->dense_layers, 0, 65536,
             "first layers of the model that have no experts: sglang and tensorrt-llm count them");
  add_file(*app, "--profile", options->profile,
           "steps to write for the plug-in of vLLM (safetensors), at most 100");
  add_file(*app, "--score", options->score, "traces of later traffic to score by")
      ->allow_extra_args(false);
  add_number(*app, "--jobs", options->jobs, 1U, 1024U, "threads");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.place/1)");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset place monday.trace --ranks 8 --redundant 16 --running 256 --score tuesday.trace --out place.json
  hotset place tuesday.trace --ranks 8 --redundant 16 --from place.json --out next.json
  hotset place monday.trace --ranks 16 --redundant 32 --format sglang --dense-layers 3 --out sglang.json)");
  return {app, [options] { return place(*options); }};
}

}  // namespace hotset::cli
