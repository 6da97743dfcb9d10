// SPDX-License-Identifier: Apache-2.0
#include "cli/console.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "hotset/sim/io/input_error.hpp"

namespace hotset::cli {

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  if (errno == EPIPE) throw closed_pipe{};
  throw std::runtime_error(
      fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
}

output_file::output_file(const std::filesystem::path& path) {
  if (!path.empty()) write_or_fail([&] { file_.emplace(path); });
}

void output_file::finish(std::string_view text) {
  if (!file_) return print(text);
  file_->write(text);
  write_or_fail([&] { file_->commit(); });
}

void report_error(std::string_view message) {
  fmt::print(stderr, "hotset: {}\n", sim::printable(message, 4096));
}

progress_line::progress_line(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1) {}

progress_line::~progress_line() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void progress_line::advance(std::size_t done, std::size_t total) {
  if (!terminal_ || total == 0) return;
  const std::lock_guard lock(mutex_);
  if (shown_ && done <= done_) return;  // reports of several threads may overtake each other
  done_ = done;
  shown_ = true;
  constexpr std::size_t width = 30;
  const auto filled = width * std::min(done, total) / total;
  fmt::print(stderr, "\r{} [{:<{}}] {}/{}\033[K", label_, std::string(filled, '#'), width, done,
             total);
  std::fflush(stderr);
}

atomic_buffer::atomic_buffer(const std::filesystem::path& path)
    : file_(write_or_fail([&] { return sim::atomic_file(path); })), text_(std::size_t{1} << 16U) {
  setp(text_.data(), text_.data() + text_.size());
}

void atomic_buffer::commit() {
  sync();
  write_or_fail([&] { file_.commit(); });
}

atomic_buffer::int_type atomic_buffer::overflow(int_type c) {
  sync();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int atomic_buffer::sync() {
  file_.write({pbase(), static_cast<std::size_t>(pptr() - pbase())});
  setp(text_.data(), text_.data() + text_.size());
  return 0;
}

}  // namespace hotset::cli
