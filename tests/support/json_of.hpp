// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A lab report's JSON text, parsed.

#include <span>

#include <nlohmann/json.hpp>

namespace hotset::support {

/// Pre: argument-dependent lookup finds to_json_text of the report, or of a span of it.
template <class Reported>
[[nodiscard]] nlohmann::ordered_json json_of(const Reported& reported) {
  if constexpr (requires { to_json_text(reported); })
    return nlohmann::ordered_json::parse(to_json_text(reported));
  else
    return nlohmann::ordered_json::parse(to_json_text(std::span(&reported, 1)));
}

}  // namespace hotset::support
