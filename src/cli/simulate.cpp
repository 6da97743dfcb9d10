// SPDX-License-Identifier: Apache-2.0
// hotset simulate: replays traces under every combination of what was asked for.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/console.hpp"
#include "cli/trace_input.hpp"
#include "hotset/sim/report.hpp"
#include "hotset/sim/sweep.hpp"

namespace hotset::cli {
namespace {

struct simulate_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::string> evictions{"lru"};
  std::vector<std::string> admissions{"always"};
  std::vector<std::string> scopes{"shared"};
  std::vector<std::string> replays{"event-atomic"};
  std::vector<std::string> slots;
  std::vector<std::string> budgets;
  bool size_classes = false;
  std::string split = "by-token";
  std::uint32_t max_tokens = 0;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  std::filesystem::path decisions;
  std::filesystem::path out;
  bool as_json = false;
  bool as_csv = false;
  trace_options reading;
};

/// Cache sizes when none were asked for.
const std::vector<std::string> usual_slots{"12.5%", "25%", "50%"};

std::vector<sim::size_request> sizes_of(const simulate_options& options) {
  const bool usual = options.slots.empty() && options.budgets.empty();
  std::vector<sim::size_request> sizes;
  for (const auto& text : split_lists("--slots", usual ? usual_slots : options.slots))
    sizes.push_back(for_option("--slots", [&] { return sim::size_request::parse_slots(text); }));
  for (const auto& text : split_lists("--budget", options.budgets))
    sizes.push_back(for_option("--budget", [&] { return sim::size_request::parse_budget(text); }));
  return sizes;
}

visit_split split_of(const std::string& text) {
  if (text == "by-token") return visit_split::by_token;
  if (text == "by-expert") return visit_split::by_expert;
  refuse_option("--split", text, "by-token, by-expert");
}

/// Names are refused here, before anything is replayed.
void check_names(const sim::sweep_request& request) {
  for (const auto& name : request.scopes)
    for_option("--scope", [&] { return sim::parse_scope(name); });
  for (const auto& name : request.replays)
    for_option("--replay", [&] { return sim::parse_replay_mode(name); });
}

sim::sweep_request request_of(const simulate_options& options) {
  sim::sweep_request request;
  request.evictions = split_lists("--eviction", options.evictions);
  request.admissions = split_lists("--admission", options.admissions);
  request.scopes = split_lists("--scope", options.scopes);
  request.replays = split_lists("--replay", options.replays);
  request.sizes = sizes_of(options);
  request.size_classes = options.size_classes;
  request.split = split_of(options.split);
  request.jobs = options.jobs;
  request.max_tokens = options.max_tokens;
  check_names(request);
  return request;
}

void need_expert_bytes(const opened_trace& opened, const sim::sweep_request& request) {
  if (!opened.trace.expert_bytes.empty()) return;
  for (const auto& size : request.sizes)
    if (size.what == sim::size_request::unit::bytes)
      throw sim::usage_error(with_path(
          opened.path, fmt::format("--budget {}: the trace does not say how large an expert is; "
                                   "accepted: sizes in --slots",
                                   size.text)));
}

sim::sweep_result sweep_one(const opened_trace& opened, const sim::sweep_request& request) {
  need_expert_bytes(opened, request);
  try {
    return sim::run_sweep(opened.trace, request);
  } catch (const trace_error& error) {
    throw trace_error(with_path(opened.path, error.what()));
  } catch (const sim::infeasible_error& error) {
    throw sim::infeasible_error(with_path(opened.path, error.what()));
  }
}

std::vector<sim::sweep_result> sweep_all(const simulate_options& options,
                                         sim::sweep_request request) {
  const auto reading = checked(options.reading);
  std::vector<sim::sweep_result> sweeps;
  for (const auto& path : options.traces) {
    const auto opened = open_input(path, reading);
    progress_line progress(sim::printable(opened.trace.name, 40));
    request.progress = [&](std::size_t done, std::size_t total) { progress.advance(done, total); };
    sweeps.push_back(sweep_one(opened, request));
  }
  return sweeps;
}

/// Where the output has no place for them.
void report_notes(const std::vector<sim::sweep_result>& sweeps) {
  std::vector<std::string> seen;
  for (const auto& sweep : sweeps) {
    for (const auto& run : sweep.results) {
      for (const auto& note : run.notes) {
        const auto line = fmt::format("{}: note: {}", sweep.name, note);
        if (std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
        seen.push_back(line);
        report_error(line);
      }
    }
  }
}

std::string text_of(const std::vector<sim::sweep_result>& sweeps, const simulate_options& options) {
  if (options.as_json) return sim::to_json_text(sweeps);
  if (options.as_csv) return sim::to_csv(sweeps);
  std::string text;
  for (const auto& sweep : sweeps) text += (text.empty() ? "" : "\n") + sim::to_table(sweep);
  return text;
}

int simulate(const simulate_options& options) {
  auto request = request_of(options);
  if (!options.decisions.empty() && options.traces.size() != 1)
    refuse_option("--decisions", options.decisions.string(), "one trace, not several");
  std::optional<atomic_buffer> decisions;
  if (!options.decisions.empty()) decisions.emplace(options.decisions);
  std::ostream decision_stream(decisions ? &*decisions : nullptr);
  request.decisions = decisions ? &decision_stream : nullptr;
  output_file out(options.out);  // refused now if it cannot be written, not after the replays
  const auto sweeps = sweep_all(options, std::move(request));
  if (decisions) decisions->commit();
  out.finish(text_of(sweeps, options));
  if (options.as_json || options.as_csv) report_notes(sweeps);
  return ok;
}

void add_what(CLI::App& app, simulate_options& options) {
  add_list(app, "--eviction", options.evictions,
           fmt::format("eviction policies: {}; with parameters: lfu:history=resident; decorated: "
                       "{}+lru",
                       fmt::join(sim::eviction_names(), ", "),
                       fmt::join(sim::eviction_decorator_names(), "+lru, ")))
      ->default_str("lru");
  add_list(app, "--admission", options.admissions,
           fmt::format("admission policies: {}", fmt::join(sim::admission_names(), ", ")))
      ->default_str("always");
  add_list(app, "--scope", options.scopes,
           "who shares slots: shared (one pool for all layers), per-layer (a pool for every layer)")
      ->default_str("shared");
  add_list(
      app, "--replay", options.replays,
      "when evictions happen: event-atomic (within the visit, as in an engine), deferred (after "
      "it, until the budget holds), per-access (each routed id is a visit; only to compare)")
      ->default_str("event-atomic");
}

void add_sizes(CLI::App& app, simulate_options& options) {
  auto* slots = add_list(app, "--slots", options.slots,
                         "cache sizes: a number of slots, or a percentage of the experts; in "
                         "per-layer scope that many in every layer");
  slots->default_str(fmt::format("{}", fmt::join(usual_slots, ",")));
  add_list(app, "--budget", options.budgets,
           "cache sizes in bytes of all pools together, such as 1500MiB,3GiB (GB and GiB differ)")
      ->excludes(slots);
  app.add_flag("--size-classes", options.size_classes,
               "shared scope: a pool for each size of expert");
  app.add_option("--split", options.split,
                 "how a visit wider than its pool is split: by-token (exact), by-expert")
      ->type_name("NAME")
      ->capture_default_str();
  add_number(app, "--max-tokens", options.max_tokens, 0U, std::numeric_limits<std::uint32_t>::max(),
             "steps of more tokens are cut; 0: never");
}

void add_output(CLI::App& app, simulate_options& options) {
  add_number(app, "--jobs", options.jobs, 1U, 1024U, "replays at one time");
  auto* as_json = app.add_flag("--json", options.as_json,
                               "print JSON: an object, or an array for several traces");
  app.add_flag("--csv", options.as_csv, "print CSV")->excludes(as_json);
  app.add_option("--out", options.out, "write there, not to standard output")->type_name("FILE");
  app.add_option("--decisions", options.decisions,
                 "write every decision as a JSON line (one trace; replays run one by one)")
      ->type_name("FILE");
}

}  // namespace

command add_simulate(CLI::App& root) {
  auto* app = root.add_subcommand("simulate", "Replay traces under policies and cache sizes");
  auto options = std::make_shared<simulate_options>();
  app->add_option("TRACE", options->traces, "traces of any known format")
      ->required()
      ->type_name("FILE");
  add_what(*app, *options);
  add_sizes(*app, *options);
  add_output(*app, *options);
  add_trace_options(*app, options->reading);
  app->footer(R"(Lists are separated by commas; every combination is replayed.
Examples:
  hotset simulate routes.trace
  hotset simulate routes.trace --eviction lru,lfu:history=resident,belady --slots 5%,12.5%,64
  hotset simulate routes.trace --scope shared,per-layer --budget 1500MiB,3GiB --json --out run.json
  hotset simulate routes.trace --eviction least_stale --slots 25% --decisions decisions.jsonl)");
  return {app, [options] { return simulate(*options); }};
}

}  // namespace hotset::cli
