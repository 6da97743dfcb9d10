// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Nodes of llama.cpp's graphs: routed experts, found by name, and operations on experts.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ggml.h"

namespace hotset_llama_cpp {

/// Layer number of "<what>-<layer>"; nothing for any other name, such as "<what>-3 (reshaped)".
[[nodiscard]] std::optional<std::int32_t> layer_of(std::string_view name, std::string_view what);

/// Layer whose chosen experts this node holds, I32 [top_k, tokens]; a view with gaps between its rows.
[[nodiscard]] std::optional<std::int32_t> chosen_of(const ggml_tensor& node);
/// Layer whose chosen experts this tensor holds: the node itself, or the scheduler's copy for another device,
/// "<device>#ffn_moe_topk-<layer>#<number>".
[[nodiscard]] std::optional<std::int32_t> ids_of(const ggml_tensor& tensor);
/// Layer whose gate weights this node holds, [1, top_k, tokens] or [top_k, tokens], at any stage in any family.
[[nodiscard]] std::optional<std::int32_t> weights_of(const ggml_tensor& node);

/// Bytes of a tensor on any device; copied to `buffer` if they are not in host memory.
[[nodiscard]] const std::byte* host_bytes(const ggml_tensor& node, std::vector<std::byte>& buffer);
/// Copies a tensor with rows of `width` numbers, without the gaps between its rows.
template <class T>
void copy_rows(const ggml_tensor& node, std::int64_t width, std::vector<T>& to) {
  std::vector<std::byte> buffer;
  const auto* const from = host_bytes(node, buffer);
  const auto stride = node.ne[0] == width ? node.nb[1] : node.nb[2];
  const auto row = static_cast<std::size_t>(width);
  const auto rows = static_cast<std::size_t>(ggml_nelements(&node)) / row;
  to.resize(rows * row);
  for (std::size_t r = 0; r < rows; ++r)
    std::memcpy(&to[r * row], from + r * stride, row * sizeof(T));
}

/// An operation that reads one expert of a weight for each id: a product, or the addition of a bias.
struct expert_operation {
  ggml_tensor** weight = nullptr;  ///< the node's source pointers
  ggml_tensor** ids = nullptr;
  std::size_t bytes = 0;  ///< distance between experts of the weight
  std::int64_t experts = 0;
};
[[nodiscard]] std::optional<expert_operation> expert_operation_of(ggml_tensor& node);

/// Replaces sources of nodes. llama.cpp computes a graph many times and may free it in between. A node therefore gets
/// its original sources back only when it is seen again, before it is computed.
class replaced_sources {
 public:
  void replace(ggml_tensor& node, const expert_operation& op, ggml_tensor& weight,
               ggml_tensor& ids);
  /// No effect on a node with original sources, even at the address of a freed node.
  void restore(ggml_tensor& node);

 private:
  struct sources {
    ggml_tensor* own_weight = nullptr;
    ggml_tensor* own_ids = nullptr;
    ggml_tensor* weight = nullptr;  ///< replacement
  };
  std::unordered_map<const ggml_tensor*, sources> nodes_;
};

}  // namespace hotset_llama_cpp
