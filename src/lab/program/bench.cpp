// SPDX-License-Identifier: Apache-2.0
// hotset bench: a results file of policies on many traces, and their leaderboard.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/version.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/reports/bench_rows.hpp"
#include "lab/reports/rank_report.hpp"
#include "lab/studies/rank.hpp"

namespace hotset::cli {
namespace {

namespace fs = std::filesystem;

struct bench_options {
  std::vector<fs::path> traces;
  std::vector<lab::policy_set> policies;  ///< none: those of --rank
  std::vector<cache_scope> scopes{cache_scope::shared, cache_scope::per_layer};
  std::vector<lab::size_request> sizes;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  fs::path out;
  trace_options reading;
};

/// A trace to replay. A file that was found in a folder may turn out unreadable.
struct bench_input {
  fs::path path;
  bool found = false;
};

/// ESFT writes one trace as a folder of one file per layer.
bool is_one_trace(const std::vector<fs::path>& files) {
  return std::ranges::any_of(files, [](const fs::path& file) {
    return file.filename().string().starts_with("expert_weights_");
  });
}

bool is_trace(const fs::path& file, const trace_options& reading) {
  if (reading.format != lab::trace_format::automatic) return true;
  try {
    (void)lab::recognise_trace(file, reading.fields);
    return true;
  } catch (const trace_error&) {
    return false;
  }
}

/// Adds the traces of a folder and of its subfolders, in the order of their names. Links to folders are not followed.
void find_traces(const fs::path& folder, const trace_options& reading,
                 std::vector<bench_input>& inputs, std::vector<std::string>& others) {
  std::vector<fs::path> files(fs::directory_iterator(folder), fs::directory_iterator{});
  std::ranges::sort(files);
  if (is_one_trace(files)) {
    inputs.push_back({folder, true});
    return;
  }
  for (const auto& file : files) {
    if (fs::is_directory(fs::symlink_status(file)))
      find_traces(file, reading, inputs, others);
    else if (fs::is_regular_file(file) && is_trace(file, reading))
      inputs.push_back({file, true});
    else
      others.push_back(file.filename().string());
  }
}

std::vector<bench_input> inputs_of(const bench_options& options) {
  std::vector<bench_input> inputs;
  for (const auto& given : options.traces) {
    if (!fs::is_directory(given)) {
      inputs.push_back({given, false});
      continue;
    }
    const auto before = inputs.size();
    std::vector<std::string> others;
    find_traces(given, options.reading, inputs, others);
    if (inputs.size() == before)
      throw trace_error(
          fmt::format("{}: the folder holds no trace; accepted: traces of any known "
                      "format, in it or in its subfolders",
                      printable(given.string(), 4096)));
    if (!others.empty())
      report_error(fmt::format("{}: no traces: {}", given.string(), fmt::join(others, ", ")));
  }
  return inputs;
}

/// The results, and the file that keeps them.
class bench_file {
 public:
  /// Errors: usage_error if it is no regular file; those of read_bench_rows.
  explicit bench_file(fs::path path) : path_(std::move(path)) {
    if (path_ == "-" || (fs::exists(path_) && !fs::is_regular_file(path_)))
      refuse_option("--out", path_.string(), "a regular file, which keeps the results");
    rows_ = lab::read_bench_rows(path_);
    (void)output_file(path_);  // an unwritable path is refused before the replays
  }

  /// Replays policies that have no row in one cache, and writes the file. Returns what was left out.
  std::vector<std::string> complete(const routing_trace& trace, lab::bench_row cell,
                                    lab::sweep_request request) {
    std::erase_if(request.policies, [&](const lab::policy_set& set) {
      cell.eviction = set.eviction;
      return lab::has_row(rows_, cell);
    });
    if (request.policies.empty()) return {};
    const auto sweep = lab::run_sweep(trace, request);
    lab::add_runs(rows_, cell, sweep);
    lab::write_file(path_, lab::to_csv(rows_));
    return sweep.not_replayed;
  }

  /// The table of this version's rows.
  [[nodiscard]] std::string table() const {
    const auto others = std::ranges::count_if(
        rows_, [](const auto& one) { return one.version != HOTSET_VERSION_TEXT; });
    auto text =
        lab::to_table(lab::leaderboard_of(rows_), {.width = lab::output_width(), .columns = {}});
    text += "host ns a visit: processor time on the machines that ran; it depends on their load\n";
    if (others > 0)
      text += fmt::format("not shown: {} rows of other versions in {}\n", others, path_.string());
    return text;
  }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

