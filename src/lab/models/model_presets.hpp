// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hugging Face configs of the models that are known by name, cut down to the keys that decide bytes.

#include <span>
#include <string_view>

namespace hotset::lab {

struct model_preset {
  std::string_view name;
  std::string_view config;  ///< JSON
};
[[nodiscard]] std::span<const model_preset> model_presets() noexcept;

}  // namespace hotset::lab
