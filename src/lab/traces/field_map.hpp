// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which key of a JSON line, or column of a CSV, means what.

#include <string>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset::lab {

/// Only layer and experts must be there.
struct field_map {
  std::string layer = "layer";
  /// Of one token: a list of ids. JSON: or one such list for each of several tokens. CSV: or columns, as "e0..e5".
  std::string experts = "experts";
  std::string weights = "weights";  ///< of the same shape; everywhere or nowhere
  /// Default: token if there is one, else a step ends where the layer does not rise.
  std::string step = "step";
  std::string token = "token";  ///< default: the next one of this step and layer
  std::string phase = "phase";  ///< "decode" (default), "prefill", "prompt", "verify", or 0, 1, 2
  std::string sequence = "sequence";  ///< a number or a name; default: one sequence
  /// CSV: of the row's first expert; default: after those of the rows before.
  std::string rank = "rank";
};

/// Reads "layer=l,experts=ids": what is not named keeps its name. Errors: invalid_config.
[[nodiscard]] field_map parse_field_map(std::string_view text);

}  // namespace hotset::lab
