// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Nodes of llama.cpp's graphs that say what was routed, by their names.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ggml.h"

namespace hotset_llama_cpp {

/// The layer of "<what>-<layer>"; nothing for any other name, such as "<what>-3 (reshaped)".
[[nodiscard]] std::optional<std::int32_t> layer_of(const ggml_tensor& node, std::string_view what);

/// The chosen experts, I32 [top_k, tokens]; a view whose rows lie apart.
[[nodiscard]] std::optional<std::int32_t> chosen_of(const ggml_tensor& node);
/// Gate weights of the chosen experts, [1, top_k, tokens] or [top_k, tokens], at any of the stages that a family has.
[[nodiscard]] std::optional<std::int32_t> weights_of(const ggml_tensor& node);

/// Row r of a tensor of rows of `width` numbers. Pre: it lies in host memory.
template <class T>
[[nodiscard]] T* row_of(const ggml_tensor& node, std::int64_t width, std::int64_t r) {
  const auto stride = node.ne[0] == width ? node.nb[1] : node.nb[2];
  return reinterpret_cast<T*>(static_cast<char*>(node.data) + static_cast<std::size_t>(r) * stride);
}
[[nodiscard]] inline std::int64_t rows_of(const ggml_tensor& node, std::int64_t width) {
  return ggml_nelements(&node) / width;
}

}  // namespace hotset_llama_cpp
