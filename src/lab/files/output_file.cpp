// SPDX-License-Identifier: Apache-2.0
#include "lab/files/output_file.hpp"

#include <cstddef>
#include <stdexcept>

#include <unistd.h>

#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/program.hpp"

namespace hotset::lab {
namespace {

file_writer open_writer(const std::filesystem::path& path) {
  if (path.empty() || path == "-") return file_writer(STDOUT_FILENO, "standard output");
  return file_writer(path.string(), &files_of_program());
}

}  // namespace

output_file::output_file(const std::filesystem::path& path, output_content content)
    : file_(open_writer(path)) {
  check();
  if (content == output_content::binary && file_.is_terminal())
    throw usage_error(input_message(printable(file_.name(), 4096), "", "is a terminal",
                                    "a file or a pipe for binary data"));
}

void output_file::commit() {
  file_.finish();
  check();
}

void output_file::finish(std::string_view text) {
  write(text);
  commit();
}

void output_file::check() {
  if (file_.reader_is_gone()) throw closed_pipe{};
  if (const auto problem = file_.problem())
    throw std::runtime_error(printable(problem->message, 4096));
}

output_buffer::output_buffer(const std::filesystem::path& path)
    : file_(path), text_(std::size_t{1} << 16U) {
  setp(text_.data(), text_.data() + text_.size());
}

void output_buffer::commit() {
  sync();
  file_.commit();
}

output_buffer::int_type output_buffer::overflow(int_type c) {
  sync();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int output_buffer::sync() {
  file_.write({pbase(), static_cast<std::size_t>(pptr() - pbase())});
  setp(text_.data(), text_.data() + text_.size());
  return 0;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  output_file(path).finish(text);
}

}  // namespace hotset::lab
