// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rows.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

constexpr std::size_t gap = 2;

const row& value_of(const row& from, const char* key) {
  static const row nothing;
  const auto found = from.find(key);
  return found == from.end() ? nothing : *found;
}

bool says_something(const row& value) {
  return !value.is_null() && value != row(0) && value != row(false);
}

bool is_shown(const column& one, std::span<const row> rows) {
  if (one.where == std::string_view(if_named)) return false;
  return *one.where == '\0' || std::ranges::any_of(rows, [&](const row& r) {
    return says_something(value_of(r, one.where));
  });
}

std::string number_text(const row& value, const cell& shown) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  auto text = fmt::format("{:.{}f}", value.get<double>() * shown.scale, shown.digits);
  // Removes the sign of a rounded zero.
  if (text.find_first_not_of("-0.") == std::string::npos && text.front() == '-') text.erase(0, 1);
  return text;
}

/// The unit in which the largest value has at most four digits before the decimal point.
std::pair<const char*, double> unit_of(const column& one, std::span<const row> rows) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double largest = 0;
  for (const auto& r : rows)
    if (const auto& value = value_of(r, one.key); value.is_number())
      largest = std::max(largest, value.get<double>());
  std::size_t unit = 0;
  double size = 1024;
  for (; largest >= 1e4 * size && unit + 1 < std::size(units); ++unit) size *= 1024;
  return {units[unit], size};
}

/// A column's title and cells.
struct shown_column {
  const column* of;
  std::string title;
  std::vector<std::string> cells{};
  bool says_something = true;
  std::size_t width = 0;

  [[nodiscard]] bool is_word() const noexcept { return of->shown.as == cell::word; }
};

shown_column cells_of(const column& one, std::span<const row> rows) {
  shown_column out{.of = &one, .title = one.title, .says_something = is_shown(one, rows)};
  const auto [unit, size] = unit_of(one, rows);
  const bool in_unit = one.shown.as == cell::bytes;
  if (in_unit) out.title += fmt::format(" {}", unit);
  out.width = out.title.size();
  for (const auto& r : rows) {
    const auto& value = value_of(r, one.key);
    if (value.is_null() || value == row("") || (one.shown.some && value == row(0)))
      out.cells.emplace_back("-");
    else if (out.is_word())
      out.cells.push_back(printable(value.get<std::string>()));
    else if (in_unit)
      out.cells.push_back(fmt::format("{:.1f}", value.get<double>() / size));
    else
      out.cells.push_back(number_text(value, one.shown));
    out.width = std::max(out.width, out.cells.back().size());
  }
  return out;
}

std::size_t width_of(const std::vector<const shown_column*>& columns) {
  std::size_t sum = 0;
  for (const auto* one : columns) sum += one->width + gap;
  return sum == 0 ? 0 : sum - gap;
}

/// The line of titles (at == -1) or of a row's cells.
std::string line_of(const std::vector<const shown_column*>& columns, std::ptrdiff_t at) {
  std::string line;
  for (const auto* one : columns) {
    const auto& text = at < 0 ? one->title : one->cells[static_cast<std::size_t>(at)];
    if (!line.empty()) line.append(gap, ' ');
    if (one->is_word())
      line += fmt::format("{:<{}}", text, one == columns.back() ? 0 : one->width);
    else
      line += fmt::format("{:>{}}", text, one->width);
  }
  return line + '\n';
}

/// Removes columns until the others fit: the highest rank first, the last column first within a rank. Returns the
/// removed names.
std::vector<std::string> leave_out(std::vector<const shown_column*>& shown, std::size_t width) {
  std::vector<std::string> names;
  const auto rank_of = [](const shown_column* one) { return one->of->rank; };
  while (width != 0 && width_of(shown) > width) {
    const auto least = std::ranges::max_element(shown.rbegin(), shown.rend(), {}, rank_of);
    if (rank_of(*least) == 0) break;
    names.insert(names.begin(), (*least)->of->name);
    shown.erase(std::next(least).base());
  }
  return names;
}

/// Adds quotes if the text needs them in CSV.
std::string csv_field(const row& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return value.dump();
  auto plain = printable(value.get<std::string>(), 4096);
  if (plain.find_first_of(",\"") == std::string::npos) return plain;
  std::string quoted = "\"";
  for (const char c : plain) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

}  // namespace

std::vector<std::string> names_of(std::span<const column> columns) {
  std::vector<std::string> names;
  for (const auto& one : columns) names.emplace_back(one.name);
  return names;
}

void check_columns(const table_view& view, std::vector<std::string> known) {
  known.emplace_back("all");
  for (const auto& name : view.columns)
    if (std::ranges::find(known, name) == known.end()) refuse_name("--columns:", name, known);
}

std::string to_table(std::span<const column> columns, std::span<const row> rows,
                     const table_view& view) {
  check_columns(view, names_of(columns));
  std::vector<shown_column> all;
  std::vector<std::string> common;
  for (const auto& one : columns) {
    auto& made = all.emplace_back(cells_of(one, rows));
    if (!made.is_word()) continue;
    const auto* const usual = *one.plain == '\0' ? "-" : one.plain;
    made.says_something &=
        std::ranges::any_of(made.cells, [&](const auto& c) { return c != usual; });
    const bool same =
        std::ranges::adjacent_find(made.cells, std::not_equal_to{}) == made.cells.end();
    if (!same || !made.says_something || one.rank == 0) continue;
    common.push_back(fmt::format("{} {}", one.name, made.cells.front()));
    made.says_something = false;
  }
  std::vector<const shown_column*> shown;
  for (const auto& name : view.columns)
    for (const auto& one : all)
      if (one.of->name == name) shown.push_back(&one);
  if (shown.empty())
    for (const auto& one : all)
      if (one.says_something) shown.push_back(&one);
  const auto left_out =
      view.columns.empty() ? leave_out(shown, view.width) : std::vector<std::string>();
  std::string out;
  // With named columns, the line of common values is left out.
  if (!common.empty() && view.columns.empty())
    out = folded(fmt::format("{}\n", fmt::join(common, ", ")), view.width);
  for (std::ptrdiff_t r = -1; r < std::ssize(rows); ++r) out += line_of(shown, r);
  if (left_out.empty()) return out;
  return out + folded(fmt::format("left out: {} (no room in {} columns; --columns all, or their "
                                  "names)\n",
                                  fmt::join(left_out, ", "), view.width),
                      view.width);
}

std::string to_csv(const std::vector<std::string>& keys, std::span<const row> rows) {
  auto out = fmt::format("{}\n", fmt::join(keys, ","));
  for (const auto& r : rows) {
    std::vector<std::string> fields;
    fields.reserve(keys.size());
    for (const auto& key : keys) fields.push_back(csv_field(value_of(r, key.c_str())));
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

std::string to_json_lines(const row& head, const char* list, std::span<const row> rows) {
  auto out = one_line(head);
  out.back() = ',';
  out += fmt::format("\"{}\":[", list);
  for (std::size_t i = 0; i < rows.size(); ++i) out += (i == 0 ? "\n" : ",\n") + one_line(rows[i]);
  return out + "\n]}";
}

std::string one_or_array(std::span<const std::string> texts) {
  if (texts.size() == 1) return texts.front() + '\n';
  return fmt::format("[\n{}\n]\n", fmt::join(texts, ",\n"));
}

row share_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace hotset::lab
