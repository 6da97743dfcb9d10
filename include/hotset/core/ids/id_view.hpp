// SPDX-License-Identifier: Apache-2.0
#pragma once
/// View of ids in memory that the engine may own: plain 32-bit integers, or ids.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <ranges>

#include "hotset/core/ids.hpp"

namespace hotset {

namespace detail {
template <class Range, class Element>
concept array_of = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::same_as<std::ranges::range_value_t<Range>, Element>;
template <class Range, class Id>
concept array_of_ids = array_of<Range, std::int32_t> || array_of<Range, Id>;
/// Accepts integers that are not int32.
template <class Range>
concept array_of_numbers_other_than_int32 =
    std::ranges::contiguous_range<Range> && std::integral<std::ranges::range_value_t<Range>> &&
    !std::same_as<std::ranges::range_value_t<Range>, std::int32_t>;
}  // namespace detail

/// Converts plain integers to ids without a copy. An array of another kind of id does not compile. Owns nothing. Reads
/// each id bytewise, because the strict-aliasing rule treats int32 and an id as different types.
template <identifier Id>
  requires(sizeof(Id) == sizeof(std::int32_t))
class id_view {
 public:
  /// A forward iterator.
  class iterator {
   public:
    using iterator_concept = std::forward_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Id;

    constexpr iterator() noexcept = default;
    explicit iterator(const std::byte* at) noexcept : at_(at) {}

    [[nodiscard]] Id operator*() const noexcept { return load(at_); }
    iterator& operator++() noexcept {
      at_ += sizeof(Id);
      return *this;
    }
    iterator operator++(int) noexcept {
      const auto before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(iterator, iterator) noexcept = default;

   private:
    const std::byte* at_ = nullptr;
  };

  using value_type = Id;
  using const_iterator = iterator;

  constexpr id_view() noexcept = default;
  template <detail::array_of_ids<Id> Range>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): implicit, like std::span
  constexpr id_view(Range&& ids) noexcept {
    at_ = std::ranges::data(ids);
    size_ = std::ranges::size(ids);
  }

  /// Only int32 arrays convert to ids; other widths are refused at compile time.
  template <detail::array_of_numbers_other_than_int32 Range>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): implicit, like std::span
  id_view(Range&& ids_are_int32) = delete;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  /// Address of size() 32-bit integers.
  [[nodiscard]] constexpr const void* data() const noexcept { return at_; }
  /// Pre: i < size().
  [[nodiscard]] Id operator[](std::size_t i) const noexcept {
    return load(bytes() + i * sizeof(Id));
  }
  [[nodiscard]] Id front() const noexcept { return (*this)[0]; }
  [[nodiscard]] iterator begin() const noexcept { return iterator(bytes()); }
  [[nodiscard]] iterator end() const noexcept { return iterator(bytes() + size_ * sizeof(Id)); }
  /// Pre: offset + count <= size().
  [[nodiscard]] id_view subspan(std::size_t offset, std::size_t count) const noexcept {
    id_view part;
    part.at_ = bytes() + offset * sizeof(Id);
    part.size_ = count;
    return part;
  }
  [[nodiscard]] id_view subspan(std::size_t offset) const noexcept {
    return subspan(offset, size_ - offset);
  }
  [[nodiscard]] id_view first(std::size_t count) const noexcept { return subspan(0, count); }
  /// Copies all ids to `out`. Pre: `out` has room for size() ids and does not overlap them.
  void copy_to(Id* out) const noexcept {
    if (size_ != 0) std::memcpy(out, at_, size_ * sizeof(Id));
  }

 private:
  static Id load(const std::byte* at) noexcept {
    Id id;
    std::memcpy(&id, at, sizeof id);
    return id;
  }
  [[nodiscard]] const std::byte* bytes() const noexcept {
    return static_cast<const std::byte*>(at_);
  }

  const void* at_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hotset

/// An iterator stays valid after its view is destroyed.
template <hotset::identifier Id>
inline constexpr bool std::ranges::enable_borrowed_range<hotset::id_view<Id>> = true;
