// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A program's output: a file that appears complete or not at all, or a pipe or device.

#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <string_view>
#include <vector>

#include "hotset/trace/file_writer.hpp"

namespace hotset::lab {

/// Thrown if the reader of an output has closed it; this is no error.
struct closed_pipe {};

/// Whether an output is text or bytes.
enum class output_content : std::uint8_t {
  text,
  binary,  ///< refused on terminals
};

/// Like file_writer, with exceptions. If end_cleanly_at_signals() was called, a signal removes the unfinished file.
class output_file {
 public:
  /// An empty path or "-" means standard output.
  /// Errors: std::runtime_error if the path cannot be written; usage_error for binary content on a terminal.
  explicit output_file(const std::filesystem::path& path,
                       output_content content = output_content::text);

  /// Appends. commit() reports a failure.
  void write(std::string_view text) { file_.write(text); }
  /// Moves the file to its path. Errors: closed_pipe; std::runtime_error if anything failed. Pre: called once.
  void commit();
  /// Writes the text and commits.
  void finish(std::string_view text);
  /// For code that writes and finishes the file itself; call check() afterwards.
  [[nodiscard]] file_writer& writer() noexcept { return file_; }
  /// Errors: those of commit().
  void check();

  /// Whether the output is standard output: nothing else may be printed there.
  [[nodiscard]] bool is_standard_output() const noexcept { return file_.leads_to(1); }
  [[nodiscard]] const std::string& name() const noexcept { return file_.name(); }

 private:
  file_writer file_;
};

/// A stream buffer that writes to an output_file.
class output_buffer : public std::streambuf {
 public:
  /// Errors: those of output_file.
  explicit output_buffer(const std::filesystem::path& path);
  /// Errors: those of output_file.
  void commit();

 private:
  int_type overflow(int_type c) override;
  int sync() override;

  output_file file_;
  std::vector<char> text_;
};

/// Writes a complete file. Errors: those of output_file.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hotset::lab
