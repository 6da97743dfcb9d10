// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rows.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

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
  // A rounded zero has no sign.
  if (text.find_first_not_of("-0.") == std::string::npos && text.front() == '-') text.erase(0, 1);
  return text;
}

/// The unit in which the largest value has at most four digits before the point.
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

text_table::column cells_of(const column& one, std::span<const row> rows) {
  const bool is_word = one.shown.as == cell::word;
  text_table::column out{one.name, one.title, is_word, one.rank, is_shown(one, rows), {}};
  const auto [unit, size] = unit_of(one, rows);
  const bool in_unit = one.shown.as == cell::bytes;
  if (in_unit) out.title += fmt::format(" {}", unit);
  for (const auto& r : rows) {
    const auto& value = value_of(r, one.key);
    if (value.is_null() || value == row("") || (one.shown.some && value == row(0)))
      out.cells.emplace_back("-");
    else if (is_word)
      out.cells.push_back(printable(value.get<std::string>()));
    else if (in_unit)
      out.cells.push_back(fmt::format("{:.1f}", value.get<double>() / size));
    else
      out.cells.push_back(number_text(value, one.shown));
  }
  return out;
}

/// Quoted if the text would not survive otherwise.
std::string csv_field(const row& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return value.dump();
  const auto plain = printable(value.get<std::string>(), 4096);
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

std::string to_table(std::span<const column> columns, std::span<const row> rows,
                     const table_view& view) {
  text_table table;
  std::vector<std::string> common;
  for (const auto& one : columns) {
    auto cells = cells_of(one, rows);
    if (cells.text) {
      const auto goes_without_saying = [&](const std::string& text) {
        return text == (*one.plain == '\0' ? "-" : one.plain);
      };
      cells.telling = cells.telling && !std::ranges::all_of(cells.cells, goes_without_saying);
      const bool same =
          std::ranges::adjacent_find(cells.cells, std::not_equal_to{}) == cells.cells.end();
      if (same && cells.telling && one.rank > 0) {
        common.push_back(fmt::format("{} {}", one.name, cells.cells.front()));
        cells.telling = false;
      }
    }
    table.add(std::move(cells));
  }
  auto text = table.render(view);
  // Columns that were named are all that is asked for.
  if (common.empty() || !view.columns.empty()) return text;
  return folded(fmt::format("{}\n", fmt::join(common, ", ")), view.width) + text;
}

std::string to_csv(const std::vector<std::string>& keys, std::span<const row> rows) {
  auto out = fmt::format("{}\n", fmt::join(keys, ","));
  for (const auto& r : rows) {
    std::vector<std::string> fields;
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
