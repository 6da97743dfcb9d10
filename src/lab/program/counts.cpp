// SPDX-License-Identifier: Apache-2.0
// hotset counts: number of uses of each expert, from a trace, an importance matrix or recorded counts.
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_files.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/json_text.hpp"
#include "lab/traces/expert_counts.hpp"

namespace hotset::cli {
namespace {

using json = nlohmann::ordered_json;

struct counts_options {
  std::filesystem::path in;
  bool as_json = false;
  trace_options reading;
  std::vector<std::string> given;  ///< names of those in `reading`
};

constexpr std::array shares = {0.125, 0.25, 0.5};

/// Errors: usage_error if an option for traces is given, besides `accepted`.
void refuse_trace_options(const counts_options& options, std::string_view accepted = "") {
  for (const auto& name : options.given)
    if (name != accepted)
      throw lab::usage_error(fmt::format("{}: {} has counts, accepted: a trace, or no {}", name,
                                         options.in.string(), name));
}

lab::expert_counts read_counts(const counts_options& options) {
  const auto path = input_path(options.in);
  if (options.reading.format == lab::trace_format::automatic) {
    const auto beginning = lab::read_beginning(path, 65536).text;
    if (beginning.starts_with("GGUF")) {
      refuse_trace_options(options);
      return lab::read_imatrix(path);
    }
    if (lab::looks_like_logical_counts(beginning)) {
      refuse_trace_options(options);
      return lab::read_logical_counts(path);
    }
    if (lab::looks_like_count_csv(beginning)) {
      refuse_trace_options(options, "--experts");
      lab::reading_notes notes;
      auto counts = lab::read_count_csv(path, options.reading.experts, &notes);
      report_notes(path, notes);
      return counts;
    }
  }
  return lab::count_uses(open_input(path, options.reading).trace);
}

std::string to_json(const lab::expert_counts& counts) {
  json hottest = json::array();
  for (const auto share : shares)
    hottest.push_back({{"experts", share}, {"uses", counts.hottest(share)}});
  json rows = json::array();
  const auto wide = static_cast<std::ptrdiff_t>(counts.experts);
  for (auto at = counts.uses.begin(); at != counts.uses.end(); at += wide)
    rows.push_back(std::vector<double>(at, at + wide));
  const json out{{"schema", "hotset.counts/1"},     {"name", counts.name},
                 {"source", counts.source},         {"layers", counts.layers},
                 {"experts", counts.experts},       {"uses", counts.total()},
                 {"unused", counts.unused()},       {"hottest", std::move(hottest)},
                 {"logical_count", std::move(rows)}};
  return lab::one_line(out) + '\n';
}

std::string to_text(const lab::expert_counts& counts) {
  auto out = fmt::format("{}: {} layers x {} experts, {:.0f} uses; {} of {} experts unused\n",
                         printable(counts.name, 60), counts.layers.size(), counts.experts,
                         counts.total(), counts.unused(), counts.uses.size());
  for (const auto share : shares)
    out += fmt::format("the most used {:4.1f} % have {:5.1f} % of the uses\n", 100 * share,
                       100 * counts.hottest(share));
  return out + "a profile: counts do not show which experts were used together, or when\n";
}

int print_counts(const counts_options& options) {
  const auto counts = read_counts(options);
  print(options.as_json ? to_json(counts) : to_text(counts));
  return ok;
}

}  // namespace

command add_counts(CLI::App& root) {
  auto* app = root.add_subcommand("counts", "Count the uses of each expert: a profile");
  auto options = std::make_shared<counts_options>();
  add_file(*app, "IN", options->in,
           "trace of any known format, llama.cpp's imatrix (GGUF), a JSON object with "
           "\"logical_count\", or a CSV of layer,expert,count")
      ->required();
  app->add_flag("--json", options->as_json, "print one JSON object, with every count");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset counts imatrix.gguf
  hotset counts routes.trace --json)");
  return {app, [app, options] {
            options->given = given_trace_options(*app);
            return print_counts(*options);
          }};
}

}  // namespace hotset::cli
