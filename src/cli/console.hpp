// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Standard output that notices when it cannot be written, and a progress line for people.

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/sim/io/atomic_file.hpp"

namespace hotset::cli {

/// Thrown when the reader of standard output is gone; nothing is wrong then.
struct closed_pipe {};

/// A closed pipe becomes an error of write() instead of the end of the process.
void ignore_closed_pipes();

/// Errors: closed_pipe; std::runtime_error if standard output cannot be written.
void print(std::string_view text);

/// Runs write and reports a refusal as a failure to write, not as bad input.
template <class Write>
auto write_or_fail(Write&& write) {
  try {
    return write();
  } catch (const trace_error& error) {
    throw std::runtime_error(error.what());
  }
}

/// A file that is written in one go, or standard output.
class output_file {
 public:
  /// An empty path is standard output. Errors: std::runtime_error if the file cannot be created.
  explicit output_file(const std::filesystem::path& path);
  /// Errors: as print; std::runtime_error, and then an earlier file is as it was.
  void finish(std::string_view text);

 private:
  std::optional<sim::atomic_file> file_;
};

/// "hotset: <message>" on standard error, in one line whatever the message holds.
void report_error(std::string_view message);

/// One line on standard error that is rewritten in place; silent unless that is a terminal.
///
/// Threads: advance() may be called from any.
class progress_line {
 public:
  explicit progress_line(std::string label);
  ~progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;

  void advance(std::size_t done, std::size_t total);

 private:
  std::string label_;
  bool shown_ = false;
  bool terminal_ = false;
  std::size_t done_ = 0;
  std::mutex mutex_;
};

/// A stream buffer whose text goes to an atomic_file.
class atomic_buffer : public std::streambuf {
 public:
  /// Errors: std::runtime_error if the folder cannot be written to.
  explicit atomic_buffer(const std::filesystem::path& path);
  /// Puts the file in its place. Errors: std::runtime_error.
  void commit();

 private:
  int_type overflow(int_type c) override;
  int sync() override;

  sim::atomic_file file_;
  std::vector<char> text_;
};

}  // namespace hotset::cli
