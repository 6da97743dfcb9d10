// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages of the subcommands apart from their results, and a progress line on terminals.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Progress on standard error: how much is done, what runs, and the time left.
///
/// On a terminal it is one line, rewritten about ten times a second and cleared at the end. Elsewhere it is silent, or
/// prints a line every ten seconds and one at the end.
class progress_line {
 public:
  explicit progress_line(std::string label, bool prints_elsewhere = false);
  ~progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  /// Empty if no line is shown. The line must outlive it. Threads: one caller at a time.
  [[nodiscard]] lab::progress_report report();
  /// Sets the text beside the share, such as what runs; shown with the next report. Threads: those of report().
  void note(const std::string& running) { running_ = running; }

 private:
  using clock = std::chrono::steady_clock;

  void show(std::uint64_t done, std::uint64_t total);
  /// Empty before a second has passed, and at the end.
  [[nodiscard]] std::string time_left(std::uint64_t done, std::uint64_t total);

  std::string label_;
  std::string running_;
  bool on_terminal_;
  bool prints_elsewhere_;
  bool shown_ = false;
  clock::time_point begin_;
  clock::time_point next_;                ///< earliest time of the next line
  std::optional<std::uint64_t> first_{};  ///< amount of the first report: it was done before
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
