// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/folded_text.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

constexpr std::size_t value_column = 19;  // in "label      value"

/// Column at which the value of a line begins.
std::size_t value_of(std::string_view line) {
  const auto colon = line.find(": ");
  if (line.size() > value_column && line[value_column - 1] == ' ' && line[value_column] != ' ' &&
      colon >= value_column)
    return value_column;
  return colon < value_column ? colon + 2 : 2;
}

}  // namespace

std::size_t output_width() {
  constexpr std::size_t least = 20;
  constexpr std::size_t most = 10'000;
  if (const char* const columns = std::getenv("COLUMNS")) {
    const auto width = parse_number<std::size_t>(columns);
    if (width && *width >= least && *width <= most) return *width;
  }
  winsize screen{};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &screen) == 0 &&
      screen.ws_col >= least)
    return screen.ws_col;
  return 100;
}

std::string labelled(std::string_view label, std::string_view value) {
  return fmt::format("{:<{}}{}\n", label, value_column, value);
}

std::string folded_line(std::string_view line, std::size_t width, std::size_t indent) {
  std::string out;
  for (std::size_t lead = 0; lead + line.size() > width; lead = indent) {
    const auto room = width - lead;
    auto cut = line.rfind(' ', room);
    if (cut == std::string_view::npos || (lead == 0 && cut < indent)) cut = line.find(' ', room);
    if (cut == std::string_view::npos) break;
    out.append(line.substr(0, cut)).append(1, '\n').append(indent, ' ');
    line.remove_prefix(cut + 1);
  }
  return out.append(line);
}

std::string folded(const std::string& text, std::size_t width) {
  if (width == 0) return text;
  width = std::max<std::size_t>(width, 40);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    if (line.starts_with(' '))
      out += line;
    else
      out += folded_line(line, width, value_of(line));
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace hotset::lab
