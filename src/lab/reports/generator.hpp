// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Member "generator" of JSON reports: the program, its command line and the trace that a report comes from.

#include <cstdint>
#include <optional>

#include "lab/reports/rows.hpp"

namespace hotset::lab {

/// Keeps the command line for all reports of this process. The first word loses its folder; every word is quoted for
/// the shell if it needs quotes. `--resume FOLDER` is left out: it changes no result.
void set_command(int argc, const char* const* argv);

/// {"version", "command", "trace_hash"}: hash as 16 hex digits. Null: no command was set, or no trace was hashed.
[[nodiscard]] row generator_of(const std::optional<std::uint64_t>& trace_hash);

}  // namespace hotset::lab
