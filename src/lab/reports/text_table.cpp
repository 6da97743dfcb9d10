// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/text_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace hotset::lab {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t value_column = 19;  // of "label      value"

std::size_t width_of(const text_table::column& column) {
  auto most = column.title.size();
  for (const auto& cell : column.cells) most = std::max(most, cell.size());
  return most;
}

std::size_t width_of(const std::vector<const text_table::column*>& columns) {
  std::size_t sum = 0;
  for (const auto* column : columns) sum += width_of(*column) + gap;
  return sum == 0 ? 0 : sum - gap;
}

/// The titles (row -1) or the cells of a row.
std::string line_of(const std::vector<const text_table::column*>& columns, std::ptrdiff_t row) {
  std::string line;
  for (const auto* column : columns) {
    const auto& cell = row < 0 ? column->title : column->cells[static_cast<std::size_t>(row)];
    if (!line.empty()) line.append(gap, ' ');
    if (!column->text)
      line += fmt::format("{:>{}}", cell, width_of(*column));
    else if (column == columns.back())
      line += cell;
    else
      line += fmt::format("{:<{}}", cell, width_of(*column));
  }
  return line + '\n';
}

}  // namespace

std::size_t output_width() {
  constexpr std::size_t least = 20;
  constexpr std::size_t most = 10'000;
  if (const char* const told = std::getenv("COLUMNS")) {
    std::size_t width = 0;
    const char* const end = told + std::strlen(told);
    const auto [rest, code] = std::from_chars(told, end, width);
    if (code == std::errc{} && rest == end && width >= least && width <= most) return width;
  }
  winsize screen{};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &screen) == 0 &&
      screen.ws_col >= least)
    return screen.ws_col;
  return 100;
}

void check_columns(const table_view& view, std::vector<std::string> known) {
  known.emplace_back("all");
  for (const auto& name : view.columns)
    if (std::ranges::find(known, name) == known.end()) refuse_name("--columns:", name, known);
}

void text_table::add_row(std::vector<std::string> cells) {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    columns_[i].cells.push_back(std::move(cells[i]));
}

std::vector<std::string> text_table::names() const {
  std::vector<std::string> out;
  for (const auto& one : columns_) out.push_back(one.name);
  return out;
}

std::string text_table::render(const table_view& view) const {
  check_columns(view, names());
  std::vector<const column*> shown;
  for (const auto& name : view.columns)
    for (const auto& one : columns_)
      if (one.name == name) shown.push_back(&one);
  if (shown.empty())
    for (const auto& one : columns_)
      if (one.telling) shown.push_back(&one);
  std::vector<std::string> left_out;
  while (view.columns.empty() && view.width != 0 && width_of(shown) > view.width) {
    // The last of the least important ones.
    const auto least = std::ranges::max_element(shown.rbegin(), shown.rend(), {}, &column::rank);
    if ((*least)->rank == 0) break;
    left_out.insert(left_out.begin(), (*least)->name);
    shown.erase(std::next(least).base());
  }
  std::string out;
  const auto rows = columns_.empty() ? 0 : std::ssize(columns_.front().cells);
  for (std::ptrdiff_t at = -1; at < rows; ++at) out += line_of(shown, at);
  if (left_out.empty()) return out;
  return out + folded(fmt::format("left out: {} (no room in {} columns; --columns all, or their "
                                  "names)\n",
                                  fmt::join(left_out, ", "), view.width),
                      view.width);
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

namespace {

/// The column at which the value of a line begins.
std::size_t value_of(std::string_view line) {
  const auto colon = line.find(": ");
  if (line.size() > value_column && line[value_column - 1] == ' ' && line[value_column] != ' ' &&
      colon >= value_column)
    return value_column;
  return colon < value_column ? colon + 2 : 2;
}

}  // namespace

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
