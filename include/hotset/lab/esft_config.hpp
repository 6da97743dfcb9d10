// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes ESFT configurations: the experts that an adapter tuned in each layer.
///
/// `{"experts": {"1": [8, 26], ...}, "shared_experts": false, "non_expert_modules": false}`, in the format of
/// DeepSeek's ESFT. Beside an adapter's weights the file is called expert_cfg.json. Layers have the model's own
/// numbers.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"

namespace hotset::lab {

/// The base model; configurations are checked against it. Pre: layers and experts are 1 or more.
struct esft_base {
  std::int32_t layers = 0;   ///< number of layers with experts
  std::int32_t experts = 0;  ///< number of experts in a layer
  /// The model's number of the first layer with experts; layers with experts are consecutive. Empty: the listed layers
  /// are all of them, in ascending order.
  std::optional<std::int32_t> first_layer;
};

struct esft_config {
  /// The model's numbers, ascending; one for each MoE layer.
  std::vector<std::int32_t> layer_numbers;
  std::vector<std::vector<expert_id>> tuned;  ///< [layers] in the order of the file

  /// Number of tuned experts in each layer.
  [[nodiscard]] std::vector<std::int32_t> counts() const;
};

/// Reads a configuration. For a folder, reads the expert_cfg.json in it. A layer that is missing or has no experts is
/// the base model's.
/// Errors: trace_error, one line: file, the found and the accepted value. Tuned shared experts and other tuned modules
/// are refused: they cannot be redirected.
[[nodiscard]] esft_config read_esft_config(const std::filesystem::path& path,
                                           const esft_base& base);

/// Reads a configuration from text in memory. `file`: name for messages. Errors: as read_esft_config.
[[nodiscard]] esft_config parse_esft_config(std::string_view text, const std::string& file,
                                            const esft_base& base);

/// Returns one line of JSON, layers ascending.
[[nodiscard]] std::string format_esft_config(const esft_config& config);

}  // namespace hotset::lab
