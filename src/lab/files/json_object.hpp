// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Parses JSON objects of small files; every refusal has a reason.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace hotset::lab {

inline constexpr std::size_t most_json_bytes = std::size_t{16} << 20U;

/// NaN, Infinity and -Infinity, which Python writes although JSON lacks them, become the strings "NaN", "Infinity"
/// and "-Infinity": a reader that needs a number refuses them by name.
/// Errors: trace_error if the text is no JSON object, repeats a key within an object, nests values more than 32 deep,
/// or is longer than `most` bytes.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& file,
                                               std::string_view accepted,
                                               std::size_t most = most_json_bytes);

/// Formats a value for messages: "an array of 3", "an object", or the value itself.
[[nodiscard]] std::string described(const nlohmann::json& value);

/// Parses a key that is only a number in [0, most], without leading zeros.
[[nodiscard]] std::optional<std::int32_t> numeric_key(std::string_view key, std::int32_t most);

}  // namespace hotset::lab
