// SPDX-License-Identifier: Apache-2.0
#include "lab/sizes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {

std::optional<std::uint64_t> parse_rate(std::string_view text) noexcept {
  if (!text.ends_with("/s")) return std::nullopt;
  const auto bytes = parse_bytes(text.substr(0, text.size() - 2));
  return bytes && *bytes > 0 ? bytes : std::nullopt;
}

std::optional<std::uint64_t> parse_duration(std::string_view text) noexcept {
  if (text == "0") return 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (code != std::errc{}) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const auto& [name, scale] : {std::pair("ns", 1.0), {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}})
    if (unit == name && number * scale <= 1e12) return static_cast<std::uint64_t>(number * scale);
  return std::nullopt;
}

namespace {

constexpr std::string_view rate_syntax =
    "a number of bytes above 0 with a unit, a second, such as 25GB/s or 800MiB/s";
constexpr std::string_view duration_syntax = "a number with ns, us, ms or s, such as 10us";

constexpr std::array<std::string_view, 7> binary_units{"B",   "KiB", "MiB", "GiB",
                                                       "TiB", "PiB", "EiB"};
constexpr std::size_t readable_units = 5;  // parse_bytes accepts no more units

/// A number and the text after it.
struct quantity {
  std::string number;
  std::string unit;
};
quantity split(std::string_view text) {
  std::string dense;
  std::ranges::copy_if(text, std::back_inserter(dense),
                       [](unsigned char c) { return std::isspace(c) == 0; });
  const auto end = std::min(dense.find_first_not_of("0123456789."), dense.size());
  return {dense.substr(0, end), dense.substr(end)};
}

/// Units with this spelling in any case, possibly after adding B or iB; binary units first.
std::vector<std::string> known_units(const std::string& unit) {
  std::vector<std::string> out;
  for (const auto& known : detail::byte_units) {
    const auto name = lower_case(known.name);
    const bool same = !unit.empty() && known.name != "KB" &&
                      (name == unit || name == unit + "b" || name == unit + "ib");
    if (same) out.insert(out.begin(), std::string(known.name));
  }
  return out;
}

/// " (did you mean 24GiB?)", or nothing if no spelling gives a size or a rate.
std::string guess(std::string_view text, std::string_view usual, bool rate) {
  auto [number, unit] = split(text);
  if (number.empty()) return {};
  unit = lower_case(unit);
  if (rate)
    for (const std::string_view per : {"/s", "/sec", "ps"})
      if (unit.ends_with(per)) {
        unit.resize(unit.size() - per.size());
        break;
      }
  auto units = known_units(unit);
  // A number too large for the usual unit is probably in bytes.
  const bool large = !rate && (number.size() > 5 || !parse_bytes(number + std::string(usual)));
  if (unit.empty()) units = {large ? "B" : std::string(usual)};
  std::vector<std::string> spellings;
  for (const auto& known : units) {
    const auto spelling = number + known + (rate ? "/s" : "");
    const bool reads = rate ? parse_rate(spelling).has_value() : parse_bytes(spelling) > 0U;
    if (reads) spellings.push_back(spelling);
  }
  return spellings.empty() ? "" : fmt::format(" (did you mean {}?)", fmt::join(spellings, " or "));
}

bool bare_number(std::string_view text) {
  const auto [number, unit] = split(text);
  return !number.empty() && unit.empty() && number.size() == text.size();
}

[[noreturn]] void refuse(std::string_view text, std::string_view trouble, const std::string& hint,
                         std::string_view accepted) {
  throw usage_error(
      fmt::format("'{}'{}{}; accepted: {}", printable(text), trouble, hint, accepted));
}

}  // namespace

std::uint64_t read_size_or_none(std::string_view text, std::string_view usual) {
  if (text == "0") return 0;
  const auto bytes = parse_bytes(text);
  if (bytes && !bare_number(text)) return *bytes;
  refuse(text, bare_number(text) ? " has no unit" : "", guess(text, usual, false),
         byte_size_syntax);
}

std::uint64_t read_size(std::string_view text, std::string_view usual) {
  const auto bytes = read_size_or_none(text, usual);
  if (bytes == 0) refuse(text, " is nothing", "", byte_size_syntax);
  return bytes;
}

std::uint64_t read_rate(std::string_view text) {
  const auto rate = parse_rate(text);
  if (rate && !bare_number(text.substr(0, text.size() - 2))) return *rate;
  refuse(text, bare_number(text) ? " has no unit" : "", guess(text, "GB", true), rate_syntax);
}

std::uint64_t read_duration(std::string_view text) {
  const auto time = parse_duration(text);
  if (time) return *time;
  refuse(text, bare_number(text) ? " has no unit" : "", "", duration_syntax);
}

namespace {
struct scaled {
  double value;  ///< in the unit
  std::string_view unit;
  bool exact;
};
/// Scales to the largest unit in which the value is at least 1.
scaled in_largest_unit(std::uint64_t bytes, std::size_t units) {
  std::size_t unit = 0;
  std::uint64_t one = 1;
  for (; bytes / one >= 1024 && unit + 1 < units; ++unit) one *= 1024;
  return {static_cast<double>(bytes) / static_cast<double>(one), binary_units[unit],
          bytes % one == 0};
}
}  // namespace

std::string size_text(std::uint64_t bytes) {
  const auto [value, unit, exact] = in_largest_unit(bytes, binary_units.size());
  return fmt::format("{:.{}f} {}", value, exact ? 0 : 1, unit);
}

std::string least_size_text(std::uint64_t bytes) {
  const auto [value, unit, exact] = in_largest_unit(bytes, readable_units);
  return fmt::format("{:.{}f}{}", exact ? value : std::ceil(value * 10) / 10, exact ? 0 : 1, unit);
}

std::string at_least_text(std::uint64_t bytes) {
  const auto rounded = least_size_text(bytes);
  if (parse_bytes(rounded) == bytes) return rounded + " or more";
  return fmt::format("{} ({}B) or more", rounded, bytes);
}

std::string with_sizes(std::string_view message) {
  constexpr std::string_view word = " bytes";
  constexpr std::size_t readable = 4;  // number of digits that are readable without a unit
  std::string out;
  for (std::size_t at; (at = message.find(word)) != std::string_view::npos;) {
    const auto before = message.substr(0, at);
    const auto digits = before.substr(before.find_last_not_of("0123456789") + 1);
    out.append(message.substr(0, at + word.size()));
    const auto bytes = parse_number<std::uint64_t>(digits);
    if (digits.size() > readable && bytes) out += fmt::format(" ({})", size_text(*bytes));
    message.remove_prefix(at + word.size());
  }
  return out.append(message);
}

}  // namespace hotset::lab
