// SPDX-License-Identifier: Apache-2.0
// hotset import: any known format to a native trace.
#include <filesystem>
#include <memory>
#include <string>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/program/trace_output.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

struct import_options {
  std::filesystem::path in;
  std::filesystem::path out;
  std::string name;
  std::string expert_bytes;
  trace_options reading;
};

/// Of every expert, where the trace has none.
void tell_expert_bytes(const std::string& text, routing_trace& trace) {
  const auto bytes = for_option("--expert-bytes", [&] { return lab::read_size(text, "MiB"); });
  if (!trace.expert_bytes.empty())
    refuse_option("--expert-bytes", text, "traces that do not say how large an expert is");
  trace.expert_bytes = {bytes};
}

int import_trace(const import_options& options) {
  const auto reading = checked(options.reading);
  output_file out(options.out, lab::output_content::binary);
  auto opened = open_input(options.in, reading);
  if (!options.name.empty()) opened.trace.name = options.name;
  if (!options.expert_bytes.empty()) tell_expert_bytes(options.expert_bytes, opened.trace);
  write_trace(opened.trace, out);
  return ok;
}

}  // namespace

command add_import(CLI::App& root) {
  auto* app = root.add_subcommand("import", "Turn a trace of any known format into a native one");
  auto options = std::make_shared<import_options>();
  app->add_option("IN", options->in, "trace of any known format")->required()->type_name("FILE");
  app->add_option("OUT", options->out, "native trace to write (safetensors)")
      ->required()
      ->type_name("FILE");
  app->add_option("--name", options->name, "what reports call the trace")->type_name("TEXT");
  app->add_option("--expert-bytes", options->expert_bytes,
                  "of one expert, where the trace does not say")
      ->type_name("SIZE");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset import gemma.route.csv gemma.trace
  hotset import esft-law.tar.xz law.trace --as prefill:512 --name law
  hotset import dump.jsonl dump.trace --format jsonl --field layer=l,experts=ids)");
  return {app, [options] { return import_trace(*options); }};
}

}  // namespace hotset::cli
