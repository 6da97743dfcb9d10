// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages of the subcommands apart from their results, and a progress line on terminals.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lab/files/output_file.hpp"
#include "lab/files/program.hpp"
#include "lab/progress.hpp"

namespace hotset::cli {

using lab::output_file;
using lab::print;

/// Prints "hotset: <message>" on standard error, always as one line.
void report_error(std::string_view message);

void write_bytes(output_file& out, std::span<const std::byte> bytes);
/// Writes the file, then prints the report: on standard error if the file is standard output, so that they do not
/// mix. Errors: those of output_file::commit.
void write_and_report(output_file& out, std::span<const std::byte> bytes, std::string_view report);

/// A line on standard error, rewritten about ten times a second and cleared at the end. Silent unless standard error
/// is a terminal.
class progress_line {
 public:
  explicit progress_line(std::string label);
  ~progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  /// Empty if no line is shown. The line must outlive it. Threads: one caller at a time.
  [[nodiscard]] lab::progress_report report();

 private:
  void show(std::uint64_t done, std::uint64_t total);

  std::string label_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

/// Shows the progress of this thread's computations.
class shown_progress {
 public:
  explicit shown_progress(std::string label) : line_(std::move(label)), scope_(line_.report()) {}

 private:
  progress_line line_;
  lab::progress_scope scope_;
};

}  // namespace hotset::cli
