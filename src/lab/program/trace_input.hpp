// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The options by which every subcommand reads traces.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lab/files/program.hpp"
#include "lab/traces/open_trace.hpp"

namespace hotset::cli {

struct trace_options {
  std::string format = "auto";
  std::string as;
  std::vector<std::string> fields;
  std::int32_t top_k = 0;
  std::int32_t experts = 0;
  std::uint64_t first = 0;
  std::string block_bytes = "1B";
};

/// Adds them to app, in a group of their own. options must outlive the parse.
void add_trace_options(CLI::App& app, trace_options& options);

/// Errors: usage_error.
[[nodiscard]] lab::open_trace_options checked(const trace_options& options);

using lab::input_path;

struct opened_trace {
  std::filesystem::path path;
  lab::trace_format format = lab::trace_format::automatic;  ///< as recognised or as told
  routing_trace trace;
};

/// A trace that can be replayed. Prints what its reader guessed or left out to standard error.
/// Errors: trace_error that begins with the path.
[[nodiscard]] opened_trace open_input(const std::filesystem::path& given,
                                      const lab::open_trace_options& options);

/// message, with the path before it unless it is there.
[[nodiscard]] std::string with_path(const std::filesystem::path& path, const std::string& message);

}  // namespace hotset::cli
