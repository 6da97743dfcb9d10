// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in memory of the caller: a mapped file, or page-locked buffers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/transfer/expert_source.hpp"

namespace hotset {

/// Checks sizes when an expert is registered, so that a copy cannot write beyond its slot.
class memory_expert_source {
 public:
  /// `layouts[c]` describes the experts of size class c.
  static result<memory_expert_source> create(const geometry& shape,
                                             std::vector<expert_layout> layouts) {
    if (auto bad = shape.validate()) return *std::move(bad);
    auto classes = shape.size_classes();
    for (std::size_t l = 0; l < classes.size(); ++l) {
      const auto c = index_of(classes[l]);
      if (c >= layouts.size())
        return refusal("layer ", l, " is of size class ", c, ", accepted: 0..", layouts.size(),
                       " - 1 (one layout for each class)");
      if (auto bad = layouts[c].validate()) return *std::move(bad);
    }
    memory_expert_source out;
    out.shape_ = shape;
    out.classes_ = per_layer<size_class_id>(std::move(classes));
    out.layouts_ = per_size_class<expert_layout>(std::move(layouts));
    out.tensors_.resize(shape.keys() * expert_layout::max_tensors);
    out.counts_.resize(shape.keys(), 0);
    return out;
  }

  /// Registers or replaces one expert. Returns an error if a tensor is missing or has another size.
  validation add(expert_key key, std::span<const tensor_bytes> tensors) {
    if (!shape_.contains(key)) return error{describe(key) + " is outside the model"};
    const auto& layout = layout_of(key.layer);
    if (tensors.size() != layout.tensors.size())
      return refusal(describe(key), " has ", tensors.size(),
                     " tensors, accepted: ", layout.tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].size() != layout.tensors[t].bytes)
        return refusal(describe(key), ", tensor '", layout.tensors[t].name, "' has ",
                       tensors[t].size(), " bytes, accepted: ", layout.tensors[t].bytes);
    const auto at = shape_.index(key);
    for (std::size_t t = 0; t < tensors.size(); ++t)
      tensors_[at * expert_layout::max_tensors + t] = tensors[t];
    counts_[at] = static_cast<std::uint8_t>(tensors.size());
    return std::nullopt;
  }
  /// Removes an expert whose host bytes will be freed. Invalidate the key in every cache first.
  void remove(expert_key key) noexcept {
    if (shape_.contains(key)) counts_[shape_.index(key)] = 0;
  }

  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key, precision_id) const noexcept {
    if (!shape_.contains(key)) return {};
    const auto at = shape_.index(key);
    return {tensors_.data() + at * expert_layout::max_tensors, counts_[at]};
  }
  [[nodiscard]] const expert_layout& layout_of(layer_id layer) const noexcept {
    return layouts_[classes_[layer]];
  }

 private:
  static std::string describe(expert_key key) {
    return "layer " + to_string(key.layer) + ", expert " + to_string(key.expert);
  }

  geometry shape_{};
  per_layer<size_class_id> classes_;
  per_size_class<expert_layout> layouts_;
  std::vector<tensor_bytes> tensors_;  ///< [keys][max_tensors]
  std::vector<std::uint8_t> counts_;   ///< [keys]; 0: absent
};

static_assert(expert_source<memory_expert_source>);

}  // namespace hotset
