// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Identifiers that every part of the library shares. All are dense and start at 0.

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "hotset/core/platform/compiler.hpp"

namespace hotset {

// Each id is an enum with the representation of its number. A row of slots is uploaded without conversion, and a layer
// cannot be passed as a pool.

/// Index of a MoE layer in execution order (dense layers are not counted).
enum class layer_id : std::int32_t {};
/// The router's index of an expert within its layer. Negative: no expert.
enum class expert_id : std::int32_t {};
/// Global index of a slot. -1: no slot; a map row holds it for an absent expert.
enum class slot_id : std::int32_t {};
/// Index of a pool of slots. A pool serves all layers, one layer, or one size class.
enum class pool_id : std::int32_t {};
/// Index of a class of experts with equal tensor layout.
enum class size_class_id : std::int32_t {};
/// Stored precision of an expert; 0 is the highest.
enum class precision_id : std::uint8_t {};
/// Number of a forward pass; increases by one each step.
using step_id = std::uint64_t;
/// One request's tokens, from its prompt to its last token.
using sequence_id = std::uint32_t;

/// A number that indexes one kind of object.
template <class T>
concept identifier =
    std::same_as<T, layer_id> || std::same_as<T, expert_id> || std::same_as<T, slot_id> ||
    std::same_as<T, pool_id> || std::same_as<T, size_class_id> || std::same_as<T, precision_id>;

/// Returns the number of an id, to print it, write it to a file, or compare it with a count.
template <identifier Id>
[[nodiscard]] HOTSET_HOST_DEVICE constexpr std::underlying_type_t<Id> number(Id id) noexcept {
  return static_cast<std::underlying_type_t<Id>>(id);
}
/// Returns the number as an array subscript. Pre: not negative.
template <identifier Id>
[[nodiscard]] HOTSET_HOST_DEVICE constexpr std::size_t index_of(Id id) noexcept {
  return static_cast<std::size_t>(id);
}
/// Compares an id with a plain number, such as a count of its kind. Ids of two kinds do not compare.
template <identifier Id>
[[nodiscard]] constexpr bool operator==(Id id, std::integral auto n) noexcept {
  return std::int64_t{number(id)} == static_cast<std::int64_t>(n);
}
/// Orders an id and a plain number as numbers.
template <identifier Id>
[[nodiscard]] constexpr std::strong_ordering operator<=>(Id id, std::integral auto n) noexcept {
  return std::int64_t{number(id)} <=> static_cast<std::int64_t>(n);
}
/// True if 0 <= id < count.
template <identifier Id>
[[nodiscard]] constexpr bool is_within(Id id, std::integral auto count) noexcept {
  return id >= 0 && id < count;
}
/// Advances to the next id.
template <identifier Id>
constexpr Id& operator++(Id& id) noexcept {
  return id = static_cast<Id>(number(id) + 1);
}
/// Advances to the next id and returns the previous one.
template <identifier Id>
constexpr Id operator++(Id& id, int) noexcept {
  const Id before = id;
  ++id;
  return before;
}
/// The id `places` after this one.
template <identifier Id>
[[nodiscard]] constexpr Id operator+(Id id, std::int32_t places) noexcept {
  return static_cast<Id>(number(id) + places);
}
/// The id `places` before this one.
template <identifier Id>
[[nodiscard]] constexpr Id operator-(Id id, std::int32_t places) noexcept {
  return static_cast<Id>(number(id) - places);
}
/// The distance between two ids.
template <identifier Id>
[[nodiscard]] constexpr std::int32_t operator-(Id a, Id b) noexcept {
  return number(a) - number(b);
}
/// The number as text.
template <identifier Id>
[[nodiscard]] std::string to_string(Id id) {
  return std::to_string(number(id));
}

/// Writes the number to a text stream.
template <class Stream, identifier Id>
  requires requires { typename Stream::char_type; }
auto& operator<<(Stream& out, Id id) { return out << std::int32_t{number(id)}; }
/// Lets fmt print the number.
template <identifier Id>
[[nodiscard]] constexpr std::int32_t format_as(Id id) noexcept {
  return number(id);
}

/// The ids 0, 1, ..., count - 1; empty if the count is negative.
template <identifier Id>
class id_range {
 public:
  /// Iterates in ascending order.
  class iterator {
   public:
    using value_type = Id;
    using difference_type = std::ptrdiff_t;

