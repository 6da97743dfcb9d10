// SPDX-License-Identifier: Apache-2.0
// hotset plan: how many experts a layer, and how much KV cache, for one device and one model.
#include "hotset/sim/plan.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/console.hpp"
#include "cli/miss_prices.hpp"
#include "cli/trace_input.hpp"
#include "hotset/core/units.hpp"
#include "hotset/sim/io/open_requests.hpp"
#include "hotset/sim/model_description.hpp"

namespace hotset::cli {
namespace {

struct plan_options {
  std::string model;
  std::string device;
  std::string host;
  std::string reserve = "1GiB";
  std::filesystem::path trace;
  std::filesystem::path kv_trace;
  std::uint64_t context = 4096;
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  miss_prices prices;
  double kv_bits = 16;
  bool as_json = false;
  std::filesystem::path out;
  trace_options reading;
};

std::uint64_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse_option(option, text, byte_size_syntax);
  return *bytes;
}

/// The options that are no files, refused before anything is read.
sim::plan_request request_of(const plan_options& options) {
  sim::plan_request request;
  request.device_bytes = bytes_of("--vram", options.device);
  if (!options.host.empty()) request.host_bytes = bytes_of("--host-ram", options.host);
  request.reserve_bytes = bytes_of("--reserve", options.reserve);
  request.context = options.context;
  request.concurrency = options.concurrency;
  request.block_tokens = options.block_tokens;
  request.cost = checked(options.prices);
  return request;
}

int plan(const plan_options& options) {
  auto request = request_of(options);
  output_file out(options.out);
  const auto described =
      for_option("--model", [&] { return sim::describe_model(options.model, {options.kv_bits}); });
  request.model = described.memory;
  std::optional<opened_trace> routing;
  if (!options.trace.empty()) {
    routing = open_input(options.trace, checked(options.reading));
    request.routing = &routing->trace;
  }
  std::optional<kv_trace> requests;
  if (!options.kv_trace.empty()) {
    requests = sim::open_requests(options.kv_trace);
    request.requests = &*requests;
  }
  auto found = sim::make_plan(request);
  found.notes.insert(found.notes.begin(), described.notes.begin(), described.notes.end());
  out.finish(options.as_json
                 ? sim::to_json(found).dump(2, ' ', false,
                                            nlohmann::ordered_json::error_handler_t::replace) +
                       '\n'
                 : sim::to_text(found));
  return ok;
}

void add_sizes(CLI::App& app, plan_options& options) {
  const auto size = [&](const char* name, std::string& value, const char* what) {
    return app.add_option(name, value, what)->type_name("SIZE");
  };
  size("--vram", options.device, "memory of the device, such as 24GiB")->required();
  size("--host-ram", options.host, "memory of the host, for the copies of all experts");
  size("--reserve", options.reserve,
       "left alone: activations, workspace, headroom against spilling")
      ->capture_default_str();
}

void add_serving(CLI::App& app, plan_options& options) {
  constexpr std::uint64_t many = std::uint64_t{1} << 32U;
  add_number(app, "--context", options.context, std::uint64_t{1}, many,
             "tokens of one session, at most");
  add_number(app, "--concurrency", options.concurrency, std::uint64_t{1}, std::uint64_t{4096},
             "sessions at one time");
  add_number(app, "--block-tokens", options.block_tokens, std::uint64_t{1}, std::uint64_t{65536},
             "tokens of a KV block");
  add_number(app, "--kv-bits", options.kv_bits, 0.5, sim::model_options::most_kv_bits,
             "of an element of the KV cache: 16, 8, 8.5 (q8_0), 4.5 (q4_0)");
}

}  // namespace

command add_plan(CLI::App& root) {
  auto* app = root.add_subcommand("plan", "Divide a device's memory between experts and KV cache");
  auto options = std::make_shared<plan_options>();
  app->add_option(
         "--model", options->model,
         fmt::format("a config.json, a .gguf or .safetensors file, a folder of them, or: {}",
                     fmt::join(sim::model_names(), ", ")))
      ->required()
      ->type_name("MODEL");
  add_sizes(*app, *options);
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
  app->footer(R"(Examples:
  hotset plan --model qwen3-30b-a3b --vram 24GiB --context 8192 --concurrency 4
  hotset plan --model ./config.json --vram 12GiB --trace routes.trace --kv-trace requests.jsonl --link 12GB/s --json)");
  return {app, [options] { return plan(*options); }};
}

}  // namespace hotset::cli
