// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Set-up of every program: standard descriptors, signals and standard output.

#include <filesystem>
#include <string_view>

#include "hotset/trace/file_writer.hpp"

namespace hotset::lab {

/// Call first in main. It opens a closed standard descriptor so that every use of it fails and no file takes its
/// number. Closed pipes and file size limits become write errors. A signal that ends the program first
/// removes unfinished files and clears the progress line. Ignored signals stay ignored.
void end_cleanly_at_signals();

/// The program's unfinished files, which a signal removes. One global list, because handlers have no other access.
/// Threads: any.
[[nodiscard]] unfinished_files& files_of_program() noexcept;

/// Records whether standard error shows a line that a signal must clear.
void show_line_to_clear(bool shown) noexcept;

/// Errors: closed_pipe; std::runtime_error if standard output cannot be written.
void print(std::string_view text);
/// Flushes text printed by other means (stdio). Errors: those of print.
void flush_standard_output();

/// Path to open for an input argument: "-" is standard input.
[[nodiscard]] std::filesystem::path input_path(const std::filesystem::path& given);

}  // namespace hotset::lab