 private:
  fs::path path_;
  std::vector<lab::bench_row> rows_;
};

void note_once(std::vector<std::string>& lines, const std::string& line) {
  if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
}

/// Completes all caches of one trace, and reports what was left out.
void add_trace(const opened_trace& opened, const bench_options& options, bench_file& file) {
  std::vector<std::string> left_out;
  lab::sweep_request request{.jobs = options.jobs, .leaves_out = true};
  request.policies = options.policies;
  if (request.policies.empty()) request.policies = lab::rank_candidates(opened.trace, left_out);
  auto cell = lab::bench_row_of(opened.trace);
  for (const auto scope : options.scopes)
    for (const auto& size : options.sizes) {
      request.scopes = {scope};
      request.sizes = {size};
      cell.scope = lab::name_of(scope);
      cell.size = size.text;
      progress_line progress(
          fmt::format("{} {} {}", printable(opened.trace.name, 40), cell.scope, cell.size));
      request.progress = progress.report();
      try {
        for (const auto& line : file.complete(opened.trace, cell, request))
          note_once(left_out, line);
      } catch (const lab::infeasible_error& why) {
        note_once(left_out, fmt::format("scope {}, {}", cell.scope, why.what()));
      }
    }
  for (const auto& line : left_out)
    report_error(fmt::format("{}: not replayed: {}", opened.path.string(), line));
}

/// Opens a trace; one that was found in a folder and cannot be read is reported and left out.
std::optional<opened_trace> open_found(const bench_input& input, const trace_options& reading) {
  try {
    return open_input(input.path, reading);
  } catch (const trace_error& error) {
    if (!input.found) throw;
    report_error(fmt::format("left out: {}", error.what()));
    return std::nullopt;
  }
}

int bench(const bench_options& options) {
  bench_file file(options.out);
  for (const auto& input : inputs_of(options))
    if (const auto opened = open_found(input, options.reading)) add_trace(*opened, options, file);
  if (file.empty())
    throw lab::infeasible_error("no size has enough slots for any trace; accepted: larger --slots");
  print(file.table());
  return ok;
}

/// Parses a policy. Errors: usage_error.
lab::policy_set bench_policy(std::string_view text) {
  lab::policy_set set;
  set.eviction = text;
  (void)lab::read_policies(set);
  return set;
}

/// Adds the ends of the scale unless they are named.
std::vector<lab::policy_set> with_ends(std::vector<lab::policy_set> policies) {
  if (policies.empty()) return policies;
  for (const auto end : {lab::rank_base, lab::rank_bound})
    if (std::ranges::find(policies, end, &lab::policy_set::eviction) == policies.end())
      policies.push_back(bench_policy(end));
  return policies;
}

}  // namespace

command add_bench(CLI::App& root) {
  auto* app = root.add_subcommand(
      "bench", "Compare policies on many traces, in a results file that every run completes");
  auto options = std::make_shared<bench_options>();
  for (const auto* size : {"12.5%", "25%", "50%"})
    options->sizes.push_back(lab::size_request::parse_slots(size));
  add_file(*app, "TRACE", options->traces,
           "traces of any known format, or folders: all traces in them and in their subfolders")
      ->required();
  add_list(*app, "--eviction", options->policies, bench_policy,
           fmt::format("eviction policies: {}; lru and belady, the ends of the scale, are always "
                       "added",
                       fmt::join(lab::known_policies().eviction.names(), ", ")))
      ->default_str("all that --rank replays");
  add_list(*app, "--scope", options->scopes, lab::parse_scope,
           "slot pools: shared (one for all layers), per-layer (one for each layer)")
      ->default_str("shared,per-layer");
  add_list(*app, "--slots", options->sizes, lab::size_request::parse_slots,
           "cache sizes: a number of slots, or a percentage of the experts; those too small for a "
           "trace are left out and reported")
      ->default_str("12.5%,25%,50%");
  add_number(*app, "--jobs", options->jobs, 1U, 1024U, "number of replays that run in parallel");
  add_file(*app, "-o,--out", options->out,
           "results file (CSV): replays that it has are not run again; it is replaced after each "
           "cache, so an interrupted run can be continued")
      ->required();
  add_trace_options(*app, options->reading);
  app->footer(
      R"(Rows are identified by the routing's hash, scope, size, policy and version of hotset.
Examples:
  hotset bench traces/ --out results.csv
  hotset bench a.trace b.trace --eviction lru,similar_steps --slots 25% --scope shared --out results.csv)");
  return {app, [options] {
            options->policies = with_ends(std::move(options->policies));
            return bench(*options);
          }};
}

}  // namespace hotset::cli
