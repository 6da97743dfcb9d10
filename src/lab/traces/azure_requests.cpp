// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "lab/traces/open_requests.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

constexpr std::string_view header = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::string_view digits = "0123456789";

/// Whether the text has digits where the pattern has 0, and equals the pattern elsewhere.
bool matches(std::string_view text, std::string_view pattern) {
  return std::ranges::equal(text, pattern, [](char c, char wanted) {
    return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
  });
}

/// Parses ".9799600" as whole milliseconds; nothing unless it is a fraction or empty.
std::optional<unsigned> fraction(std::string_view text) {
  if (text.empty()) return 0U;
  if (text[0] != '.' || text.size() == 1 || text.find_first_not_of(digits, 1) != text.npos)
    return std::nullopt;
  std::string first(text.substr(1, 3));
  first.append(3 - first.size(), '0');
  return parse_number<unsigned>(first);
}

/// Parses "2023-11-16 18:17:03.9799600" as milliseconds since 1970; later years' files append "+00:00".
std::optional<std::uint64_t> milliseconds(std::string_view text) {
  constexpr std::string_view utc = "+00:00";
  constexpr std::string_view pattern = "0000-00-00 00:00:00";
  if (text.ends_with(utc)) text.remove_suffix(utc.size());
  if (!matches(text.substr(0, pattern.size()), pattern)) return std::nullopt;
  const auto part = [&](std::size_t at, std::size_t width = 2) {
    return *parse_number<unsigned>(text.substr(at, width));
  };
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(part(0, 4))),
                                         std::chrono::month(part(5)), std::chrono::day(part(8))};
  const auto rest = fraction(text.substr(pattern.size()));
  if (!rest || !date.ok() || part(0, 4) < 1970 || part(11) > 23 || part(14) > 59 || part(17) > 60)
    return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const auto seconds = ((static_cast<std::uint64_t>(days) * 24 + part(11)) * 60 + part(14)) * 60;
  return (seconds + part(17)) * 1000 + *rest;
}

}  // namespace

kv_trace parse_azure_requests(std::string_view text, const std::string& file) {
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  kv_trace trace;
  trace.name = trace_name(file);
  trace.source = "Azure LLM inference";
  line_scanner lines(file, text);
  std::string_view line;
  if (!lines.next(line) || trimmed(line) != header)
    refuse_input(file, "line 1", "'" + printable(line) + "'", "the header " + std::string(header));
  while (lines.next_row(line)) {
    const auto& cells = lines.fields(line);
    if (cells.size() != 3) lines.refuse(std::to_string(cells.size()) + " columns", header);
    const auto at = milliseconds(cells[0]);
    if (!at)
      lines.refuse("TIMESTAMP is '" + printable(cells[0]) + "'",
                   "a time such as 2023-11-16 18:17:03.9799600");
    trace.timestamp.push_back(*at);
    trace.input_length.push_back(lines.integer<std::uint32_t>(cells[1], "ContextTokens", 0, most));
    trace.output_length.push_back(
        lines.integer<std::uint32_t>(cells[2], "GeneratedTokens", 0, most));
    trace.block_end.push_back(0);
  }
  if (trace.requests() == 0) refuse_input(file, "", "holds no requests", "1 or more rows");
  return trace;
}

}  // namespace hotset::lab
