// SPDX-License-Identifier: Apache-2.0
// hotset simulate: replays traces under every combination of the given options.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/replay/finished_runs.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/preset.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/reports/rank_report.hpp"
#include "lab/reports/sweep_report.hpp"
#include "lab/sizes.hpp"
#include "lab/studies/rank.hpp"
#include "lab/studies/until.hpp"
#include "lab/traces/trace_hash.hpp"

namespace hotset::cli {
namespace {

struct simulate_options {
  std::vector<std::filesystem::path> traces;
  lab::policy_lists policies;
  /// Parts set directly by options; request_of adds the others.
  lab::sweep_request request{.scopes = {},
                             .jobs = std::max(1U, std::thread::hardware_concurrency())};
  lab::link_request link{
      .link = {.chunk_bytes = 1_MiB}};  ///< defaults of all links: latency, chunks, way back
  std::vector<lab::until_target> until;
  std::string compare;
  bool rank = false;
  std::filesystem::path lessons;
  std::filesystem::path decisions;
  std::filesystem::path timeline;
  std::filesystem::path out;
  std::filesystem::path resume;
  bool dry_run = false;
  bool progress = false;
  bool as_json = false;
  bool as_csv = false;
  table_options table;
  trace_options reading;
  std::optional<std::uint64_t> expert_bytes;
};

/// Cache sizes if no size option is given.
const std::vector<std::string> usual_slots{"12.5%", "25%", "50%"};

/// Parses "200us", or with a time per token "200us+20us".
lab::visit_costs with_compute(lab::visit_costs costs, std::string_view text) {
  const auto plus = text.find('+');
  const auto visit = lab::parse_duration(text.substr(0, plus));
  const auto token = plus == std::string_view::npos ? std::optional<ticks>(0)
                                                    : lab::parse_duration(text.substr(plus + 1));
  if (!visit || !token)
    refuse_option("--compute", text,
                  "the time of a visit, such as 200us, and of each of its tokens, 200us+20us");
  costs.per_visit = *visit;
  costs.per_token = *token;
  return costs;
}

/// Completes a link: its way back gets the common latency and chunks.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
lab::link_request completed(const lab::link_request& rate, const lab::link_request& all) {
  auto out = all;
  out.text = rate.text;
  out.link.bytes_per_second = rate.link.bytes_per_second;
  if (const auto bad = out.link.validate()) refuse_option("--link", out.text, bad->message);
  if (out.back.bytes_per_second == 0) return out;
  const auto back = out.back.bytes_per_second;
  out.back = out.link;
  out.back.bytes_per_second = back;
  return out;
}

std::vector<lab::policy_set> compared(const simulate_options& options) {
  const auto& policies = options.policies;
  if (options.compare.empty())
    return for_option("--preset", [&] { return lab::combine_policies(policies); });
  if (options.compare != "systems") lab::refuse_name("--compare:", options.compare, {"systems"});
  const auto refuse = [&](const std::vector<std::string>& chosen) {
    if (!chosen.empty())
      refuse_option("--compare", options.compare,
                    fmt::format("the systems as they are, without '{}'", chosen.front()));
  };
  refuse(policies.presets);
  for (const auto& kind : lab::policy_kinds) refuse(policies.*kind.list);
  return lab::all_systems(policies.gate_weights);
}

lab::sweep_request request_of(const simulate_options& options) {
  auto request = options.request;
  request.leaves_out = !options.compare.empty();
  request.policies = compared(options);
  const auto& way = options.link;
  if (way.write_back == write_back_way::none && (way.back.bytes_per_second != 0 || way.spares != 0))
    refuse_option("--writeback", "none",
                  "serial or duplex with --writeback-link or --writeback-spares");
  for (auto& link : request.links) link = completed(link, way);
  if (request.scopes.empty()) {
    request.scopes = {cache_scope::shared};
    if (options.rank) request.scopes.push_back(cache_scope::per_layer);
  }
  request.leaves_out_sizes = request.sizes.empty();
  if (request.sizes.empty())
    for (const auto& text : usual_slots)
      request.sizes.push_back(lab::size_request::parse_slots(text));
  return request;
}

lab::sweep_result& sweep_of(lab::sweep_result& result) { return result; }
lab::sweep_result& sweep_of(lab::ranking& result) { return result.sweep; }

/// Calls `use(opened, request)` for each trace in turn. Errors name its file.
template <class Use>
void for_each_trace(const simulate_options& options, lab::sweep_request request, Use use) {
  std::optional<lab::finished_runs> finished;
  if (!options.resume.empty()) finished.emplace(options.resume, report_error);
  if (finished) request.finished = &*finished;
  const bool keyed =
      finished || options.dry_run || !request.only.empty() || (options.as_json && !options.rank);
  request.parts = keyed;
  std::string lessons;
  if (keyed && request.lessons != nullptr)
    lessons = fmt::format("{:x}", lab::content_hash(*request.lessons));
  for (const auto& path : options.traces) {
    const auto opened = open_input(path, options.reading, options.expert_bytes);
    if (keyed) request.inputs = fmt::format("{:x}|{}", lab::content_hash(opened.trace), lessons);
    progress_line progress(printable(opened.trace.name, 40), options.progress);
    request.progress = progress.report();
    if (request.progress) request.running = [&](const std::string& what) { progress.note(what); };
    try {
      use(opened, request);
    } catch (const trace_error& error) {
      throw trace_error(with_path(opened.path, error.what()));
    } catch (const lab::infeasible_error& error) {
      throw lab::infeasible_error(with_path(opened.path, error.what()));
    }
  }
}

/// Returns what `replay` returns for each trace.
template <class Result, class Replay>
std::vector<Result> replay_each(const simulate_options& options, const lab::sweep_request& request,
                                Replay replay) {
  std::vector<Result> results;
  for_each_trace(options, request, [&](const opened_trace& opened, const auto& asked) {
    results.push_back(replay(opened.trace, asked));
    if (options.as_json) sweep_of(results.back()).trace_hash = lab::trace_hash(opened.trace);
  });
  return results;
}

/// Prints notes that the output format has no field for.
void report_notes_of(const lab::sweep_result& sweep) {
  std::istringstream lines(lab::notes_of(sweep));
  for (std::string line; std::getline(lines, line);)
    report_error(fmt::format("{}: {}", sweep.name, line));
}

/// A table over all traces of a ranking.
std::string table_over(const std::vector<lab::sweep_result>&, const lab::table_view&) { return {}; }
std::string table_over(const std::vector<lab::ranking>& rankings, const lab::table_view& view) {
  return rankings.size() < 2 ? "" : '\n' + lab::to_table(lab::rank_traces(rankings), view);
}

/// Result is a sweep or a ranking.
template <class Result>
std::string text_of(const std::vector<Result>& results, const simulate_options& options,
                    const lab::table_view& view) {
  if (options.as_json) return lab::to_json_text(results);
  if (options.as_csv) return lab::to_csv(results);
  std::string text;
  for (const auto& one : results) text += (text.empty() ? "" : "\n") + lab::to_table(one, view);
  return text + table_over(results, view);
}

/// A file for one trace beside the results, if requested.
class trace_output {
 public:
  trace_output(const char* option, const std::filesystem::path& file, std::size_t traces) {
    if (file.empty()) return;
    if (traces != 1) refuse_option(option, file.string(), "one trace, not several");
    buffer_.emplace(file);
    stream_.rdbuf(&*buffer_);
  }
  [[nodiscard]] std::ostream* stream() { return buffer_ ? &stream_ : nullptr; }
  void commit() {
    if (buffer_) buffer_->commit();
  }

