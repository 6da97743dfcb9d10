// SPDX-License-Identifier: Apache-2.0
// hotset simulate-split: experts and KV blocks in one budget, under fixed splits and the online controller.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "hotset/planning/budget/split_limits.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/miss_prices.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/split_report.hpp"
#include "lab/studies/split_replay.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/requests.hpp"

namespace hotset::cli {
namespace {

struct split_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::filesystem::path> requests;
  /// Parts set directly by options; control_of adds values from the first workflow.
  lab::split_request request;
  std::uint64_t kv_token_bytes = 0;
  std::optional<std::uint64_t> expert_bytes{};
  std::uint64_t context = 4096;
  std::uint64_t concurrency = 1;
  cost_model prices;
  bool as_json = false;
  table_options table;
  std::filesystem::path out;
  trace_options reading;
};

/// Files of a command; workflows refer to them.
struct inputs {
  std::deque<routing_trace> routing;
  std::deque<kv_trace> requests;
};

/// Opens requests with the blocks of their prompts; prints what was guessed.
kv_trace open_prompts(const std::filesystem::path& path) {
  lab::reading_notes notes;
  auto kv = lab::open_block_requests(input_path(path), &notes);
  report_notes(path, notes);
  return kv;
}

/// Pairs traces with requests; one list of requests serves all traces.
std::vector<lab::workflow> read_workflows(const split_options& options, inputs& files) {
  if (options.requests.size() != 1 && options.requests.size() != options.traces.size())
    refuse_option("--kv-trace", fmt::format("{} files", options.requests.size()),
                  fmt::format("1, or one for each of the {} traces", options.traces.size()));
  const auto& reading = options.reading;
  for (const auto& path : options.requests) files.requests.push_back(open_prompts(path));
  std::vector<lab::workflow> flows;
  for (std::size_t i = 0; i < options.traces.size(); ++i) {
    files.routing.push_back(open_input(options.traces[i], reading, options.expert_bytes).trace);
    flows.push_back({files.routing.back().name, &files.routing.back(),
                     &files.requests[std::min(i, files.requests.size() - 1)]});
  }
  return flows;
}

std::uint64_t slot_bytes_of(const routing_trace& trace) {
  const auto shape = trace.shape();
  if (shape.expert_bytes.empty())
    throw lab::usage_error(fmt::format("{}: {}; accepted: --expert-bytes SIZE", trace.name,
                                       lab::why_no_expert_bytes(trace)));
  std::uint64_t bytes = 0;
  for (const auto l : each<layer_id>(shape.layers)) bytes += shape.bytes_of(l);
  return bytes;
}

marginal_value::config control_of(const split_options& options, const lab::workflow& flow) {
  const auto& trace = *flow.routing;
  const auto tokens = flow.requests->block_tokens;
  const admission_floor floor{options.concurrency, options.context, tokens};
  if (const auto bad = floor.validate()) throw lab::usage_error(bad->message);
  auto out = options.request.control;
  out.limits.slot_bytes = slot_bytes_of(trace);
  out.limits.block_bytes = options.kv_token_bytes * tokens;
  out.limits.min_cap = static_cast<std::uint64_t>(trace.top_k);
  out.limits.max_cap = static_cast<std::uint64_t>(trace.experts);
  out.limits.min_blocks = floor.blocks();
  out.seconds_per_expert_miss =
      options.prices.expert_miss(out.limits.slot_bytes) / static_cast<double>(trace.layers);
  out.seconds_per_kv_miss = options.prices.kv_miss(tokens);
  return out;
}

int simulate_split(const split_options& options) {
  const auto view = checked(options.table, lab::split_columns(), !options.out.empty());
  output_file out(options.out);
  inputs files;
  auto request = options.request;
  request.workflows = read_workflows(options, files);
  request.control = control_of(options, request.workflows.front());
  const auto results = lab::simulate_split(request);
  out.finish(options.as_json ? lab::to_json_text(results) : lab::to_table(results, view));
  return ok;
}

void add_prices(CLI::App& app, split_options& options) {
  add_size(app, "--budget", options.request.control.limits.budget_bytes, "GiB",
           "memory shared by experts and KV cache, such as 12GiB")
      ->required();
  add_size(app, "--kv-token-bytes", options.kv_token_bytes, "KiB",
           "KV cache of one token, such as 96KiB")
      ->required();
  add_expert_bytes(app, options.expert_bytes);
  add_number(app, "--context", options.context, 1, std::uint64_t{1} << 32U,
             "maximum tokens of a session");
  add_number(app, "--concurrency", options.concurrency, 1, 4096, "sessions at the same time");
  add_miss_prices(app, options.prices);
}

void add_control(CLI::App& app, lab::split_request& request) {
  auto& control = request.control;
  add_number(app, "--burst", request.burst_steps, 1U, 1U << 20U,
             "steps per burst; each burst serves one request");
  add_number(app, "--warmup", request.warmup, 0U, 1U << 20U,
             "first bursts of each workflow, which are not charged");
  add_number(app, "--decay", control.decay, 0.0, 0.999,
             "factor on earlier bursts' counts when a burst ends");
  add_number(app, "--gate", control.gate, 0.0, 0.999,
             "minimum share of the time that a move must save");
  add_number(app, "--max-move", control.max_move, 1, 1 << 20U, "maximum slots moved per burst");
  add_number(app, "--dead-zone", control.dead_zone, 0, 1 << 20U,
             "targets at most this many slots away are ignored");
}

}  // namespace

command add_simulate_split(CLI::App& root) {
  auto* app = root.add_subcommand(
      "simulate-split",
      "Replay experts and KV blocks within one budget, under fixed splits and a controller");
  auto options = std::make_shared<split_options>();
  add_file(*app, "TRACE", options->traces,
           "routing traces of one model, one workflow each; several are also run in sequence")
      ->required();
  add_file(*app, "--kv-trace", options->requests,
           "request traces (as of plan): one for all, or one for each TRACE")
      ->required()
      ->allow_extra_args(false);
  add_prices(*app, *options);
  add_control(*app, options->request);
  auto* json = app->add_flag("--json", options->as_json, "print JSON (schema hotset.split/1)");
  add_columns(*app, options->table, lab::split_columns())->excludes(json);
  add_out(*app, options->out);
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset simulate-split os.trace --kv-trace os.jsonl --budget 12GiB --kv-token-bytes 96KiB
  hotset simulate-split os.trace db.trace --kv-trace os.jsonl --kv-trace db.jsonl --budget 12GiB --kv-token-bytes 96KiB --json)");
  return {app, [options] { return simulate_split(*options); }};
}

}  // namespace hotset::cli
