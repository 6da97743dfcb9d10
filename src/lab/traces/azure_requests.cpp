// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/azure_requests.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "lab/files/input_files.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

constexpr std::string_view header = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Digits of a fixed width off the front of rest, and the character behind them.
std::optional<unsigned> digits(std::string_view& rest, std::size_t width, char behind) {
  if (rest.size() < width + (behind == '\0' ? 0U : 1U)) return std::nullopt;
  const auto field = rest.substr(0, width);
  if (!std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  if (behind != '\0' && rest[width] != behind) return std::nullopt;
  rest.remove_prefix(width + (behind == '\0' ? 0U : 1U));
  return parse_number<unsigned>(field);
}

/// ".9799600" in whole milliseconds, if it is a fraction or nothing.
std::optional<unsigned> fraction(std::string_view rest) {
  if (rest.empty()) return 0U;
  if (rest.front() != '.' || rest.size() < 2) return std::nullopt;
  rest.remove_prefix(1);
  if (!std::all_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  auto first = std::string(rest.substr(0, 3));
  first.append(3 - first.size(), '0');
  return parse_number<unsigned>(first);
}

/// "2023-11-16 18:17:03.9799600" in milliseconds since 1970; times of later years end in "+00:00".
std::optional<std::uint64_t> milliseconds(std::string_view text) {
  constexpr std::string_view utc = "+00:00";
  if (text.ends_with(utc)) text.remove_suffix(utc.size());
  const auto year = digits(text, 4, '-');
  const auto month = digits(text, 2, '-');
  const auto day = digits(text, 2, ' ');
  const auto hour = digits(text, 2, ':');
  const auto minute = digits(text, 2, ':');
  const auto second = digits(text, 2, '\0');
  const auto rest = fraction(text);
  if (!year || !month || !day || !hour || !minute || !second || !rest) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok() || *year < 1970 || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<std::uint64_t>(days) * 86'400'000 + *hour * std::uint64_t{3'600'000} +
         *minute * std::uint64_t{60'000} + *second * std::uint64_t{1000} + *rest;
}

class azure_reader {
 public:
  azure_reader(std::string_view text, const std::string& file) : lines_(file, text) {
    trace_.name = trace_name(file);
    trace_.source = "Azure LLM inference";
  }

  kv_trace read() {
    std::string_view line;
    if (!lines_.next(line) || trimmed(line) != header)
      refuse_input(lines_.file(), "line 1", "'" + printable(line) + "'",
                   "the header " + std::string(header));
    while (lines_.next(line))
      if (!trimmed(line).empty()) add(trimmed(line));
    if (trace_.requests() == 0)
      refuse_input(lines_.file(), "", "holds no requests", "1 or more rows");
    return std::move(trace_);
  }

 private:
  void add(std::string_view line) {
    field_scanner scan(line, ',');
    const auto time = scan.next();
    const auto at = milliseconds(*time);
    if (!at)
      lines_.refuse("TIMESTAMP is '" + printable(*time) + "'",
                    "a time such as 2023-11-16 18:17:03.9799600");
    trace_.timestamp.push_back(*at);
    trace_.input_length.push_back(tokens(scan.next(), "ContextTokens"));
    trace_.output_length.push_back(tokens(scan.next(), "GeneratedTokens"));
    trace_.block_end.push_back(0);
    if (scan.next()) lines_.refuse("more than 3 columns", std::string(header));
  }

  [[nodiscard]] std::uint32_t tokens(std::optional<std::string_view> field,
                                     const char* what) const {
    const auto value = field ? parse_number<std::uint32_t>(trimmed(*field)) : std::nullopt;
    if (!value)
      lines_.refuse(std::string(what) + " is '" + printable(field.value_or("")) + "'",
                    "0.." + std::to_string(std::numeric_limits<std::uint32_t>::max()));
    return *value;
  }

  line_scanner lines_;
  kv_trace trace_;
};

}  // namespace

kv_trace parse_azure_requests(std::string_view text, const std::string& file) {
  return azure_reader(text, file).read();
}

kv_trace read_azure_requests(const std::filesystem::path& path) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files", "one CSV");
  return parse_azure_requests(input.front().text, path.string());
}

}  // namespace hotset::lab