 private:
  std::optional<lab::output_buffer> buffer_;
  std::ostream stream_{nullptr};
};

/// Runs sweeps or rankings, and reports notes that the output has no field for.
template <class Result>
int finish(output_file& out, std::vector<Result> results, const simulate_options& options,
           const lab::table_view& view) {
  out.finish(text_of(results, options, view));
  if (!options.as_json && !options.as_csv) return ok;
  for (auto& one : results) report_notes_of(sweep_of(one));
  return ok;
}

int simulate(const simulate_options& options) {
  auto request = request_of(options);
  auto view = checked(options.table, lab::report_columns(), !options.out.empty());
  if (!options.compare.empty() && options.until.empty() && view.columns.empty())
    view.columns = lab::compared_columns(request);
  trace_output decisions("--decisions", options.decisions, options.traces.size());
  request.decisions = decisions.stream();
  trace_output timeline("--timeline", options.timeline, options.traces.size());
  request.timeline = timeline.stream();
  output_file out(options.out);  // an unwritable path is refused before the replays
  std::optional<opened_trace> lessons;
  if (!options.lessons.empty()) lessons = open_input(options.lessons, options.reading);
  if (lessons) request.lessons = &lessons->trace;
  if (options.dry_run) {
    for_each_trace(options, request, [&](const opened_trace& opened, const auto& asked) {
      out.write(lab::to_json_lines(opened.path.string(), lab::plan_sweep(opened.trace, asked)));
    });
    out.commit();
    return ok;
  }
  auto sweeps = replay_each<lab::sweep_result>(
      options, request, [&](const routing_trace& trace, const auto& asked) {
        return options.until.empty() ? lab::run_sweep(trace, asked)
                                     : lab::run_until(trace, asked, options.until);
      });
  decisions.commit();
  timeline.commit();
  return finish(out, std::move(sweeps), options, view);
}

int rank(const simulate_options& options) {
  auto request = request_of(options);
  const auto view = checked(options.table, {}, !options.out.empty());
  output_file out(options.out);
  auto rankings = replay_each<lab::ranking>(options, request, lab::rank_policies);
  return finish(out, std::move(rankings), options, view);
}

void add_what(CLI::App& app, simulate_options& options) {
  add_list(app, "--eviction", options.policies.evictions,
           fmt::format("eviction policies: {}; with parameters: lfu:history=resident; decorated: "
                       "{}+lru",
                       fmt::join(lab::known_policies().eviction.names(), ", "),
                       fmt::join(lab::known_policies().decorators.names(), "+lru, ")))
      ->default_str("lru");
  add_list(app, "--admission", options.policies.admissions,
           fmt::format("admission policies: {}",
                       fmt::join(lab::known_policies().admission.names(), ", ")))
      ->default_str("always");
  add_list(app, "--scope", options.request.scopes, lab::parse_scope,
           "slot pools: shared (one for all layers), per-layer (one for each layer)")
      ->default_str("shared");
  add_list(app, "--replay", options.request.replays, lab::parse_replay_mode,
           "time of evictions: event-atomic (within the visit, as in an engine), deferred (after "
           "the visit, until --budget holds), per-access (each routed id is a visit; for "
           "comparison only), expert-by-expert (one expert after the other, none protected; for "
           "comparison with SpecMD only)")
      ->default_str("event-atomic");
}

/// Refuses policy options and columns beside --rank.
void check_rank(const CLI::App& app) {
  for (const char* other :
       {"--eviction",     "--admission",      "--replay",         "--preset",       "--compare",
        "--prefetch",     "--prefetch-guard", "--prefetch-order", "--predictor",    "--learn-from",
        "--gate-weights", "--miss",           "--routing",        "--pre-eviction", "--precision",
        "--link",         "--columns",        "--decisions",      "--only",         "--dry-run"})
    if (app.count(other) != 0)
      throw lab::usage_error(fmt::format(
          "--rank replays every policy without further options; accepted: without {}", other));
}

/// Adds --compare and --rank.
void add_compare(CLI::App& app, simulate_options& options) {
  app.add_option("--compare", options.compare,
                 fmt::format("replay whole systems and Belady's bound: {}; systems for which the "
                             "trace lacks data are left out with a note",
                             fmt::join(lab::system_names(), ", ")))
      ->type_name("systems");
  app.add_flag("--rank", options.rank,
               "rank the online eviction policies by the share of lru's avoidable misses that they "
               "avoid; in both scopes unless --scope is given");
}

void add_dimensions(CLI::App& app, simulate_options& options) {
  add_list(app, "--preset", options.policies.presets,
           fmt::format("named sets of policies: {}; each also with +least_stale appended; other "
                       "policy options replace parts of a set",
                       fmt::join(lab::preset_names(), ", ")));
  add_list(app, "--prefetch", options.policies.prefetches,
           fmt::format("prefetch policies: {}; with parameters: next_layer_top_k:overfetch=1.5",
                       fmt::join(lab::known_policies().prefetch.names(), ", ")))
      ->default_str("no_prefetch");
  add_list(app, "--prefetch-guard", options.policies.guards,
           "residents that a prefetch may evict: none (any that the eviction policy picks), named "
           "(except those already requested), predicted (also except those more likely to be used "
           "sooner)")
      ->default_str("named");
  add_list(app, "--prefetch-order", options.policies.prefetch_orders,
           "order of waiting copies: nearest (earliest visit first), likeliest (greatest "
           "probability per visit until its use), greatest (greatest predicted probability)")
      ->default_str("nearest");
  add_list(
      app, "--predictor", options.policies.predictors,
      fmt::format(
          "predictors of the layers ahead: {}; with parameters: co-activation:reach=4:decay=0.8, "
          "learned-gate:weights=FILE (written by python3 -m hotset train-gate), "
          "current-gate:scores=sigmoid; combined: mixed+co-activation+last-routed",
          fmt::join(lab::predictor_names(false, true), ", ")))
      ->default_str("recorded");
  auto* const lessons =
      add_file(app, "--learn-from", options.lessons,
               "trace that predictors learn from before each replay, such as yesterday's");
  app.add_flag("--warm-start", options.request.warm_start,
               "start caches with the experts used most in the --learn-from trace; the time to "
               "fill them is not counted")
      ->needs(lessons);
  add_file(app, "--gate-weights", options.policies.gate_weights,
           "weights file for the preset promoe if --predictor names none (written by python3 -m "
           "hotset train-gate)");
  add_list(app, "--miss", options.policies.misses,
           fmt::format("miss policies: {}; with parameters: drop:keep=2",
                       fmt::join(lab::known_policies().miss.names(), ", ")))
      ->default_str("fetch");
  add_list(app, "--routing", options.policies.routings,
           fmt::format("routing policies: {}; with parameters: cache_aware:lambda=0.3",
                       fmt::join(lab::known_policies().routing.names(), ", ")))
      ->default_str("router_order");
  add_list(app, "--pre-eviction", options.policies.pre_evictions,
           "policies that free slots before the next layer is routed: none, active_evict; with "
           "parameters: active_evict:tau=0.002:r_max=2:release=gate")
      ->default_str("none");
  add_list(app, "--precision", options.request.precisions, lab::precision_ladder::parse,
           "precisions of the experts in bits, highest first, such as 8:4:2; the first has the "
           "trace's expert bytes; 8:4@75:25 divides the slots' bytes in percent (default: evenly)");
}

void add_clock(CLI::App& app, simulate_options& options) {
  auto& costs = options.request.costs;
  auto& way = options.link;
  const auto read_link = [](std::string_view text) {
    return lab::link_request{.link = {.bytes_per_second = lab::read_rate(text)},
                             .text = std::string(text)};
  };
  auto* link =
      add_list(app, "--link", options.request.links, read_link,
               "speeds of the link that copies experts, such as 25GB/s; with it, runs are timed");
  const auto time = [&](const char* name, ticks& value, const char* what) {
    add_parsed(app, name, "TIME", value, lab::read_duration, what)->default_str("0")->needs(link);
  };
  time("--latency", way.link.latency, "latency of each copy, such as 10us");
  add_size(app, "--chunk", way.link.chunk_bytes, "KiB",
           "bytes after which a more urgent copy can pre-empt the running one; 0: never", true)
      ->default_str("1MiB")
      ->needs(link);
  add_parsed(
      app, "--compute", "TIME[+TIME]", costs,
      [&costs](std::string_view text) { return with_compute(costs, text); },
      "compute time of a visit, optionally plus that of each of its tokens: 200us or 200us+20us")
      ->default_str("0")
      ->needs(link);
  time("--gate", costs.gate,
       "time from a layer's end until the next layer's experts are known, such as 20us");
  time("--host-expert", costs.per_host_expert,
       "time of an expert that the host computes, parallel to the device, such as 500us");
  add_number(app, "--transient", costs.transient, 0, 1024,
             "extra slots: experts that are refused a cache slot are copied through them, not "
             "computed by the host")
      ->needs(link);
  const auto read_way = [](std::string_view text) {
    return lab::choice_of<write_back_way>("--writeback:", text, {"none", "serial", "duplex"});
  };
  add_parsed(app, "--writeback", "NAME", way.write_back, read_way,
             "copying victims back before their slots are filled: none, serial (on the same link), "
             "duplex (on a second link)")
      ->default_str("none")
      ->needs(link);
  add_parsed(app, "--writeback-link", "RATE", way.back.bytes_per_second, lab::read_rate,
             "speed of copying back, such as 12GB/s (default: that of --link)")
      ->needs(link);
  add_number(app, "--writeback-spares", way.spares, 0, 1024,
             "extra slots that fills can take while their victims are copied back")
      ->needs(link);
  add_file(app, "--timeline", options.timeline,
           "write a timeline for Perfetto, as Chrome trace events (one trace and one run)")
      ->needs(link)
      ->excludes(app.get_option("--until"));
}

void add_sizes(CLI::App& app, simulate_options& options) {
  auto* slots = add_list(app, "--slots", options.request.sizes, lab::size_request::parse_slots,
                         "cache sizes: a number of slots, or a percentage of the experts; 5%@16:4 "
                         "is 5 % of their bytes at 16 bits, filled with experts of 4 bits; "
                         "per-layer scope gives every layer this size");
  slots->default_str(
      fmt::format("{}; those too small in a scope are left out", fmt::join(usual_slots, ",")));
  auto* budget = add_list(
      app, "--budget", options.request.sizes, lab::size_request::parse_budget,
      "cache sizes in bytes over all pools, such as 1500MiB,3GiB (GB is decimal, GiB binary)");
  budget->excludes(slots);
  add_list(app, "--until", options.until, lab::until_target::parse,
           "find the fewest slots that reach a target: hit=90% (hits of all accesses), tpot=20ms "
           "(time per output token, with --link)")
      ->excludes(slots)
      ->excludes(budget)
      ->excludes(app.get_option("--rank"));
  add_expert_bytes(app, options.expert_bytes);
  app.add_flag("--size-classes", options.request.size_classes,
               "in shared scope, use one pool for each size of expert");
  const auto read_split = [](std::string_view text) {
    constexpr visit_split splits[] = {visit_split::by_token, visit_split::by_expert,
                                      visit_split::leave_rest};
    return splits[lab::choice_of<std::size_t>("--split:", text,
                                              {"by-token", "by-expert", "leave-rest"})];
  };
  add_parsed(app, "--split", "NAME", options.request.split, read_split,
             "handling of visits with more experts than the pool has slots: by-token (split, "
             "exact), by-expert (split), leave-rest (not split; the experts that the fewest tokens "
             "use stay on the host)")
      ->default_str("by-token");
  add_number(app, "--max-tokens", options.request.max_tokens,
             "split steps with more tokens than this; 0: never");
}

void add_output(CLI::App& app, simulate_options& options) {
  add_number(app, "--jobs", options.request.jobs, 1U, 1024U,
             "number of replays that run in parallel");
  auto* as_json = app.add_flag("--json", options.as_json,
                               "print JSON: an object, or an array for several traces");
  auto* as_csv = app.add_flag("--csv", options.as_csv, "print CSV")->excludes(as_json);
  add_columns(app, options.table, lab::report_columns())->excludes(as_json)->excludes(as_csv);
  add_out(app, options.out);
  add_file(app, "--decisions", options.decisions,
           "write every decision as a JSON line (one trace; replays run one by one)")
      ->excludes(app.get_option("--until"));
  app.add_option(
         "--resume", options.resume,
         "folder for the results of finished runs: runs found there are not replayed again, "
         "so an interrupted command goes on when it is repeated")
      ->type_name("FOLDER")
      ->excludes(app.get_option("--decisions"))
      ->excludes(app.get_option("--timeline"));
  add_list(app, "--only", options.request.only,
           "replay only the runs with these keys; --dry-run prints keys")
      ->excludes(app.get_option("--until"));
  app.add_flag("--dry-run", options.dry_run,
               "replay nothing; print a JSON line for each run: its key, its options, and whether "
               "--resume has its result")
      ->excludes(app.get_option("--until"))
      ->excludes(app.get_option("--compare"))
      ->excludes(app.get_option("--decisions"))
      ->excludes(app.get_option("--timeline"))
      ->excludes(app.get_option("--csv"))
      ->excludes(app.get_option("--columns"));
  app.add_flag("--progress", options.progress,
               "without a terminal, too: print the share done, the runs and the time left on "
               "standard error every 10 s");
}

}  // namespace

command add_simulate(CLI::App& root) {
  auto* app = root.add_subcommand("simulate", "Replay traces under policies and cache sizes");
  auto options = std::make_shared<simulate_options>();
  add_file(*app, "TRACE", options->traces, "traces of any known format")->required();
  add_what(*app, *options);
  add_dimensions(*app, *options);
  add_compare(*app, *options);
  add_sizes(*app, *options);
  add_clock(*app, *options);
  add_output(*app, *options);
  add_trace_options(*app, options->reading);
  app->footer(R"(Lists are separated by commas; every combination is replayed.
Examples:
  hotset simulate routes.trace
  hotset simulate routes.trace --eviction lru,lfu:history=resident,belady --slots 5%,12.5%,64
  hotset simulate routes.trace --scope shared,per-layer --budget 1500MiB,3GiB --json --out run.json
  hotset simulate routes.trace --eviction least_stale --slots 25% --decisions decisions.jsonl
  hotset simulate routes.trace --prefetch next_layer_top_k:overfetch=1.5 --link 25GB/s --compute 200us
  hotset simulate routes.trace --preset specmd-1,specmd-1+least_stale --slots 5% --link 5GB/s
  hotset simulate scored.trace --compare systems --slots 25% --link 10GB/s --compute 200us
  hotset simulate routes.trace --rank --slots 12.5%,25%
  hotset simulate routes.trace --eviction lru,similar_steps --until hit=90%,tpot=20ms --link 25GB/s --expert-bytes 3.6MiB)");
  return {app, [app, options] {
            if (!options->rank) return simulate(*options);
            check_rank(*app);
            return rank(*options);
          }};
}

}  // namespace hotset::cli
