// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A report of hotset::lab as the JSON that its text is.

#include <span>

#include <nlohmann/json.hpp>

namespace hotset::support {

/// Pre: to_json_text of what was reported, or of a span of it, is found where its type is.
template <class Reported>
[[nodiscard]] nlohmann::ordered_json json_of(const Reported& reported) {
  if constexpr (requires { to_json_text(reported); })
    return nlohmann::ordered_json::parse(to_json_text(reported));
  else
    return nlohmann::ordered_json::parse(to_json_text(std::span(&reported, 1)));
}

}  // namespace hotset::support
