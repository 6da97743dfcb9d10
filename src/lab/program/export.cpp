// SPDX-License-Identifier: Apache-2.0
// hotset export: any known format to one that other tools read.
#include <array>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/oracle_general.hpp"

namespace hotset::cli {
namespace {

struct export_options {
  std::filesystem::path in;
  std::filesystem::path out;
  std::string to;
  trace_options reading;
};

void to_native(const opened_trace& opened, output_file& out) {
  const auto bad = write_native_trace(opened.trace, out.writer());
  out.check();
  if (bad) throw std::runtime_error(bad->message);
}

void to_oracle_general(const opened_trace& opened, output_file& out) {
  try {
    lab::write_oracle_general(opened.trace, out);
  } catch (const trace_error& error) {  // what the format cannot hold is no bad input
    throw std::runtime_error(error.what());
  }
}

/// What came from ESFT keeps the order that it had within each token.
void to_esft(const opened_trace& opened, const std::filesystem::path& folder) {
  if (opened.format == lab::trace_format::esft)
    return lab::write_esft(
        lab::read_esft(opened.path, {.top_k = opened.trace.top_k, .experts = opened.trace.experts}),
        folder);
  lab::write_esft({opened.trace, {}}, folder);
}

struct exporter {
  std::string_view name;
  void (*write)(const opened_trace&, output_file&);  ///< nullptr: a folder of files
};
constexpr std::array exporters = {
    exporter{"native", to_native},
    exporter{"esft", nullptr},
    exporter{"oracle-general", to_oracle_general},
};

const exporter& find_exporter(std::string_view name) {
  std::vector<std::string> all;
  for (const auto& known : exporters) {
    if (known.name == name) return known;
    all.emplace_back(known.name);
  }
  lab::refuse_name("--to:", name, all);
}

int export_trace(const export_options& options) {
  const auto& chosen = find_exporter(options.to);
  const auto reading = checked(options.reading);
  if (chosen.write != nullptr) {
    output_file out(options.out, lab::output_content::binary);
    chosen.write(open_input(options.in, reading), out);
    return ok;
  }
  if (options.out == "-") refuse_option("OUT", "-", "a folder, for esft");
  to_esft(open_input(options.in, reading), options.out);
  return ok;
}

}  // namespace

command add_export(CLI::App& root) {
  auto* app = root.add_subcommand("export", "Write a trace in a format that other tools read");
  auto options = std::make_shared<export_options>();
  app->add_option("IN", options->in, "trace of any known format")->required()->type_name("FILE");
  app->add_option("OUT", options->out, "file to write; a folder for esft")
      ->required()
      ->type_name("FILE");
  app->add_option("--to", options->to,
                  "format to write: native (safetensors), esft (a folder of "
                  "expert_weights_<layer>.txt), oracle-general (libCacheSim)")
      ->required()
      ->type_name("NAME");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset export routes.trace routes.oracleGeneral --to oracle-general
  hotset export routes.trace weights/ --to esft)");
  return {app, [options] { return export_trace(*options); }};
}

}  // namespace hotset::cli
