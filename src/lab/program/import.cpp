// SPDX-License-Identifier: Apache-2.0
// hotset import: converts any known format to a native trace.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/program/trace_output.hpp"

namespace hotset::cli {
namespace {

struct import_options {
  std::filesystem::path in;
  std::filesystem::path out;
  std::string name;
  std::optional<std::uint64_t> expert_bytes;
  trace_options reading;
};

int import_trace(const import_options& options) {
  output_file out(options.out, lab::output_content::binary);
  auto trace = open_input(options.in, options.reading, options.expert_bytes).trace;
  if (!options.name.empty()) trace.name = options.name;
  write_trace(trace, out);
  return ok;
}

}  // namespace

command add_import(CLI::App& root) {
  auto* app = root.add_subcommand("import", "Convert a trace of any known format to hotset's own");
  auto options = std::make_shared<import_options>();
  add_file(*app, "IN", options->in, "trace of any known format")->required();
  add_file(*app, "OUT", options->out, "native trace to write (safetensors)")->required();
  app->add_option("--name", options->name, "name of the trace in reports")->type_name("TEXT");
  add_expert_bytes(*app, options->expert_bytes);
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset import gemma.route.csv gemma.trace
  hotset import esft-law.tar.xz law.trace --as prefill:512 --name law
  hotset import dump.jsonl dump.trace --format jsonl --field layer=l,experts=ids)");
  return {app, [options] { return import_trace(*options); }};
}

}  // namespace hotset::cli
