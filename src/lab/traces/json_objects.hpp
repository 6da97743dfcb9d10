// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A JSON object on each line of a text.

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "lab/traces/text_scan.hpp"

namespace hotset::lab {

class json_objects {
 public:
  json_objects(std::string file, std::string_view text) : lines_(std::move(file), text) {}

  /// Reads the object of the next line that is not blank; false at the end. Errors: trace_error.
  bool next(simdjson::dom::object& object) {
    std::string_view line;
    while (lines_.next(line))
      if (!trimmed(line).empty()) {
        object = parsed(line);
        return true;
      }
    return false;
  }
  /// The member of an object, or nothing; simdjson itself takes the first of several.
  /// Errors: trace_error if there are two.
  [[nodiscard]] std::optional<simdjson::dom::element> find(const simdjson::dom::object& object,
                                                           std::string_view key) const {
    std::optional<simdjson::dom::element> found;
    for (const auto field : object) {
      if (field.key != key) continue;
      if (found) lines_.refuse("'" + std::string(key) + "' is there twice", "each key once");
      found = field.value;
    }
    return found;
  }
  [[nodiscard]] const line_scanner& lines() const noexcept { return lines_; }

 private:
  simdjson::dom::object parsed(std::string_view line) {
    simdjson::dom::element document;
    const auto code = parser_.parse(line.data(), line.size()).get(document);
    if (code != simdjson::SUCCESS)
      lines_.refuse(std::string("is not JSON: ") + simdjson::error_message(code),
                    "one JSON object a line");
    simdjson::dom::object object;
    if (document.get(object) != simdjson::SUCCESS)
      lines_.refuse("is no object", "one JSON object a line");
    return object;
  }

  line_scanner lines_;
  simdjson::dom::parser parser_;
};

}  // namespace hotset::lab
