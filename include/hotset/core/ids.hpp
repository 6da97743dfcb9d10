// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The identifiers that every part shares; all are dense and start at zero.

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

// Each is a type of its own with the bits of its number: a row of slots is uploaded as it is, and a layer is never
// taken for a pool.

/// Index of a MoE layer in execution order (dense layers are not counted).
enum class layer_id : std::int32_t {};
/// Router's index of an expert within its layer. Negative: no expert.
enum class expert_id : std::int32_t {};
/// Global index of a slot. -1: no slot, which is also what a map row holds for an absent expert.
enum class slot_id : std::int32_t {};
/// Index of a pool of slots (one for all layers, or one per layer, or one per size class).
enum class pool_id : std::int32_t {};
/// Index of a class of experts with equal tensor layout.
enum class size_class_id : std::int32_t {};
/// Stored precision of an expert; 0 is the highest.
enum class precision_id : std::uint8_t {};
/// Number of a forward pass; grows by one each step.
using step_id = std::uint64_t;
/// One request's tokens, from its prompt to its end.
using sequence_id = std::uint32_t;

/// A number that is the index of one kind of thing, and of no other.
template <class T>
concept identifier =
    std::same_as<T, layer_id> || std::same_as<T, expert_id> || std::same_as<T, slot_id> ||
    std::same_as<T, pool_id> || std::same_as<T, size_class_id> || std::same_as<T, precision_id>;

/// The number itself: to print it, to write it to a file, to compare it with a count.
template <identifier Id>
[[nodiscard]] HOTSET_HOST_DEVICE constexpr std::underlying_type_t<Id> number(Id id) noexcept {
  return static_cast<std::underlying_type_t<Id>>(id);
}
/// The number as a subscript. Pre: not negative.
template <identifier Id>
[[nodiscard]] HOTSET_HOST_DEVICE constexpr std::size_t index_of(Id id) noexcept {
  return static_cast<std::size_t>(id);
}
/// An id compares with a plain number, such as a count of its kind; with another kind it does not.
template <identifier Id>
[[nodiscard]] constexpr bool operator==(Id id, std::integral auto n) noexcept {
  return std::int64_t{number(id)} == static_cast<std::int64_t>(n);
}
/// An id and a plain number are ordered as numbers.
template <identifier Id>
[[nodiscard]] constexpr std::strong_ordering operator<=>(Id id, std::integral auto n) noexcept {
  return std::int64_t{number(id)} <=> static_cast<std::int64_t>(n);
}
/// 0 <= id < count.
template <identifier Id>
[[nodiscard]] constexpr bool is_within(Id id, std::integral auto count) noexcept {
  return id >= 0 && id < count;
}
/// The next one.
template <identifier Id>
constexpr Id& operator++(Id& id) noexcept {
  return id = static_cast<Id>(number(id) + 1);
}
/// The next one; returns the id before.
template <identifier Id>
constexpr Id operator++(Id& id, int) noexcept {
  const Id before = id;
  ++id;
  return before;
}
/// The id that many places after it.
template <identifier Id>
[[nodiscard]] constexpr Id operator+(Id id, std::int32_t places) noexcept {
  return static_cast<Id>(number(id) + places);
}
/// The id that many places before it.
template <identifier Id>
[[nodiscard]] constexpr Id operator-(Id id, std::int32_t places) noexcept {
  return static_cast<Id>(number(id) - places);
}
/// How many places lie between two.
template <identifier Id>
[[nodiscard]] constexpr std::int32_t operator-(Id a, Id b) noexcept {
  return number(a) - number(b);
}
/// The number in text.
template <identifier Id>
[[nodiscard]] std::string to_string(Id id) {
  return std::to_string(number(id));
}

/// In a stream of text.
template <class Stream, identifier Id>
  requires requires { typename Stream::char_type; }
auto& operator<<(Stream& out, Id id) { return out << std::int32_t{number(id)}; }
/// The number that fmt prints.
template <identifier Id>
[[nodiscard]] constexpr std::int32_t format_as(Id id) noexcept {
  return number(id);
}

/// The ids 0, 1, ..., count - 1; none of a negative count.
template <identifier Id>
class id_range {
 public:
  /// Counts upwards.
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
/// For a loop: `for (const auto layer : each<layer_id>(shape.layers))`.
template <identifier Id>
[[nodiscard]] constexpr id_range<Id> each(std::integral auto count) noexcept {
  return id_range<Id>(static_cast<std::int64_t>(count));
}

/// Ids that are written down.
inline namespace literals {
/// A layer, such as `3_layer`.
[[nodiscard]] constexpr layer_id operator""_layer(unsigned long long n) noexcept {
  return static_cast<layer_id>(n);
}
/// An expert, such as `3_expert`.
[[nodiscard]] constexpr expert_id operator""_expert(unsigned long long n) noexcept {
  return static_cast<expert_id>(n);
}
/// A slot, such as `3_slot`.
[[nodiscard]] constexpr slot_id operator""_slot(unsigned long long n) noexcept {
  return static_cast<slot_id>(n);
}
/// A pool, such as `3_pool`.
[[nodiscard]] constexpr pool_id operator""_pool(unsigned long long n) noexcept {
  return static_cast<pool_id>(n);
}
/// A size class, such as `3_size_class`.
[[nodiscard]] constexpr size_class_id operator""_size_class(unsigned long long n) noexcept {
  return static_cast<size_class_id>(n);
}
/// A precision, such as `3_precision`.
[[nodiscard]] constexpr precision_id operator""_precision(unsigned long long n) noexcept {
  return static_cast<precision_id>(n);
}
}  // namespace literals

/// The slot of an absent expert.
inline constexpr slot_id no_slot{-1};
/// The id in a place without an expert.
inline constexpr expert_id no_expert{-1};
/// Where a step is before its first layer.
inline constexpr layer_id before_layers{-1};

/// How many layers of a step are done with this one: 0 before the first.
[[nodiscard]] constexpr std::size_t layers_until(layer_id layer) noexcept {
  return static_cast<std::size_t>(layer - before_layers);
}

/// One expert of one layer.
struct expert_key {
  layer_id layer = before_layers;
  expert_id expert = no_expert;
  friend constexpr auto operator<=>(const expert_key&, const expert_key&) = default;
};

/// The key of a slot that holds nothing.
inline constexpr expert_key no_key{};

/// A step as a mark of which 0 says never. The last step of all has the mark of the one before it.
[[nodiscard]] constexpr step_id mark_of(step_id step) noexcept {
  return step == ~step_id{0} ? step : step + 1;
}

/// The kind of work that a visit serves.
enum class request_class : std::uint8_t {
  decode = 0,   ///< one new token per sequence
  prefill = 1,  ///< the tokens of a prompt
  verify = 2,   ///< drafted tokens of speculative decoding
};

/// Names of the classes of requests in files and reports, in the order of their numbers.
inline constexpr std::array<std::pair<request_class, const char*>, 3> request_classes{
    {{request_class::decode, "decode"},
     {request_class::prefill, "prefill"},
     {request_class::verify, "verify"}}};

/// "decode", "prefill", "verify".
[[nodiscard]] constexpr const char* name_of(request_class kind) noexcept {
  return request_classes[static_cast<std::size_t>(kind)].second;
}

}  // namespace hotset
