// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options for reading traces, shared by all subcommands.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "lab/files/program.hpp"
#include "lab/traces/open_trace.hpp"

namespace hotset::cli {

using trace_options = lab::open_trace_options;

/// Adds the options to app, in their own group. options must outlive the parse.
void add_trace_options(CLI::App& app, trace_options& options);

/// The names of those options that the command line has.
[[nodiscard]] std::vector<std::string> given_trace_options(const CLI::App& app);

/// Adds --expert-bytes, for open_input.
void add_expert_bytes(CLI::App& app, std::optional<std::uint64_t>& bytes);

using lab::input_path;

struct opened_trace {
  std::filesystem::path path;
  lab::trace_format format = lab::trace_format::automatic;  ///< recognised or given format
  routing_trace trace;
};

/// Opens a trace that can be replayed. Prints its reader's guesses and omissions to standard error, and whether
/// `expert_bytes` replaces the trace's own.
/// Errors: trace_error that begins with the path.
[[nodiscard]] opened_trace open_input(const std::filesystem::path& given,
                                      const trace_options& options,
                                      std::optional<std::uint64_t> expert_bytes = {});

/// Prints what a reader guessed to standard error.
void report_notes(const std::filesystem::path& path, const lab::reading_notes& notes);

/// Prefixes message with the path, unless it already has it.
[[nodiscard]] std::string with_path(const std::filesystem::path& path, const std::string& message);

}  // namespace hotset::cli
