// SPDX-License-Identifier: Apache-2.0
#include "cli/console.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
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

void write_output(const std::filesystem::path& path, std::string_view text) {
  if (path.empty()) return print(text);
  write_or_fail([&] { sim::write_file(path, text); });
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
  fmt::print(stderr, "\r{} [{:<{}}] {}/{}\033[K", label_, std::string(filled, '#'), width, done, total);
  std::fflush(stderr);
}

atomic_stream::atomic_stream(const std::filesystem::path& path)
    : std::ostream(nullptr), file_(open(path)), buffer_(std::size_t{1} << 16U) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  rdbuf(static_cast<std::streambuf*>(this));
}

sim::atomic_file atomic_stream::open(const std::filesystem::path& path) {
  try {
    return sim::atomic_file(path);
  } catch (const trace_error& error) {
    throw std::runtime_error(error.what());
  }
}

void atomic_stream::commit() {
  sync();
  write_or_fail([&] { file_.commit(); });
}

atomic_stream::int_type atomic_stream::overflow(int_type c) {
  sync();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int atomic_stream::sync() {
  file_.write({pbase(), static_cast<std::size_t>(pptr() - pbase())});
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return 0;
}

}  // namespace hotset::cli
