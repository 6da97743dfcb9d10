// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arrays with one value for each id of one kind. Ids of other kinds are refused as subscripts.

#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"

namespace hotset {

/// A vector whose subscript is an id.
template <identifier Id, class T>
class per_id : private std::vector<T> {
  using base = std::vector<T>;

 public:
  using base::assign;
  using base::back;
  using base::base;
  using base::begin;
  using base::clear;
  using base::data;
  using base::emplace_back;
  using base::empty;
  using base::end;
  using base::front;
  using base::insert;
  using base::push_back;
  using base::reserve;
  using base::resize;
  using base::size;
  using typename base::const_reference;
  using typename base::reference;
  using typename base::value_type;

  per_id() = default;
  explicit per_id(std::vector<T> values) noexcept : base(std::move(values)) {}

  /// Pre: index_of(id) < size().
  [[nodiscard]] reference operator[](Id id) noexcept { return base::operator[](index_of(id)); }
  [[nodiscard]] const_reference operator[](Id id) const noexcept {
    return base::operator[](index_of(id));
  }
  /// All valid subscripts.
  [[nodiscard]] id_range<Id> ids() const noexcept { return each<Id>(size()); }
  /// The values as a plain vector.
  [[nodiscard]] const std::vector<T>& values() const noexcept { return *this; }
  friend bool operator==(const per_id& a, const per_id& b) { return a.values() == b.values(); }
};

/// One value for each layer.
template <class T>
using per_layer = per_id<layer_id, T>;
/// One value for each expert.
template <class T>
using per_expert = per_id<expert_id, T>;
/// One value for each slot.
template <class T>
using per_slot = per_id<slot_id, T>;
/// One value for each pool.
template <class T>
using per_pool = per_id<pool_id, T>;
/// One value for each size class.
template <class T>
using per_size_class = per_id<size_class_id, T>;

}  // namespace hotset
