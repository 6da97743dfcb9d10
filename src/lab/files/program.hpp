// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What every program does about its descriptors, signals and standard output.

#include <filesystem>
#include <string_view>

#include "hotset/trace/file_writer.hpp"

namespace hotset::lab {

/// Called first in main. Standard descriptors that are closed get one that refuses to be used, so that no file takes
/// their number; closed pipes and limits of file size become errors of a write; a signal that ends the program removes
/// the unfinished files first, and clears the progress line. What was ignored stays ignored.
void end_cleanly_at_signals();

/// The unfinished files of the program: those that a signal removes. The only list of its kind, as handlers know no
/// objects. Threads: any.
[[nodiscard]] unfinished_files& files_of_program() noexcept;

/// Whether standard error shows a line that a signal must clear.
void show_line_to_clear(bool shown) noexcept;

/// Errors: closed_pipe; std::runtime_error if standard output cannot be written.
void print(std::string_view text);
/// Hands on what was printed by other means (stdio). Errors: as print.
void flush_standard_output();

/// What to open for an input as it was given: "-" is standard input.
[[nodiscard]] std::filesystem::path input_path(const std::filesystem::path& given);

}  // namespace hotset::lab
