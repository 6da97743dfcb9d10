// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sizes of the vision towers that are known.

#include <cstdint>
#include <optional>
#include <string_view>

#include "lab/models/config_keys.hpp"

namespace hotset::lab {

/// Elements of the vision tower and its projector of a model_type; nothing for an unknown one. `vision`: the
/// vision_config. Errors: trace_error for a missing key.
[[nodiscard]] std::optional<std::uint64_t> vision_elements(std::string_view type,
                                                           const config_keys& vision,
                                                           std::uint64_t text_width);

}  // namespace hotset::lab
