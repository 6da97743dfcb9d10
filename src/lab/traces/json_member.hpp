// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A member of a JSON object on a line.

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "lab/traces/text_scan.hpp"

namespace hotset::lab {

/// Returns nothing if there is no such member. simdjson itself takes the first of several.
/// Errors: trace_error if there are two.
[[nodiscard]] inline std::optional<simdjson::dom::element> member(
    const simdjson::dom::object& object, std::string_view key, const line_scanner& line) {
  std::optional<simdjson::dom::element> found;
  for (const auto field : object) {
    if (field.key != key) continue;
    if (found) line.refuse("'" + std::string(key) + "' is there twice", "each key once");
    found = field.value;
  }
  return found;
}

}  // namespace hotset::lab
