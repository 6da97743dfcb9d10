// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How numbers are shown to people.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace hotset::cli {

/// "13.6 MiB", in the largest binary unit that leaves 1 or more before the point.
[[nodiscard]] inline std::string binary_size(std::uint64_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace hotset::cli
