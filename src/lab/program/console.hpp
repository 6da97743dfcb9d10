// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the subcommands say besides their results: messages, and a progress line for people.

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

/// "hotset: <message>" on standard error, in one line whatever the message holds.
void report_error(std::string_view message);

void write_bytes(output_file& out, std::span<const std::byte> bytes);
/// Writes the whole file, and then the report where nobody takes it for a part of that: on standard error if the file is standard
/// output. Errors: as output_file::commit.
void write_and_report(output_file& out, std::span<const std::byte> bytes, std::string_view report);

/// One line on standard error that is rewritten in place, some ten times a second, and cleared at the end; silent
/// unless that is a terminal.
class progress_line {
 public:
  explicit progress_line(std::string label);
  ~progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  /// Empty where nothing is shown. The line must outlive it. Threads: called from one at a time.
  [[nodiscard]] lab::progress_report report();

 private:
  void show(std::uint64_t done, std::uint64_t total);

  std::string label_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

/// A line that shows what the computations of this thread report.
class shown_progress {
 public:
  explicit shown_progress(std::string label) : line_(std::move(label)), scope_(line_.report()) {}

 private:
  progress_line line_;
  lab::progress_scope scope_;
};

}  // namespace hotset::cli
