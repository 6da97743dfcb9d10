// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The options by which every subcommand reads traces.

#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>

#include "lab/files/program.hpp"
#include "lab/traces/open_trace.hpp"

namespace hotset::cli {

using trace_options = lab::open_trace_options;

/// Adds them to app, in a group of their own. options must outlive the parse.
void add_trace_options(CLI::App& app, trace_options& options);

using lab::input_path;

struct opened_trace {
  std::filesystem::path path;
  lab::trace_format format = lab::trace_format::automatic;  ///< as recognised or as told
  routing_trace trace;
};

/// A trace that can be replayed. Prints what its reader guessed or left out to standard error.
/// Errors: trace_error that begins with the path.
[[nodiscard]] opened_trace open_input(const std::filesystem::path& given,
                                      const trace_options& options);

/// message, with the path before it unless it is there.
[[nodiscard]] std::string with_path(const std::filesystem::path& path, const std::string& message);

}  // namespace hotset::cli
