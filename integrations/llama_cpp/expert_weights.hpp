// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the weights of a running model that are indexed by expert ids.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "ggml-backend.h"
#include "ggml.h"

namespace hotset_llama_cpp {

/// One weight of a layer, for all of its experts.
struct expert_weight {
  ggml_tensor* tensor = nullptr;  ///< owned by the model; only read
  std::size_t bytes = 0;          ///< bytes of one expert; distance to the next
  std::int64_t experts = 0;
};

/// Observes the nodes of one decode without stopping it.
class weight_finder {
 public:
  /// Call for each node before it is computed.
  void see(ggml_tensor& node);

  [[nodiscard]] bool saw_nothing() const { return nodes_ == 0; }
  /// Weight with this name in the file ("ffn_up_exps.weight"); null if no operation reads it by the chosen ids.
  [[nodiscard]] const expert_weight* find(std::int32_t layer, const std::string& name) const;
  [[nodiscard]] bool has_experts() const { return !layers_.empty(); }
  /// Experts per token in the last router's choice.
  [[nodiscard]] std::int64_t top_k() const { return top_k_; }
  /// A layer with more than one router, if there is one.
  [[nodiscard]] std::optional<std::int32_t> routed_twice() const { return twice_; }
  /// Bytes of the host's buffers with this use that the nodes lie in.
  [[nodiscard]] std::uint64_t host_bytes_of(ggml_backend_buffer_usage usage) const;
  /// By layer, the router's last node: it computes the ids, before any expert runs.
  [[nodiscard]] const std::map<std::int32_t, std::string>& routed() const { return routed_; }

 private:
  std::size_t nodes_ = 0;
  std::map<std::int32_t, std::map<std::string, expert_weight>> layers_;
  std::map<std::int32_t, std::string> routed_;
  std::optional<std::int32_t> twice_;
  std::int64_t top_k_ = 0;
  std::set<ggml_backend_buffer_t> buffers_;
};

}  // namespace hotset_llama_cpp
