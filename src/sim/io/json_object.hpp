// SPDX-License-Identifier: Apache-2.0
#pragma once
/// JSON objects of small files, read with a reason for every refusal.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace hotset::inline v0::sim {

/// Errors: trace_error for what is no JSON object, has a key twice in one object, or is longer than 16 MiB.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& file,
                                               std::string_view accepted);

/// A value as messages have it: "an array of 3", "an object", or itself.
[[nodiscard]] std::string told(const nlohmann::json& value);

/// A key that is a number in [0, most] and nothing else, without leading zeros.
[[nodiscard]] std::optional<std::int32_t> numeric_key(std::string_view key, std::int32_t most);

}  // namespace hotset::inline v0::sim
