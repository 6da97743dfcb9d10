// SPDX-License-Identifier: Apache-2.0
// hotset plan: divides a device's memory between a model's experts and its KV cache.
#include "lab/studies/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/models/model_description.hpp"
#include "lab/models/wished_weights.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/miss_prices.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/folded_text.hpp"
#include "lab/reports/plan_report.hpp"
#include "lab/traces/requests.hpp"

namespace hotset::cli {
namespace {

struct plan_options {
  std::string model;
  /// Figures by hand, except the number of experts and top-k, which are among the trace's options.
  lab::model_by_hand hand;
  std::optional<double> kv_bits;
  std::string weights;
  lab::plan_request request{.reserve_bytes = 1_GiB, .context = 4096};
  std::filesystem::path trace;
  std::filesystem::path kv_trace;
  bool as_json = false;
  std::filesystem::path out;
  trace_options reading;
};

/// Converts a number to an optional: 0 means that it was not given.
std::optional<std::int32_t> given(std::int32_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

/// Reads the model and corrects it by hand, or describes it only by hand.
lab::model_description model_of(const plan_options& options) {
  auto hand = options.hand;
  const auto experts = given(options.reading.experts);
  const auto top_k = given(options.reading.top_k);
  if (!options.model.empty()) {
    // If the model has its own top-k and experts, those options concern only the trace.
    hand.top_k = top_k;
    return for_option("--model", [&] {
      return lab::describe_model(input_path(options.model).string(),
                                 {options.kv_bits, options.weights, hand});
    });
  }
  if (!options.weights.empty())
    throw lab::usage_error("--weights: a model by hand has its own sizes; accepted: with --model");
  hand.experts = experts;
  hand.top_k = top_k;
  if (hand.is_empty())
    throw lab::usage_error(
        "--model is required, or by hand --layers --experts --top-k --expert-bytes "
        "--kv-bytes-per-token");
  auto described = lab::describe_by_hand(hand);
  if (options.kv_bits) described.kv_bits = *options.kv_bits;
  return described;
}

lab::device_split split_of(const std::string& text) {
  for (const auto split : {lab::device_split::expert, lab::device_split::tensor})
    if (text == name_of(split)) return split;
  refuse_option("--parallel", text, "expert, tensor");
}

/// Returns nothing for "auto".
std::optional<double> kv_bits_of(const std::string& text) {
  constexpr auto most = lab::model_options::most_kv_bits;
  const auto bits = read_number(text, 0.5, most);
  if (text != "auto" && !bits)
    refuse_option("--kv-bits", text, fmt::format("auto or 0.5..{}", most));
  return bits;
}

/// Bits of a type of the cache, by the names of llama.cpp and vLLM.
std::optional<double> kv_type_of(const std::string& text) {
  constexpr std::pair<std::string_view, double> types[] = {
      {"f32", 32}, {"f16", 16},   {"bf16", 16}, {"q8_0", 8.5}, {"fp8", 8},
      {"q5_1", 6}, {"q5_0", 5.5}, {"q4_1", 5},  {"q4_0", 4.5}, {"iq4_nl", 4.5}};
  std::string known;
  for (const auto& [name, bits] : types) {
    if (text == name) return bits;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
  }
  refuse_option("--kv-type", text, known);
}

std::string weights_of(const std::string& text) {
  if (const auto bad = lab::check_wish(text)) throw lab::usage_error(bad->message);
  return text;
}

int plan(const plan_options& options) {
  auto request = options.request;
  output_file out(options.out);
  const auto described = model_of(options);
  request.model = described.memory;
  request.kv_bits = described.kv_bits;
  std::optional<opened_trace> routing;
  lab::reading_notes dense;
  if (!options.trace.empty()) {
    routing = open_input(options.trace, options.reading);
    if (routing->trace.layers > request.model.experts.layers)
      lab::leave_out_dense_layers(routing->trace, &dense);
    request.routing = &routing->trace;
  }
  std::optional<kv_trace> requests;
  lab::reading_notes about_requests;
  if (!options.kv_trace.empty()) {
    requests = lab::open_block_requests(input_path(options.kv_trace), &about_requests);
    request.requests = &*requests;
  }
  auto found = lab::make_plan(request);
  found.notes.insert(found.notes.begin(), described.notes.begin(), described.notes.end());
  for (const auto& note : dense) found.notes.push_back("trace: " + note);
  std::ranges::move(about_requests, std::back_inserter(found.notes));
  out.finish(options.as_json ? lab::to_json_text(found)
                             : lab::folded(lab::to_text(found), lab::output_width()));
  return ok;
}

void add_device(CLI::App& app, lab::plan_request& request) {
  add_size(app, "--vram", request.device_bytes, "GiB", "memory of each device, such as 24GiB")
      ->required();
  add_size(app, "--host-ram", request.host_bytes, "GiB",
           "host memory for the copies of all experts, such as 64GiB (default: not checked)");
  add_size(app, "--reserve", request.reserve_bytes, "GiB",
           "device memory kept free for activations, workspace and headroom against spilling", true)
      ->default_str("1GiB");
  add_number(app, "--devices", request.devices, std::uint32_t{1}, std::uint32_t{4096},
             "number of devices that share the model, each with --vram");
  add_parsed(app, "--parallel", "NAME", request.split, split_of,
             "division of the experts among devices: expert (each device has some experts of a "
             "layer), tensor (each has a part of every expert)")
      ->default_str("expert");
}

void add_hand(CLI::App& app, plan_options& options) {
  auto& hand = options.hand;
  const char* const group =
      "Model by hand (with --experts and --top-k), or corrections to its file";
  const auto layers = [&options](std::string_view text) {
    if (text.find("..") == text.npos) return parse_number<std::int32_t>("--layers", text, 1, 65536);
    const auto range = lab::parse_layer_range(text);
    options.reading.layers = range;
    return range.last - range.first + 1;
  };
  add_parsed(app, "--layers", "N", hand.layers, layers,
             "number of MoE layers, or their numbers in the trace, such as 1..45")
      ->group(group);
  add_size(app, "--expert-bytes", hand.expert_bytes, "MiB",
           "size of one expert of one layer, such as 2.5MiB", true)
      ->group(group);
  add_size(app, "--kv-bytes-per-token", hand.kv_bytes_per_token, "KiB",
           "KV cache of one token over all layers, such as 96KiB", true)
      ->group(group);
  add_size(app, "--resident-bytes", hand.resident_bytes, "GiB",
           "all weights except the routed experts'", true)
      ->group(group);
}

void add_serving(CLI::App& app, plan_options& options) {
  auto& request = options.request;
  add_number(app, "--context", request.context, std::uint64_t{1}, std::uint64_t{1} << 32U,
             "maximum tokens of a session");
  add_number(app, "--concurrency", request.concurrency, std::uint64_t{1}, std::uint64_t{4096},
             "sessions at the same time");
  add_number(app, "--block-tokens", request.block_tokens, std::uint64_t{1}, std::uint64_t{65536},
             "tokens of a KV block");
  add_parsed(app, "--kv-bits", "N", options.kv_bits, kv_bits_of,
             "bits of an element of the KV cache: 16, 8, 8.5 (q8_0), 4.5 (q4_0); auto: the "
             "checkpoint's declaration, else 16")
      ->default_str("auto");
  add_parsed(
      app, "--kv-type", "NAME", options.kv_bits, kv_type_of,
      "--kv-bits by a type's name: f32, f16, bf16, q8_0, fp8, q5_1, q5_0, q4_1, q4_0, iq4_nl")
      ->excludes("--kv-bits");
  add_parsed(app, "--weights", "NAME", options.weights, weights_of,
             fmt::format("format of the weights, in place of the model's own: {}; or bits such as "
                         "4.5bpw",
                         fmt::join(lab::wished_weight_names(), ", ")));
  add_miss_prices(app, request.cost);
}

}  // namespace

command add_plan(CLI::App& root) {
  auto* app = root.add_subcommand("plan", "Divide a device's memory between experts and KV cache");
  auto options = std::make_shared<plan_options>();
  app->add_option("--model", options->model,
                  "a config.json, a .gguf file (or a part of one), a .safetensors file, a folder "
                  "of them, or a name of docs/models.md: gpt-oss-20b, qwen3-30b-a3b, ...")
      ->type_name("MODEL");
  add_hand(*app, *options);
  add_device(*app, options->request);
  add_serving(*app, *options);
  add_file(
      *app, "--trace", options->trace,
      "routing trace of this model, in any known format (default: uniform routing is assumed)");
  add_file(*app, "--kv-trace", options->kv_trace,
           "requests: JSON lines (Mooncake, Bailian) with the blocks of their prompts, or a CSV "
           "(Azure, BurstGPT)");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.plan/1)");
  add_out(*app, options->out);
  add_trace_options(*app, options->reading);
  for (const char* name : {"--top-k", "--experts"})
    app->get_option(name)->description("value of a model by hand, or of a trace without it");
  app->footer(R"(Examples:
  hotset plan --model qwen3-30b-a3b --vram 24GiB --context 8192 --concurrency 4
  hotset plan --model minimax-m2 --vram 80GiB --devices 4 --parallel expert
  hotset plan --model ./config.json --vram 12GiB --trace routes.trace --kv-trace requests.jsonl --link 12GB/s --json
  hotset plan --layers 48 --experts 128 --top-k 8 --expert-bytes 2.5MiB --kv-bytes-per-token 96KiB --vram 12GiB)");
  return {app, [options] { return plan(*options); }};
}

}  // namespace hotset::cli
