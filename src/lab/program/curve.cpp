// SPDX-License-Identifier: Apache-2.0
// hotset curve: misses of LRU, FIFO, LFU and Belady at every capacity.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lab/curves/every_size.hpp"
#include "lab/curves/miss_curves.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/replay.hpp"
#include "lab/reports/miss_curve_report.hpp"
#include "lab/traces/trace_hash.hpp"

namespace hotset::cli {
namespace {

struct curve_options {
  std::vector<std::filesystem::path> traces;
  std::vector<cache_scope> scopes{cache_scope::shared};
  std::vector<lab::curve_method> methods{lab::curve_method{}};
  std::vector<std::string> evictions{""};  ///< "": lru by default
  visit_options visits;
  std::uint64_t seed = 0;
  bool as_json = false;
  bool as_csv = false;
  table_options table;
  std::filesystem::path out;
  trace_options reading;
  std::optional<std::uint64_t> expert_bytes;
};

void measure(const opened_trace& opened, const curve_options& options,
             std::vector<lab::curve_set>& out) {
  const shown_progress shown(printable(opened.trace.name, 40));
  const auto visits = visit_sequence::create(opened.trace, options.visits);
  if (!visits) throw trace_error(with_path(opened.path, visits.error().message));
  std::optional<std::uint64_t> hash;
  if (options.as_json) hash = lab::trace_hash(opened.trace);
  for (const auto scope : options.scopes)
    for (const auto& method : options.methods)
      for (const auto& eviction : options.evictions) {
        out.push_back(for_option(eviction.empty() ? "--method" : "--eviction", [&] {
          return lab::measure_curves(*visits, scope, method, options.seed, eviction);
        }));
        out.back().name = opened.trace.name;
        out.back().cycle = lab::token_cycle(opened.trace, scope);
        out.back().trace_hash = hash;
      }
}

int curve(const curve_options& options) {
  const auto view = checked(options.table, lab::curve_columns(), !options.out.empty());
  if (options.seed != 0 && std::ranges::all_of(options.methods, &lab::curve_method::is_exact))
    refuse_option("--seed", std::to_string(options.seed),
                  "with --method shards:RATE, which samples");
  output_file out(options.out);
  std::vector<lab::curve_set> sets;
  for (const auto& path : options.traces)
    measure(open_input(path, options.reading, options.expert_bytes), options, sets);
  std::string text;
  if (options.as_json) {
    text = lab::to_json_text(sets);
  } else if (options.as_csv) {
    text = lab::to_csv(sets);
  } else {
    for (const auto& set : sets) text += (text.empty() ? "" : "\n") + lab::to_table(set, view);
  }
  out.finish(text);
  return ok;
}

}  // namespace

command add_curve(CLI::App& root) {
  auto* app = root.add_subcommand("curve", "Measure the misses of a policy at every capacity");
  auto options = std::make_shared<curve_options>();
  add_file(*app, "TRACE", options->traces, "traces of any known format")->required();
  add_list(
      *app, "--scope", options->scopes, lab::parse_scope,
      "slot pools: shared (one pool, one curve), per-layer (one pool and curve for each layer)")
      ->default_str("shared");
  add_list(*app, "--method", options->methods, lab::curve_method::parse,
           "methods: exact, shards:0.01 (sample of 1 % of the keys), shards:8192 (sample of at "
           "most 8192 keys)")
      ->default_str("exact");
  add_list(*app, "--eviction", options->evictions,
           fmt::format("eviction policies: {}; all except lru need --method exact, and their time "
                       "grows with the number of capacities",
                       fmt::join(lab::evictions_of_every_size(), ", ")))
      ->default_str("lru");
  const auto is_per_access = [](std::string_view text) {
    if (text != "event-atomic" && text != "per-access")
      refuse_option("--replay", text, "event-atomic, per-access");
    return text == "per-access";
  };
  add_parsed(*app, "--replay", "NAME", options->visits.per_access, is_per_access,
             "unit of accesses: event-atomic (a whole visit at once), per-access (each routed id; "
             "for comparison only)")
      ->default_str("event-atomic");
  add_number(*app, "--max-tokens", options->visits.max_tokens,
             "split steps with more tokens than this; 0: never");
  add_expert_bytes(*app, options->expert_bytes);
  add_number(*app, "--seed", options->seed, "seed of the sample");
  auto* json = app->add_flag("--json", options->as_json, "print JSON (schema hotset.curve/2)");
  auto* csv = app->add_flag("--csv", options->as_csv, "print CSV")->excludes(json);
  add_columns(*app, options->table, lab::curve_columns())->excludes(json)->excludes(csv);
  add_out(*app, options->out);
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset curve routes.trace --scope shared,per-layer
  hotset curve routes.trace --eviction lru,lfu,belady --json
  hotset curve requests.jsonl --method exact,shards:0.1 --csv)");
  return {app, [options] { return curve(*options); }};
}

}  // namespace hotset::cli
