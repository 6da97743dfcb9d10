// SPDX-License-Identifier: Apache-2.0
// hotset history: what similar_steps knows of past traffic, learnt from traces, put together and saved.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/predict/history/saved_history.hpp"
#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/studies/learn_history.hpp"

namespace hotset::cli {
namespace {

using json = nlohmann::ordered_json;

struct history_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::filesystem::path> from;
  std::filesystem::path out;
  double share = 1;
  std::int32_t rows = 4096;
  std::uint64_t model = 0;
  bool as_json = false;
  trace_options reading;
};

/// A saved history or a trace, and what it brought.
struct history_part {
  std::string name;
  std::size_t rows = 0;
};
struct history_report {
  saved_history whole;
  std::vector<history_part> parts;
};

/// Puts parts of one model together, the oldest first.
class history_merger {
 public:
  /// Errors: usage_error for a part of another shape or model than those before it.
  void add(const std::filesystem::path& path, saved_history part) {
    report_.parts.push_back({path.filename().string(), part.rows()});
    if (report_.parts.size() == 1) {
      report_.whole = std::move(part);
    } else if (const auto bad = report_.whole.merge(part)) {
      throw lab::usage_error(with_path(path, bad->message));
    }
  }
  [[nodiscard]] history_report take(std::size_t most_rows) {
    report_.whole.keep_newest(most_rows);
    return std::move(report_);
  }

 private:
  history_report report_;
};

/// Errors: trace_error for what is no history, usage_error for one of another model.
saved_history read_history(const std::filesystem::path& path, const history_options& options) {
  const lab::mapped_file file(path);
  auto out = saved_history::load(file.bytes());
  if (!out) throw trace_error(with_path(path, out.error().message));
  if (const auto bad = out->check_model(options.model))
    throw lab::usage_error(with_path(path, bad->message));
  if (options.model != 0) out->model = options.model;
  require_valid(out->fade(options.share));
  return *std::move(out);
}

history_report learn(const history_options& options) {
  const auto reading = checked(options.reading);
  history_merger merger;
  for (const auto& given : options.from) {
    const auto path = input_path(given);
    merger.add(path, read_history(path, options));
  }
  for (const auto& given : options.traces) {
    const auto opened = open_input(given, reading);
    try {
      merger.add(opened.path, lab::learn_history(opened.trace, options.rows, options.model));
    } catch (const trace_error& error) {
      throw trace_error(with_path(opened.path, error.what()));
    }
  }
  return merger.take(static_cast<std::size_t>(options.rows));
}

std::string to_json(const history_report& report, std::size_t bytes) {
  const auto& whole = report.whole;
  json parts = json::array();
  for (const auto& part : report.parts) parts.push_back({{"name", part.name}, {"rows", part.rows}});
  const json out{{"schema", "hotset.history/1"}, {"layers", whole.layers},
                 {"experts", whole.experts},     {"top_k", whole.top_k},
                 {"model", whole.model},         {"parts", std::move(parts)},
                 {"rows", whole.rows()},         {"bytes", bytes}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

std::string to_text(const history_report& report, std::size_t bytes) {
  const auto& whole = report.whole;
  std::string out =
      fmt::format("{} layers x {} experts, top-{}\n", whole.layers, whole.experts, whole.top_k);
  for (const auto& part : report.parts)
    out += fmt::format("{}: {} tokens\n", printable(part.name, 60), part.rows);
  return out + fmt::format("saved: {} tokens, {} bytes\n", whole.rows(), bytes);
}

int write_history(const history_options& options) {
  if (options.traces.empty() && options.from.empty())
    throw lab::usage_error("history: nothing to learn from; accepted: traces, or --from");
  output_file out(options.out, lab::output_content::binary);
  const auto report = learn(options);
  const auto bytes = report.whole.save();
  write_and_report(out, bytes,
                   options.as_json ? to_json(report, bytes.size()) : to_text(report, bytes.size()));
  return ok;
}

}  // namespace

command add_history(CLI::App& root) {
  auto* app = root.add_subcommand(
      "history", "Save what traces teach similar_steps, so that a cache starts warm");
  auto options = std::make_shared<history_options>();
  app->add_option("TRACE", options->traces, "traces of one model, the oldest first")
      ->type_name("FILE");
  app->add_option("--out", options->out, "history to write, for similar_steps:from=FILE")
      ->required()
      ->type_name("FILE");
  auto* from =
      app->add_option("--from", options->from, "saved histories to go on from, the oldest first")
          ->type_name("FILE")
          ->allow_extra_args(false);
  add_number(*app, "--share", options->share, 0.0, 1.0,
             "of what --from holds: so much counts, the newest of it")
      ->needs(from);
  add_number(*app, "--rows", options->rows, 256, 32768,
             "tokens to keep, the newest; a multiple of 256");
  add_number(*app, "--model", options->model, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max(),
             "number of the model, such as a hash of its weights: another one refuses the file; "
             "0: none");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.history/1)");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset history monday.trace --out traffic.history
  hotset history tuesday.trace --from traffic.history --share 0.5 --out traffic.history
  hotset simulate wednesday.trace --slots 25% --eviction similar_steps:from=traffic.history)");
  return {app, [options] { return write_history(*options); }};
}

}  // namespace hotset::cli
