// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One line for every refused input: file, place, found value, accepted values.

#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"

namespace hotset::lab {

/// Formats "file: place: found; accepted: ..."; an empty place or accepted part is left out.
[[nodiscard]] std::string input_message(std::string_view file, std::string_view place,
                                        std::string_view found, std::string_view accepted);

/// Errors: always throws trace_error with input_message().
[[noreturn]] void refuse_input(std::string_view file, std::string_view place,
                               std::string_view found, std::string_view accepted);

}  // namespace hotset::lab
