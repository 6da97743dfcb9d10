// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ids that a hand-walked case writes as plain numbers, in the order of a walk's parameters.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"

namespace hotset::support {

/// A parameter that accepts an id or its number.
template <identifier Id>
struct written {
  constexpr written(Id of) : id(of) {}                                           // NOLINT
  constexpr written(std::integral auto number) : id(static_cast<Id>(number)) {}  // NOLINT
  constexpr operator Id() const { return id; }                                   // NOLINT
  Id id;
};
using written_layer = written<layer_id>;
using written_expert = written<expert_id>;
using written_slot = written<slot_id>;

/// A router's ids, or a list of them.
struct routed_ids {
  routed_ids(std::initializer_list<std::int32_t> numbers) : ids(numbers) {}   // NOLINT
  routed_ids(std::vector<std::int32_t> numbers) : ids(std::move(numbers)) {}  // NOLINT
  routed_ids(const std::vector<expert_id>& of) {                              // NOLINT
    for (const auto id : of) ids.push_back(number(id));
  }
  std::vector<std::int32_t> ids;
};

template <identifier Id>
[[nodiscard]] std::vector<Id> ids_of(std::initializer_list<std::int32_t> numbers) {
  std::vector<Id> out;
  for (const auto n : numbers) out.push_back(static_cast<Id>(n));
  return out;
}
[[nodiscard]] inline std::vector<expert_id> expert_ids(
    std::initializer_list<std::int32_t> numbers) {
  return ids_of<expert_id>(numbers);
}
/// One list per layer.
[[nodiscard]] inline std::vector<std::vector<expert_id>> expert_lists(
    std::initializer_list<std::initializer_list<std::int32_t>> layers) {
  std::vector<std::vector<expert_id>> out;
  for (const auto numbers : layers) out.push_back(expert_ids(numbers));
  return out;
}
[[nodiscard]] inline std::vector<slot_id> slot_ids(std::initializer_list<std::int32_t> numbers) {
  return ids_of<slot_id>(numbers);
}
[[nodiscard]] inline std::vector<layer_id> layer_ids(std::initializer_list<std::int32_t> numbers) {
  return ids_of<layer_id>(numbers);
}
[[nodiscard]] constexpr expert_key key_of(written_layer layer, written_expert expert) {
  return {layer, expert};
}

}  // namespace hotset::support
