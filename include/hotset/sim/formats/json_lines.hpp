// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routing recorded as one JSON object a line, with names of the reader's choosing.

#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"

namespace hotset::inline v0::sim {

/// Which key of a line means what. Only layer and experts must be there.
struct json_field_map {
  std::string layer = "layer";
  std::string experts = "experts";  ///< [id, ...] for one token, or [[id, ...], ...] for several
  std::string weights = "weights";  ///< of the same shape; in every line or in none
  /// Default: token if there is one, else a step ends where the layer does not rise.
  std::string step = "step";
  std::string token = "token";        ///< default: the next one of this step and layer
  std::string phase = "phase";        ///< "decode" (default), "prefill", "verify", or 0, 1, 2
  std::string sequence = "sequence";  ///< default: 0
};

/// Reads "layer=l,experts=ids": what is not named keeps its name. Errors: invalid_config.
[[nodiscard]] json_field_map parse_field_map(std::string_view text);

/// Errors: trace_error naming the line.
[[nodiscard]] routing_trace read_json_lines(const std::filesystem::path& path,
                                            const json_field_map& fields = {},
                                            std::int32_t experts = 0);

/// The same for text in memory; file is for messages. experts 0: the highest id + 1.
[[nodiscard]] routing_trace parse_json_lines(std::string_view text, const std::string& file,
                                             const json_field_map& fields = {},
                                             std::int32_t experts = 0);

}  // namespace hotset::inline v0::sim
