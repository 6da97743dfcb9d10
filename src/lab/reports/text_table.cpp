// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/text_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

constexpr std::size_t gap = 2;

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

void append_cell(std::string& line, const text_table::column& column, const std::string& cell,
                 bool last) {
  const auto width = width_of(column);
  if (!line.empty()) line.append(gap, ' ');
  if (!column.text)
    line += fmt::format("{:>{}}", cell, width);
  else
    line += last ? cell : fmt::format("{:<{}}", cell, width);
}

template <class Cell>
std::string line_of(const std::vector<const text_table::column*>& columns, Cell&& cell) {
  std::string line;
  for (const auto* column : columns)
    append_cell(line, *column, cell(*column), column == columns.back());
  return line + '\n';
}

std::string left_out(const std::vector<const text_table::column*>& gone, std::size_t width) {
  if (gone.empty()) return {};
  std::vector<std::string> names;
  names.reserve(gone.size());
  for (const auto* column : gone) names.push_back(column->name);
  return folded(fmt::format("left out: {} (no room in {} columns; --columns all, or their names)\n",
                            fmt::join(names, ", "), width),
                width);
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

void text_table::add_bytes(std::string name, std::string title, int rank, bool telling,
                           const std::vector<std::optional<std::uint64_t>>& bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  std::uint64_t largest = 0;
  for (const auto& size : bytes) largest = std::max(largest, size.value_or(0));
  std::size_t unit = 0;
  double one = 1024;
  for (; static_cast<double>(largest) >= 1e4 * one && unit + 1 < std::size(units); ++unit)
    one *= 1024;
  column out{std::move(name), fmt::format("{} {}", title, units[unit]), false, rank, telling, {}};
  for (const auto& size : bytes)
    out.cells.push_back(size ? fmt::format("{:.1f}", static_cast<double>(*size) / one) : "-");
  add(std::move(out));
}

void text_table::add_row(std::vector<std::string> cells) {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    columns_[i].cells.push_back(std::move(cells[i]));
}

void check_columns(const table_view& view, std::vector<std::string> known) {
  known.emplace_back("all");
  for (const auto& name : view.columns)
    if (std::ranges::find(known, name) == known.end()) refuse_name("--columns:", name, known);
}

std::vector<std::string> text_table::names() const {
  std::vector<std::string> out;
  for (const auto& one : columns_) out.push_back(one.name);
  return out;
}

std::vector<const text_table::column*> text_table::telling() const {
  std::vector<const column*> out;
  for (const auto& one : columns_)
    if (one.telling) out.push_back(&one);
  return out;
}

std::string text_table::render(const table_view& view) const {
  std::vector<const column*> shown;
  std::vector<const column*> gone;
  check_columns(view, names());
  for (const auto& name : view.columns)
    for (const auto& one : columns_)
      if (one.name == name) shown.push_back(&one);
  if (shown.empty()) shown = telling();
  while (view.columns.empty() && view.width != 0 && width_of(shown) > view.width) {
    // The last of the least important ones.
    const auto least =
        std::max_element(shown.rbegin(), shown.rend(),
                         [](const column* a, const column* b) { return a->rank < b->rank; });
    if ((*least)->rank == 0) break;
    gone.insert(gone.begin(), *least);
    shown.erase(std::next(least).base());
  }
  auto out = line_of(shown, [](const column& c) -> const std::string& { return c.title; });
  const auto rows = columns_.empty() ? 0 : columns_.front().cells.size();
  for (std::size_t row = 0; row < rows; ++row)
    out += line_of(shown, [row](const column& c) -> const std::string& { return c.cells[row]; });
  return out + left_out(gone, view.width);
}

namespace {

/// Where the lines that a line goes on in begin.
std::size_t indent_of(std::string_view line) {
  constexpr std::size_t value = 19;  // of "label      value"
  if (line.size() > value && line[value - 1] == ' ' && line[value] != ' ' &&
      line.substr(0, value).find(": ") == std::string_view::npos)
    return value;
  const auto colon = line.find(": ");
  return colon < value ? colon + 2 : 2;
}

void fold_line(std::string& out, std::string_view line, std::size_t width) {
  const auto indent = indent_of(line);
  for (std::size_t lead = 0; lead + line.size() > width; lead = indent) {
    const auto room = width - lead;
    auto cut = line.rfind(' ', room);
    if (cut == std::string_view::npos || (lead == 0 && cut < indent)) cut = line.find(' ', room);
    if (cut == std::string_view::npos) break;
    out.append(line.substr(0, cut)).append(1, '\n').append(indent, ' ');
    line.remove_prefix(cut + 1);
  }
  out += line;
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
      fold_line(out, line, width);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace hotset::lab
