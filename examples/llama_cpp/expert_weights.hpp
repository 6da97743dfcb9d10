// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The weights of a running model that are indexed by an expert's number.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ggml.h"
#include "hotset/core/error.hpp"

namespace hotset_llama_cpp {

/// One of a layer, all experts in it.
struct expert_weight {
  ggml_tensor* tensor = nullptr;
  std::size_t bytes = 0;  ///< of one expert: from one to the next
  void* own = nullptr;    ///< where the model has it
};

/// Looks at the nodes of one decode, without stopping it.
class weight_finder {
 public:
  /// Of a node, before it is computed.
  void see(ggml_tensor& node);

  /// By layer as the model counts, and by name. Errors, in a sentence: no experts; weights that were repacked or lie elsewhere than in host memory; something
  /// else that is indexed by an expert's number.
  [[nodiscard]] hotset::validation check() const;
  [[nodiscard]] const std::map<std::int32_t, std::map<std::string, expert_weight>>& layers() const {
    return layers_;
  }
  /// The last node of a layer that reads the ids before they may be changed.
  [[nodiscard]] const std::map<std::int32_t, std::string>& last_readers() const { return last_; }

 private:
  void add(const ggml_tensor& node, ggml_tensor* weight, std::size_t bytes);

  std::map<std::int32_t, std::map<std::string, expert_weight>> layers_;
  std::map<std::int32_t, std::string> last_;
  std::map<const ggml_tensor*, std::int32_t> chosen_;  ///< ids and views of them
  std::string trouble_;
};

}  // namespace hotset_llama_cpp
