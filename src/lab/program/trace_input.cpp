// SPDX-License-Identifier: Apache-2.0
#include "lab/program/trace_input.hpp"

#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/files/input_error.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"

namespace hotset::cli {

namespace {

constexpr const char* group = "Reading traces";

}  // namespace

std::vector<std::string> given_trace_options(const CLI::App& app) {
  std::vector<std::string> out;
  for (const auto* option : app.get_options())
    if (option->get_group() == group && option->count() > 0) out.push_back(option->get_name());
  return out;
}

void add_trace_options(CLI::App& app, trace_options& options) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  if (app.get_option_no_throw("--format") == nullptr)  // place has its own
    add_parsed(
        app, "--format", "NAME", options.format, lab::parse_trace_format,
        "format of the trace: auto (by content), native, bigmoe, esft, layer-expert, jsonl, csv, "
        "npy, oracle, requests")
        ->default_str("auto")
        ->group(group);
  add_parsed(
      app, "--as", "SHAPE", options.as, lab::parse_step_shape,
      "replace the recording's steps: decode (one token per step), decode:4 (one token of each of "
      "four sequences), prefill (one sequence per step), prefill:512 (512 tokens of a sequence)")
      ->group(group);
  auto* const first =
      add_number(app, "--first", options.first, "read only this many first tokens; 0: all")
          ->group(group);
  auto* const tokens =
      add_parsed(
          app, "--tokens", "A:B", options.tokens, lab::parse_row_range,
          "read only tokens A to B - 1, counted from 0; 100..199 is 100:200, 100: has no end")
          ->group(group)
          ->excludes(first);
  add_parsed(app, "--sequences", "A:B", options.sequences, lab::parse_row_range,
             "read only sequences numbered A to B - 1; ranges as of --tokens")
      ->group(group)
      ->excludes(first)
      ->excludes(tokens);
  if (app.get_option_no_throw("--layers") == nullptr)  // plan has its own
    add_parsed(app, "--layers", "A..B", options.layers, lab::parse_layer_ranges,
               "read only layers with these numbers of the recording, such as 1..45, 3.. or 0,2,4")
        ->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--field",
         [&](const std::vector<std::string>& fields) {
           options.fields = for_option("--field", [&] {
             return lab::parse_field_map(fmt::format("{}", fmt::join(fields, ",")));
           });
         },
         "names of the fields in jsonl and csv, such as layer=l,experts=ids; several columns of a "
         "csv as experts=e0..e5")
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->group(group);
  add_number(
      app, "--top-k", options.top_k, 0, most,
      "experts per token of esft and layer-expert traces, 0: infer; needed for logits of npy "
      "and for SGLang's answers")
      ->group(group);
  add_number(app, "--experts", options.experts, 0, most,
             "experts per layer of a trace without it; 0: the highest id + 1")
      ->group(group);
  add_size(app, "--block-bytes", options.block_bytes, "B", "bytes of a block of requests")
      ->default_str("1B")
      ->group(group);
}

void add_expert_bytes(CLI::App& app, std::optional<std::uint64_t>& bytes) {
  add_size(
      app, "--expert-bytes", bytes, "MiB",
      "size of one expert, such as 3.6MiB, for traces without it; replaces a trace's own sizes");
}

std::string with_path(const std::filesystem::path& path, const std::string& message) {
  const auto file = printable(path.string(), 4096);
  if (message.find(file) != std::string::npos) return message;
  return fmt::format("{}: {}", file, message);
}

void report_notes(const std::filesystem::path& path, const lab::reading_notes& notes) {
  for (const auto& note : notes) report_error(fmt::format("{}: note: {}", path.string(), note));
}

opened_trace open_input(const std::filesystem::path& given, const trace_options& options,
                        std::optional<std::uint64_t> expert_bytes) {
  const auto path = input_path(given);
  opened_trace opened;
  opened.path = path;
  auto chosen = options;
  lab::reading_notes notes;
  chosen.notes = &notes;
  try {
    const shown_progress shown(fmt::format("reading {}", printable(path.string(), 40)));
    if (chosen.format == lab::trace_format::automatic)
      chosen.format = lab::recognise_trace(path, chosen.fields);
    opened.format = chosen.format;
    opened.trace = lab::open_trace(path, chosen);
    if (const auto bad = opened.trace.validate()) throw trace_error(bad->message);
  } catch (const trace_error& error) {
    throw trace_error(with_path(path, error.what()));
  } catch (const invalid_config& error) {  // the file has numbers that no model can have
    throw trace_error(with_path(path, error.what()));
  }
  if (expert_bytes) {
    if (!opened.trace.expert_bytes.empty())
      notes.emplace_back("--expert-bytes replaces the sizes of the trace");
    opened.trace.expert_bytes = {*expert_bytes};
  }
  report_notes(path, notes);
  if (opened.trace.name.empty()) opened.trace.name = path.stem().string();
  return opened;
}

}  // namespace hotset::cli
