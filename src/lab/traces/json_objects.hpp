// SPDX-License-Identifier: Apache-2.0
#pragma once
/// JSON objects, one per line of a text.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lab/files/json_object.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {

/// Reads the object of the next line that is neither blank nor a comment; false at the end. Errors: trace_error.
inline bool next_object(line_scanner& lines, nlohmann::json& object) {
  std::string_view line;
  if (!lines.next_row(line)) return false;
  object = parse_json_object(line, fmt::format("{}: line {}", lines.file(), lines.number()),
                             "one JSON object a line", line.size());
  return true;
}

/// Member of an object, or null if there is none or it is JSON's null.
[[nodiscard]] inline const nlohmann::json* member(const nlohmann::json& object,
                                                  const std::string& key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

/// A whole number in [least, most], also one stored as a real, or nothing.
[[nodiscard]] inline std::optional<std::int64_t> whole_number(const nlohmann::json& value,
                                                              std::int64_t least,
                                                              std::int64_t most) {
  if (value.is_number_float()) {
    const auto real = value.get<double>();
    if (real != std::floor(real) || std::abs(real) >= 0x1p53) return std::nullopt;
    return whole_number(static_cast<std::int64_t>(real), least, most);
  }
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  const bool wraps = value.is_number_unsigned() && number < 0;
  return wraps || number < least || number > most ? std::nullopt : std::optional(number);
}

}  // namespace hotset::lab
