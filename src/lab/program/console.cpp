// SPDX-License-Identifier: Apache-2.0
#include "lab/program/console.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lab/files/input_error.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

constexpr std::chrono::seconds pause_elsewhere{10};

/// Columns of the terminal of standard error; a longer line could not be rewritten.
std::size_t terminal_width() {
  winsize screen{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &screen) == 0 && screen.ws_col > 1;
  return is_known ? screen.ws_col - std::size_t{1} : std::string_view::npos;
}

}  // namespace

void report_error(std::string_view message) {
  fmt::print(stderr, "hotset: {}\n", printable(lab::with_sizes(message), 4096));
}

void write_bytes(output_file& out, std::span<const std::byte> bytes) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes are written as characters
  out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void write_and_report(output_file& out, std::span<const std::byte> bytes, std::string_view report) {
  const bool on_output = out.is_standard_output();
  write_bytes(out, bytes);
  out.commit();
  if (on_output)
    fmt::print(stderr, "{}", report);
  else
    print(report);
}

progress_line::progress_line(std::string label, bool prints_elsewhere)
    : label_(std::move(label)),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      prints_elsewhere_(prints_elsewhere),
      begin_(clock::now()),
      next_(on_terminal_ ? begin_ : begin_ + pause_elsewhere) {}

progress_line::~progress_line() {
  if (!shown_ || !on_terminal_) return;
  std::fputs("\r\033[K", stderr);
  lab::show_line_to_clear(false);
}

lab::progress_report progress_line::report() {
  if (!on_terminal_ && !prints_elsewhere_) return {};
  return [this](std::uint64_t done, std::uint64_t total) { show(done, total); };
}

std::string progress_line::time_left(std::uint64_t done, std::uint64_t total) {
  const auto spent = std::chrono::duration<double>(clock::now() - begin_).count();
  const auto before = first_.value_or(0);
  if (spent < 1 || done <= before || done >= total) return {};
  const auto left = spent * static_cast<double>(total - done) / static_cast<double>(done - before);
  const auto seconds = static_cast<std::uint64_t>(std::min(left, 1e9));
  if (seconds < 3600) return fmt::format(", {}:{:02} left", seconds / 60, seconds % 60);
  return fmt::format(", {}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

void progress_line::show(std::uint64_t done, std::uint64_t total) {
  const auto now = clock::now();
  if (!first_) first_ = done;
  if (total == 0 || (done < total && now < next_)) return;
  const auto share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto percent = std::floor(100 * share);
  const auto rest = (running_.empty() ? "" : "  " + running_) + time_left(done, total);
  if (!on_terminal_) {
    next_ = now + pause_elsewhere;
    return report_error(fmt::format("{}: {:.0f} %{}", label_, percent, rest));
  }
  next_ = now + std::chrono::milliseconds(100);
  shown_ = true;
  lab::show_line_to_clear(true);
  const std::size_t width = running_.empty() ? 30 : 12;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
  const auto line = fmt::format("{} [{:<{}}] {:3.0f} %{}", label_, std::string(filled, '#'), width,
                                percent, rest);
  fmt::print(stderr, "\r{}\033[K", std::string_view(line).substr(0, terminal_width()));
  std::fflush(stderr);
}

}  // namespace hotset::cli
