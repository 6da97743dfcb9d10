// SPDX-License-Identifier: Apache-2.0
#include "lab/program/trace_input.hpp"

#include <limits>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

std::string joined(const std::vector<std::string>& fields) {
  std::string all;
  for (const auto& field : fields) all.append(all.empty() ? "" : ",").append(field);
  return all;
}

}  // namespace

void add_trace_options(CLI::App& app, trace_options& options) {
  const std::string group = "Reading traces";
  app.add_option("--format", options.format,
                 "format of the trace: auto (by content), native, bigmoe, esft, layer-expert, "
                 "jsonl, csv, npy, oracle, mooncake, azure")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  app.add_option("--as", options.as,
                 "cut the tokens into steps anew: decode (a token a step), decode:<sequences> (a "
                 "token of each, so many together), prefill (a sequence a step), prefill:<tokens>")
      ->type_name("SHAPE")
      ->group(group);
  add_number(app, "--first", options.first, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max(),
             "only so many tokens of the recording; 0: all")
      ->group(group);
  add_list(
      app, "--field", options.fields,
      "jsonl, csv: names of the fields, such as layer=l,experts=ids; csv: columns experts=e0..e5")
      ->group(group);
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  add_number(app, "--top-k", options.top_k, 0, most,
             "esft, layer-expert: experts of a token, 0: infer; npy: experts that logits choose")
      ->group(group);
  add_number(app, "--experts", options.experts, 0, most,
             "experts of a layer, if the trace does not say; 0: the highest id + 1")
      ->group(group);
  app.add_option("--block-bytes", options.block_bytes, "mooncake, azure: bytes of a block")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group(group);
}

lab::open_trace_options checked(const trace_options& options) {
  lab::open_trace_options out;
  out.format = for_option("--format", [&] { return lab::parse_trace_format(options.format); });
  if (!options.as.empty())
    out.as = for_option("--as", [&] { return lab::parse_step_shape(options.as); });
  if (!options.fields.empty())
    out.fields =
        for_option("--field", [&] { return lab::parse_field_map(joined(options.fields)); });
  out.top_k = options.top_k;
  out.experts = options.experts;
  out.first = options.first;
  out.block_bytes =
      for_option("--block-bytes", [&] { return lab::read_size(options.block_bytes, "B"); });
  return out;
}

std::string with_path(const std::filesystem::path& path, const std::string& message) {
  const auto file = printable(path.string(), 4096);
  if (message.find(file) != std::string::npos) return message;
  return fmt::format("{}: {}", file, message);
}

opened_trace open_input(const std::filesystem::path& given,
                        const lab::open_trace_options& options) {
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
  } catch (const invalid_config& error) {  // numbers of a file that no model can have
    throw trace_error(with_path(path, error.what()));
  }
  for (const auto& note : notes) report_error(fmt::format("{}: note: {}", path.string(), note));
  if (opened.trace.name.empty()) opened.trace.name = path.stem().string();
  return opened;
}

}  // namespace hotset::cli
