// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Byte counts: literals, and a strict parser that distinguishes GB from GiB.

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

inline namespace literals {
/// n KiB in bytes.
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10U; }
/// n MiB in bytes.
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20U; }
/// n GiB in bytes.
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30U; }
}  // namespace literals

namespace detail {
struct byte_unit {
  std::string_view name;
  std::uint64_t bytes;
};
inline constexpr byte_unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1'000},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"KiB", 1ULL << 10U},
    {"MiB", 1ULL << 20U},
    {"GiB", 1ULL << 30U},
    {"TiB", 1ULL << 40U},
};
}  // namespace detail

/// The spellings that parse_bytes accepts, for error messages.
inline constexpr std::string_view byte_size_syntax =
    "a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 1500MiB";

/// Reads "1500MiB", "24GB", "1.5GiB" or "4096". GB is decimal and GiB is binary. Returns nothing for any other text, a
/// negative number or more than 2^63 - 1 bytes.
[[nodiscard]] inline std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept {
  double number = 0;
  const char* const end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [rest, code] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (code != std::errc{}) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const auto& known : detail::byte_units) {
    if (known.name != unit) continue;
    const double bytes = number * static_cast<double>(known.bytes);
    constexpr auto limit = static_cast<double>(std::numeric_limits<std::int64_t>::max());
    if (!(bytes < limit)) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
  }
  return std::nullopt;
}

}  // namespace hotset
