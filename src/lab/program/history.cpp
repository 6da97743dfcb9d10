// SPDX-License-Identifier: Apache-2.0
// hotset history: learns, merges and saves the past traffic that similar_steps starts from.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/predict/history/saved_history.hpp"
#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/json_text.hpp"
#include "lab/studies/learn_history.hpp"

namespace hotset::cli {
namespace {

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

/// Errors: trace_error for a file that is no history, usage_error for another model's.
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

saved_history learn(const std::filesystem::path& given, const history_options& options) {
  const auto opened = open_input(given, options.reading);
  try {
    return lab::learn_history(opened.trace, options.rows, options.model);
  } catch (const trace_error& error) {
    throw trace_error(with_path(opened.path, error.what()));
  }
}

std::string text_of(const nlohmann::ordered_json& facts) {
  auto out = fmt::format("{} layers x {} experts, top-{}\n", facts["layers"].dump(),
                         facts["experts"].dump(), facts["top_k"].dump());
  for (const auto& part : facts["parts"])
    out += fmt::format("{}: {} tokens\n", printable(part["name"].get<std::string>(), 60),
                       part["rows"].dump());
  return out +
         fmt::format("saved: {} tokens, {} bytes\n", facts["rows"].dump(), facts["bytes"].dump());
}

int write_history(const history_options& options) {
  if (options.traces.empty() && options.from.empty())
    throw lab::usage_error("history: nothing to learn from; accepted: traces, or --from");
  output_file out(options.out, lab::output_content::binary);
  saved_history whole;
  auto parts = nlohmann::ordered_json::array();
  // Merges parts of one model, oldest first.
  const auto add = [&](const std::filesystem::path& path, saved_history part) {
    parts.push_back({{"name", path.filename().string()}, {"rows", part.rows()}});
    if (parts.size() == 1)
      whole = std::move(part);
    else if (const auto bad = whole.merge(part))
      throw lab::usage_error(with_path(path, bad->message));
  };
  for (const auto& given : options.from)
    add(input_path(given), read_history(input_path(given), options));
  for (const auto& given : options.traces) add(input_path(given), learn(given, options));
  whole.keep_newest(static_cast<std::size_t>(options.rows));
  const auto bytes = whole.save();
  const nlohmann::ordered_json facts{{"schema", "hotset.history/1"}, {"layers", whole.layers},
                                     {"experts", whole.experts},     {"top_k", whole.top_k},
                                     {"model", whole.model},         {"parts", parts},
                                     {"rows", whole.rows()},         {"bytes", bytes.size()}};
  write_and_report(out, bytes, options.as_json ? lab::one_line(facts) + '\n' : text_of(facts));
  return ok;
}

}  // namespace

command add_history(CLI::App& root) {
  auto* app =
      root.add_subcommand("history", "Learn and save the history that similar_steps starts from");
  auto options = std::make_shared<history_options>();
  add_file(*app, "TRACE", options->traces, "traces of one model, oldest first");
  add_file(*app, "-o,--out", options->out, "history to write, for similar_steps:from=FILE")
      ->required();
  auto* from =
      add_file(*app, "--from", options->from, "saved histories to continue from, oldest first")
          ->allow_extra_args(false);
  add_number(*app, "--share", options->share, 0.0, 1.0,
             "fraction of the --from rows to keep (newest first)")
      ->needs(from);
  add_number(*app, "--rows", options->rows, 256, 32768,
             "maximum tokens to keep (newest first); a multiple of 256 if traces are given");
  add_number(*app, "--model", options->model,
             "number that identifies the model, such as a hash of its weights; files with another "
             "number are refused; 0: none");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.history/1)");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset history monday.trace --out traffic.history
  hotset history tuesday.trace --from traffic.history --share 0.5 --out traffic.history
  hotset simulate wednesday.trace --slots 25% --eviction similar_steps:from=traffic.history)");
  return {app, [options] { return write_history(*options); }};
}

}  // namespace hotset::cli
