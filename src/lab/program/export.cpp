// SPDX-License-Identifier: Apache-2.0
// hotset export: converts any known format to one that other tools read.
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/program/trace_output.hpp"
#include "lab/traces/oracle_general.hpp"

namespace hotset::cli {
namespace {

struct export_options {
  std::filesystem::path in;
  std::filesystem::path out;
  lab::trace_format to = lab::trace_format::native;
  trace_options reading;
};

lab::trace_format format_of(const std::string& name) {
  constexpr lab::trace_format formats[] = {lab::trace_format::native, lab::trace_format::oracle};
  return formats[lab::choice_of<std::size_t>("--to:", name, {"native", "oracle-general"})];
}

int export_trace(const export_options& options) {
  output_file out(options.out, lab::output_content::binary);
  const auto trace = open_input(options.in, options.reading).trace;
  if (options.to == lab::trace_format::native) {
    write_native(trace, out);
    return ok;
  }
  try {
    lab::write_oracle_general(trace, std::move(out));
  } catch (const trace_error& error) {  // the input is valid; the output format cannot hold it
    throw std::runtime_error(error.what());
  }
  return ok;
}

}  // namespace

command add_export(CLI::App& root) {
  auto* app = root.add_subcommand("export", "Write a trace in a format that other tools read");
  auto options = std::make_shared<export_options>();
  add_file(*app, "IN", options->in, "trace of any known format")->required();
  add_file(*app, "OUT", options->out, "file to write")->required();
  add_parsed(*app, "--to", "NAME", options->to, format_of,
             "format to write: native (safetensors), oracle-general (libCacheSim)")
      ->required();
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset export routes.trace routes.oracleGeneral --to oracle-general)");
  return {app, [options] { return export_trace(*options); }};
}

}  // namespace hotset::cli
