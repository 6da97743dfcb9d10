// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One value for each expert of each layer. The subscript is a key or a layer's row.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Row-major, [layers * experts]. A key has the place of `geometry::index`.
template <class T>
class per_key {
 public:
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;

  per_key() = default;
  explicit per_key(const geometry& shape, const T& value = T())
      : experts_(shape.expert_count()), values_(shape.keys(), value) {}
  /// Pre: values.size() == shape.keys().
  per_key(const geometry& shape, std::vector<T> values)
      : experts_(shape.expert_count()), values_(std::move(values)) {
    HOTSET_ASSERT(values_.size() == shape.keys());
  }

  [[nodiscard]] reference operator[](expert_key key) noexcept { return values_[place_of(key)]; }
  [[nodiscard]] const_reference operator[](expert_key key) const noexcept {
    return values_[place_of(key)];
  }
  /// Shape: [experts].
  [[nodiscard]] std::span<T> row(layer_id layer) noexcept {
    return std::span(values_).subspan(index_of(layer) * experts_, experts_);
  }
  [[nodiscard]] std::span<const T> row(layer_id layer) const noexcept {
    return std::span(values_).subspan(index_of(layer) * experts_, experts_);
  }
  [[nodiscard]] std::size_t place_of(expert_key key) const noexcept {
    return index_of(key.layer) * experts_ + index_of(key.expert);
  }
  [[nodiscard]] std::vector<T>& values() noexcept { return values_; }
  [[nodiscard]] const std::vector<T>& values() const noexcept { return values_; }

 private:
  std::size_t experts_ = 0;
  std::vector<T> values_;
};

}  // namespace hotset
