// SPDX-License-Identifier: Apache-2.0
#include "lab/program/console.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lab/files/input_error.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

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

progress_line::progress_line(std::string label) : label_(std::move(label)) {}

progress_line::~progress_line() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  lab::show_line_to_clear(false);
}

lab::progress_report progress_line::report() {
  if (::isatty(STDERR_FILENO) != 1) return {};
  return [this](std::uint64_t done, std::uint64_t total) { show(done, total); };
}

void progress_line::show(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (total == 0 || (done < total && now < next_)) return;
  next_ = now + std::chrono::milliseconds(100);
  shown_ = true;
  lab::show_line_to_clear(true);
  constexpr std::size_t width = 30;
  const auto share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto filled = static_cast<std::size_t>(share * width);
  fmt::print(stderr, "\r{} [{:<{}}] {:3.0f} %\033[K", label_, std::string(filled, '#'), width,
             std::floor(100 * share));
  std::fflush(stderr);
}

}  // namespace hotset::cli
