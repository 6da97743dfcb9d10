// SPDX-License-Identifier: Apache-2.0
// hotset plan: how many experts a layer, and how much KV cache, for one device and one model.
#include "lab/studies/plan.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lab/models/model_description.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/miss_prices.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/plan_report.hpp"
#include "lab/reports/text_table.hpp"
#include "lab/sizes.hpp"
#include "lab/traces/open_requests.hpp"

namespace hotset::cli {
namespace {

/// What is not given stays empty. The number of experts and top-k are among the trace's options.
struct hand_options {
  std::string layers;
  std::string expert_bytes, kv_bytes_per_token, resident_bytes;
};

struct plan_options {
  std::string model;
  hand_options hand;
  std::string device;
  std::string host;
  std::string reserve = "1GiB";
  std::filesystem::path trace;
  std::filesystem::path kv_trace;
  std::uint64_t context = 4096;
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  miss_prices prices;
  std::optional<double> kv_bits;
  std::uint32_t devices = 1;
  std::string split = "expert";
  bool as_json = false;
  std::filesystem::path out;
  trace_options reading;
};

std::uint64_t bytes_of(const char* option, const std::string& text) {
  return for_option(option, [&] { return lab::read_size(text); });
}

std::optional<std::uint64_t> bytes_by_hand(const char* option, const std::string& text,
                                           std::string_view usual) {
  if (text.empty()) return std::nullopt;
  return for_option(option, [&] { return lab::read_size_or_none(text, usual); });
}
/// 0 is how a number that was not given looks.
std::optional<std::int32_t> given(std::int32_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

lab::model_by_hand by_hand(const plan_options& options) {
  const auto& hand = options.hand;
  lab::model_by_hand out;
  if (!hand.layers.empty())
    out.layers = parse_number<std::int32_t>("--layers", hand.layers, 1, 65536);
  out.expert_bytes = bytes_by_hand("--expert-bytes", hand.expert_bytes, "MiB");
  out.kv_bytes_per_token = bytes_by_hand("--kv-bytes-per-token", hand.kv_bytes_per_token, "KiB");
  out.resident_bytes = bytes_by_hand("--resident-bytes", hand.resident_bytes, "GiB");
  return out;
}

/// Read, and corrected by hand; or by hand alone.
lab::model_description model_of(const plan_options& options) {
  auto hand = by_hand(options);
  const auto experts = given(options.reading.experts);
  const auto top_k = given(options.reading.top_k);
  if (!options.model.empty()) {
    auto described = for_option("--model", [&] {
      return lab::describe_model(input_path(options.model).string(), {options.kv_bits});
    });
    // Beside a model that says its own they are of the trace alone.
    if (!described.top_k_is_known) hand.top_k = top_k;
    lab::correct_by_hand(hand, described);
    return described;
  }
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

/// The options that are no files, refused before anything is read.
lab::plan_request request_of(const plan_options& options) {
  lab::plan_request request;
  request.device_bytes = bytes_of("--vram", options.device);
  if (!options.host.empty()) request.host_bytes = bytes_of("--host-ram", options.host);
  request.reserve_bytes =
      for_option("--reserve", [&] { return lab::read_size_or_none(options.reserve); });
  request.context = options.context;
  request.concurrency = options.concurrency;
  request.block_tokens = options.block_tokens;
  request.devices = options.devices;
  request.split = split_of(options.split);
  request.cost = checked(options.prices);
  return request;
}

int plan(const plan_options& options) {
  auto request = request_of(options);
  output_file out(options.out);
  const auto described = model_of(options);
  request.model = described.memory;
  request.kv_bits = described.kv_bits;
  std::optional<opened_trace> routing;
  lab::reading_notes dense;
  if (!options.trace.empty()) {
    routing = open_input(options.trace, checked(options.reading));
    if (routing->trace.layers > request.model.experts.layers)
      lab::leave_out_dense_layers(routing->trace, &dense);
    request.routing = &routing->trace;
  }
  std::optional<kv_trace> requests;
  if (!options.kv_trace.empty()) {
    requests = lab::open_block_requests(input_path(options.kv_trace));
    request.requests = &*requests;
  }
  auto found = lab::make_plan(request);
  found.notes.insert(found.notes.begin(), described.notes.begin(), described.notes.end());
  for (const auto& note : dense) found.notes.push_back("trace: " + note);
  if (requests && requests->own_blocks)
    found.notes.emplace_back(
        "the requests name no blocks: each prompt has its own, and nothing is shared");
  out.finish(options.as_json ? lab::to_json_text(found)
                             : lab::folded(lab::to_text(found), lab::output_width()));
  return ok;
}

void add_sizes(CLI::App& app, plan_options& options) {
  const auto size = [&](const char* name, std::string& value, const char* what) {
    return app.add_option(name, value, what)->type_name("SIZE");
  };
  size("--vram", options.device, "memory of the device, or of each of several, such as 24GiB")
      ->required();
  size("--host-ram", options.host, "memory of the host, for the copies of all experts");
  size("--reserve", options.reserve,
       "left alone: activations, workspace, headroom against spilling")
      ->capture_default_str();
}

void add_devices(CLI::App& app, plan_options& options) {
  add_number(app, "--devices", options.devices, std::uint32_t{1}, std::uint32_t{4096},
             "devices that share the model, each with --vram");
  app.add_option("--parallel", options.split,
                 "what devices have of the experts: expert (each has some of a layer's), tensor "
                 "(each has a part of every one)")
      ->type_name("NAME")
      ->capture_default_str();
}

void add_hand(CLI::App& app, hand_options& hand) {
  const auto add = [&](const char* name, std::string& value, const char* type, const char* what) {
    app.add_option(name, value, what)
        ->type_name(type)
        ->group("Model by hand (with --experts and --top-k), or what its file has wrong");
  };
  add("--layers", hand.layers, "N", "MoE layers");
  add("--expert-bytes", hand.expert_bytes, "SIZE", "of one expert of one layer");
  add("--kv-bytes-per-token", hand.kv_bytes_per_token, "SIZE", "KV cache, of all layers together");
  add("--resident-bytes", hand.resident_bytes, "SIZE", "all weights but the routed experts'");
}

/// Nothing for "auto".
std::optional<double> read_kv_bits(const std::string& text) {
  constexpr auto most = lab::model_options::most_kv_bits;
  if (text == "auto") return std::nullopt;
  const auto bits = read_number(text, 0.5, most);
  if (!bits) refuse_option("--kv-bits", text, fmt::format("auto or 0.5..{}", most));
  return bits;
}

void add_serving(CLI::App& app, plan_options& options) {
  constexpr std::uint64_t many = std::uint64_t{1} << 32U;
  add_number(app, "--context", options.context, std::uint64_t{1}, many,
             "tokens of one session, at most");
  add_number(app, "--concurrency", options.concurrency, std::uint64_t{1}, std::uint64_t{4096},
             "sessions at one time");
  add_number(app, "--block-tokens", options.block_tokens, std::uint64_t{1}, std::uint64_t{65536},
             "tokens of a KV block");
  app.add_option_function<std::string>(
         "--kv-bits", [&options](const std::string& text) { options.kv_bits = read_kv_bits(text); },
         "bits of an element of the KV cache: 16, 8, 8.5 (q8_0), 4.5 (q4_0); auto: as the "
         "checkpoint declares, else 16")
      ->type_name("N")
      ->default_str("auto");
}

}  // namespace

command add_plan(CLI::App& root) {
  auto* app = root.add_subcommand("plan", "Divide a device's memory between experts and KV cache");
  auto options = std::make_shared<plan_options>();
  app->add_option("--model", options->model,
                  fmt::format("a config.json, a .gguf file (or a part of one) or .safetensors "
                              "file, a folder of them, or: {}",
                              fmt::join(lab::model_names(), ", ")))
      ->type_name("MODEL");
  add_hand(*app, options->hand);
  add_sizes(*app, *options);
  add_devices(*app, *options);
  add_serving(*app, *options);
  add_miss_prices(*app, options->prices);
  app->add_option("--trace", options->trace, "routing of this model, of any known format")
      ->type_name("FILE");
  app->add_option("--kv-trace", options->kv_trace,
                  "requests with the blocks of their prompts (Mooncake)")
      ->type_name("FILE");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.plan/1)");
  app->add_option("--out", options->out, "write there, not to standard output")->type_name("FILE");
  add_trace_options(*app, options->reading);
  app->get_option("--top-k")->description(
      "of the model by hand; of a trace whose file does not say");
  app->get_option("--experts")
      ->description("of the model by hand; of a trace whose file does not say");
  app->footer(R"(Examples:
  hotset plan --model qwen3-30b-a3b --vram 24GiB --context 8192 --concurrency 4
  hotset plan --model minimax-m2 --vram 80GiB --devices 4 --parallel expert
  hotset plan --model ./config.json --vram 12GiB --trace routes.trace --kv-trace requests.jsonl --link 12GB/s --json
  hotset plan --layers 48 --experts 128 --top-k 8 --expert-bytes 2.5MiB --kv-bytes-per-token 96KiB --vram 12GiB)");
  return {app, [options] { return plan(*options); }};
}

}  // namespace hotset::cli
