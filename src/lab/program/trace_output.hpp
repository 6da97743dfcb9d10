// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a trace, and reports what was written.

#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/program/console.hpp"

namespace hotset::cli {

/// Prints "<name>: <text>" on standard output, or on standard error if the result is on standard output.
/// Pre: the output is finished.
inline void tell(bool result_on_output, std::string_view name, std::string_view text) {
  if (result_on_output) return fmt::print(stderr, "{}: {}\n", name, text);
  print(fmt::format("{}: {}\n", name, text));
}

/// Writes a native trace. Errors: those of output_file; std::runtime_error if the format cannot hold the trace.
inline void write_native(const routing_trace& trace, output_file& out) {
  const auto bad = write_native_trace(trace, out.writer());
  out.check();
  if (bad) throw std::runtime_error(bad->message);
}

/// Writes the native trace and prints a summary of the file. Errors: those of write_native.
inline void write_trace(const routing_trace& trace, output_file& out) {
  const bool on_output = out.is_standard_output();
  write_native(trace, out);
  tell(on_output, out.name(),
       fmt::format("{} tokens, {} layers, {} experts, top-{}", trace.tokens(), trace.layers,
                   trace.experts, trace.top_k));
}

}  // namespace hotset::cli
