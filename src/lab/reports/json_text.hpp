// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Formats JSON as the text of a report.

#include <string>

#include <nlohmann/json.hpp>

namespace hotset::lab {

/// JSON in one line, without a line end. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] inline std::string one_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
/// JSON with one line per member. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] inline std::string indented(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hotset::lab
