// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An output of a program: a file that appears whole or not at all, or whatever else its path names.

#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <string_view>
#include <vector>

#include "hotset/trace/file_writer.hpp"

namespace hotset::lab {

/// Thrown when the reader of an output is gone; nothing is wrong then.
struct closed_pipe {};

/// Whether an output is text or bytes.
enum class output_content : std::uint8_t {
  text,
  binary,  ///< not for terminals
};

/// As file_writer, with exceptions; what is unfinished is removed at a signal if end_cleanly_at_signals() was called.
class output_file {
 public:
  /// An empty path and "-" are standard output.
  /// Errors: std::runtime_error if the path cannot be written to; usage_error for binary content on a terminal.
  explicit output_file(const std::filesystem::path& path,
                       output_content content = output_content::text);

  /// Appends. A failure is kept and reported by commit().
  void write(std::string_view text) { file_.write(text); }
  /// Puts a file in its place. Errors: closed_pipe; std::runtime_error if anything failed. Pre: called once.
  void commit();
  /// Writes all there is and commits.
  void finish(std::string_view text);
  /// For what writes and finishes the file itself; then check() is called.
  [[nodiscard]] file_writer& writer() noexcept { return file_; }
  /// Errors: as commit().
  void check();

  /// Whether what is written can be seen on standard output: nothing else may be printed there.
  [[nodiscard]] bool is_standard_output() const noexcept { return file_.leads_to(1); }
  [[nodiscard]] const std::string& name() const noexcept { return file_.name(); }

 private:
  file_writer file_;
};

/// A stream buffer whose text goes to an output_file.
class output_buffer : public std::streambuf {
 public:
  /// Errors: as output_file.
  explicit output_buffer(const std::filesystem::path& path);
  /// Errors: as output_file.
  void commit();

 private:
  int_type overflow(int_type c) override;
  int sync() override;

  output_file file_;
  std::vector<char> text_;
};

/// Writes a whole file in one go. Errors: as output_file.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hotset::lab
