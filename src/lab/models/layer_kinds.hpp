// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Kinds of a decoder's layers, in the many spellings of Hugging Face configs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/models/config_keys.hpp"

namespace hotset::lab {

enum class layer_kind : std::uint8_t {
  full,     ///< attention to all tokens
  sliding,  ///< attention within a window
  chunked,  ///< attention within a chunk
  /// Linear attention, or a state space.
  recurrent,
  convolution,
  experts,  ///< experts without a mixer
  mlp,      ///< an MLP without a mixer
  pooled,   ///< compressed attention with an index
  pooled_far,
};

/// Counts the layers if a list of the config has one entry for each.
[[nodiscard]] std::optional<std::size_t> listed_layers(const config_keys& keys);

/// Kinds by a list of words or numbers, a pattern of letters or a period, in this order; else by `usual`, letters that
/// repeat; empty: neither says anything. Entries past the last layer are for multi-token prediction.
/// Errors: trace_error for a list that is too short, or for an unknown word, unless `otherwise`, what else helps, is
/// empty: then it is full attention.
[[nodiscard]] std::vector<layer_kind> layer_kinds(const config_keys& keys, std::size_t layers,
                                                  std::string_view usual,
                                                  const std::string& otherwise);

}  // namespace hotset::lab
