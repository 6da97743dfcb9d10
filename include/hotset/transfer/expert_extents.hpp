// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Table of the positions of experts' tensors in files.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Position of one tensor of one expert in a file.
struct file_extent {
  std::size_t file = 0;  ///< index in the source's files
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Memory: 32 bytes for each tensor of each expert. Threads: compatible.
class expert_extents {
 public:
  /// Pre: the shape is valid.
  explicit expert_extents(const geometry& shape)
      : shape_(shape),
        where_(shape.keys() * shape.precisions() * expert_layout::max_tensors),
        sizes_(where_.size(), 0),
        counts_(shape.keys() * shape.precisions(), 0) {}

  /// Sets the position of an expert's tensors, in layout order. Errors: an unknown expert or precision; 0 or more than
  /// 8 tensors, or one of 0 bytes; an extent beyond the end of its file, which is then incomplete.
  template <class File>
  validation add(expert_key key, precision_id precision, std::span<const file_extent> tensors,
                 const std::vector<File>& files) {
    const auto what = "layer " + to_string(key.layer) + ", expert " + to_string(key.expert);
    if (!contains(key, precision))
      return refusal(what, " at precision ", precision, " is outside the model");
    if (tensors.empty() || tensors.size() > expert_layout::max_tensors)
      return refusal(what, " of ", tensors.size(), " tensors, accepted: 1..",
                     expert_layout::max_tensors);
    for (const auto& one : tensors) {
      if (one.file >= files.size())
        return refusal(what, " in file ", one.file, ", accepted: 0..", files.size() - 1);
      const auto size = files[one.file].size();
      if (one.bytes == 0 || one.offset > size || one.bytes > size - one.offset)
        return refusal(what, " at ", one.offset, ", ", one.bytes, " bytes of ",
                       files[one.file].path(), ", accepted: 1 or more of its ", size);
    }
    const auto at = place_of(key, precision);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      where_[at * expert_layout::max_tensors + t] = tensors[t];
      sizes_[at * expert_layout::max_tensors + t] = tensors[t].bytes;
    }
    counts_[at] = static_cast<std::uint8_t>(tensors.size());
    return std::nullopt;
  }

  /// Bytes of each tensor; empty if the expert was not added.
  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id precision) const noexcept {
    if (!contains(key, precision)) return {};
    const auto at = place_of(key, precision);
    return {sizes_.data() + at * expert_layout::max_tensors, counts_[at]};
  }
  /// Pre: the expert was added and has the tensor.
  [[nodiscard]] const file_extent& at(expert_key key, precision_id precision,
                                      std::size_t tensor) const noexcept {
    return where_[place_of(key, precision) * expert_layout::max_tensors + tensor];
  }
  /// Number of the expert at the precision, for further tables. Pre: contains(key, precision).
  [[nodiscard]] std::size_t place_of(expert_key key, precision_id precision) const noexcept {
    return index_of(precision) * shape_.keys() + shape_.index(key);
  }

 private:
  [[nodiscard]] bool contains(expert_key key, precision_id precision) const noexcept {
    return shape_.contains(key) && index_of(precision) < shape_.precisions();
  }

  geometry shape_;
  std::vector<file_extent> where_;    ///< [precisions][keys][max_tensors]
  std::vector<std::uint64_t> sizes_;  ///< [precisions][keys][max_tensors]
  std::vector<std::uint8_t> counts_;  ///< [precisions][keys]; 0: absent
};

}  // namespace hotset
