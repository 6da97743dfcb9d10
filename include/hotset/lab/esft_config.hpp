// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes ESFT configurations: which experts an adapter tuned in each layer.
///
/// `{"experts": {"1": [8, 26], ...}, "shared_experts": false, "non_expert_modules": false}`, as DeepSeek's ESFT writes it;
/// beside an adapter's weights it is called expert_cfg.json. Layers have the model's own numbers.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"

namespace hotset::lab {

/// The base model, by which a configuration is judged. Pre: layers and experts are 1 or more.
struct esft_base {
  std::int32_t layers = 0;   ///< with experts
  std::int32_t experts = 0;  ///< of a layer
  /// The model's number of the first layer with experts, which follow each other. None: the layers that are named are all
  /// of them, in ascending order.
  std::optional<std::int32_t> first_layer;
};

struct esft_config {
  std::vector<std::int32_t> layer_numbers;    ///< the model's, ascending; one for each MoE layer
  std::vector<std::vector<expert_id>> tuned;  ///< Shape: [layers]; as the file has them

  /// Experts of each layer.
  [[nodiscard]] std::vector<std::int32_t> counts() const;
};

/// A folder stands for the expert_cfg.json in it. A layer that is not named, or has no experts, is the base model's.
/// Errors: trace_error, one line: file, what was found, what is accepted. Shared experts and other modules that were
/// tuned, too, are refused: they cannot be redirected.
[[nodiscard]] esft_config read_esft_config(const std::filesystem::path& path,
                                           const esft_base& base);

/// The same for text in memory; file is for messages.
[[nodiscard]] esft_config parse_esft_config(std::string_view text, const std::string& file,
                                            const esft_base& base);

/// One line of JSON, layers ascending.
[[nodiscard]] std::string format_esft_config(const esft_config& config);

}  // namespace hotset::lab