    constexpr iterator() noexcept = default;
    constexpr explicit iterator(std::int64_t at) noexcept : at_(at) {}
    [[nodiscard]] constexpr Id operator*() const noexcept { return static_cast<Id>(at_); }
    constexpr iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    constexpr iterator operator++(int) noexcept { return iterator(at_++); }
    friend constexpr bool operator==(iterator, iterator) noexcept = default;

   private:
    std::int64_t at_ = 0;
  };

  constexpr explicit id_range(std::int64_t count) noexcept : count_(count < 0 ? 0 : count) {}
  [[nodiscard]] static constexpr iterator begin() noexcept { return iterator(0); }
  [[nodiscard]] constexpr iterator end() const noexcept { return iterator(count_); }

 private:
  std::int64_t count_;
};
/// Range for a loop: `for (const auto layer : each<layer_id>(shape.layers))`.
template <identifier Id>
[[nodiscard]] constexpr id_range<Id> each(std::integral auto count) noexcept {
  return id_range<Id>(static_cast<std::int64_t>(count));
}

/// Literals for ids.
inline namespace literals {
/// A layer: `3_layer`.
[[nodiscard]] constexpr layer_id operator""_layer(unsigned long long n) noexcept {
  return static_cast<layer_id>(n);
}
/// An expert: `3_expert`.
[[nodiscard]] constexpr expert_id operator""_expert(unsigned long long n) noexcept {
  return static_cast<expert_id>(n);
}
/// A slot: `3_slot`.
[[nodiscard]] constexpr slot_id operator""_slot(unsigned long long n) noexcept {
  return static_cast<slot_id>(n);
}
/// A pool: `3_pool`.
[[nodiscard]] constexpr pool_id operator""_pool(unsigned long long n) noexcept {
  return static_cast<pool_id>(n);
}
/// A size class: `3_size_class`.
[[nodiscard]] constexpr size_class_id operator""_size_class(unsigned long long n) noexcept {
  return static_cast<size_class_id>(n);
}
/// A precision: `3_precision`.
[[nodiscard]] constexpr precision_id operator""_precision(unsigned long long n) noexcept {
  return static_cast<precision_id>(n);
}
}  // namespace literals

/// The slot of an absent expert.
inline constexpr slot_id no_slot{-1};
/// The id in a routed place without an expert.
inline constexpr expert_id no_expert{-1};
/// The position of a step before its first layer.
inline constexpr layer_id before_layers{-1};

/// Number of layers of a step up to and including this one; 0 for before_layers.
[[nodiscard]] constexpr std::size_t layers_until(layer_id layer) noexcept {
  return static_cast<std::size_t>(layer - before_layers);
}

/// One expert of one layer.
struct expert_key {
  layer_id layer = before_layers;
  expert_id expert = no_expert;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
  friend constexpr auto operator<=>(const expert_key&, const expert_key&) = default;
};

/// The key of a slot that holds nothing.
inline constexpr expert_key no_key{};

/// Encodes a step as a mark in which 0 means never. The largest step shares its mark with the one before it.
[[nodiscard]] constexpr step_id mark_of(step_id step) noexcept {
  return step == ~step_id{0} ? step : step + 1;
}

/// Kind of work that a visit serves.
enum class request_class : std::uint8_t {
  decode = 0,   ///< one new token for each sequence
  prefill = 1,  ///< the tokens of a prompt
  verify = 2,   ///< drafted tokens of speculative decoding
};

/// Names of request classes in files and reports, ordered by number.
inline constexpr std::array<std::pair<request_class, const char*>, 3> request_classes{
    {{request_class::decode, "decode"},
     {request_class::prefill, "prefill"},
     {request_class::verify, "verify"}}};

/// Returns "decode", "prefill" or "verify".
[[nodiscard]] constexpr const char* name_of(request_class kind) noexcept {
  return request_classes[static_cast<std::size_t>(kind)].second;
}

}  // namespace hotset
