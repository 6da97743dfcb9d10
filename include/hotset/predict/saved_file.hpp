// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files with the learned state of predictors: eight characters for the kind, then numbers of 4 bytes, little-endian.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/core/text/names.hpp"

namespace hotset::detail {

/// The first eight characters of a kind of file.
using file_kind = char[8];

/// FNV-1a hash.
[[nodiscard]] inline std::uint64_t fnv_1a(std::span<const std::byte> bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto b : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3U;
  return hash;
}

/// Appends integers and floats.
class saved_writer {
 public:
  /// `numbers`: how many will follow.
  saved_writer(const file_kind& kind, std::size_t numbers) {
    bytes_.reserve(sizeof kind + 4 * numbers);
    for (const char c : kind) bytes_.push_back(static_cast<std::byte>(c));
  }
  template <class Number>
  void add(Number n) {
    if constexpr (std::same_as<Number, float>)
      save_number(std::bit_cast<std::uint32_t>(n), bytes_);
    else
      save_number(static_cast<std::uint32_t>(n), bytes_);
  }
  void add_long(std::uint64_t n) {
    add(n & 0xffffffffU);
    add(n >> 32U);
  }
  template <class Numbers>
  void add_all(const Numbers& numbers) {
    for (const auto n : numbers) add(n);
  }
  /// Appends the checksum of all bytes so far.
  void add_checksum() { add_long(fnv_1a(bytes_)); }
  [[nodiscard]] std::vector<std::byte> take() && noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads a file's numbers by index, from 0. Views the bytes.
class saved_reader {
 public:
  explicit saved_reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  /// Whether the file is of this kind and has at least `least` numbers.
  [[nodiscard]] bool is(const file_kind& kind, std::size_t least) const noexcept {
    return bytes_.size() >= sizeof kind + 4 * least &&
           std::memcmp(bytes_.data(), kind, sizeof kind) == 0;
  }
  /// Errors: a count other than `wanted`, or extra bytes; the message includes `what`.
  [[nodiscard]] validation check_count(std::uint64_t wanted, const std::string& what) const {
    const auto bytes = sizeof(file_kind) + 4 * wanted;
    if (bytes_.size() == bytes) return std::nullopt;
    return refusal(bytes_.size(), " bytes, accepted: ", bytes, " for ", what);
  }
  // Pre: the file has the number.
  [[nodiscard]] std::uint32_t operator[](std::size_t place) const noexcept {
    return saved_number(bytes_, sizeof(file_kind) + 4 * place);
  }
  [[nodiscard]] float real(std::size_t place) const noexcept {
    return std::bit_cast<float>((*this)[place]);
  }
  [[nodiscard]] std::uint64_t whole_long(std::size_t place) const noexcept {
    return (*this)[place] | std::uint64_t{(*this)[place + 1]} << 32U;
  }
  /// Whether the last two numbers are the checksum of the bytes before. Pre: the file has two numbers.
  [[nodiscard]] bool ends_with_checksum() const noexcept {
    return whole_long(bytes_.size() / 4 - 4) == fnv_1a(bytes_.first(bytes_.size() - 8));
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Reads a file and returns load(its bytes). Errors, after the file's name: a file that cannot be read, of more than
/// `most` bytes, or that `load` refuses.
template <class Load>
[[nodiscard]] auto load_file(const std::string& path, std::uint64_t most,
                             const std::string& accepted, Load load)
    -> decltype(load(std::span<const std::byte>())) {
  const auto bytes = file_bytes(path, most, accepted);
  if (!bytes) return bytes.error();
  auto out = load(std::span<const std::byte>(*bytes));
  if (!out) return error{printable(path, 4096) + ": " + out.error().message};
  return out;
}
/// Shares the value that was read; on an error, returns nothing and writes the reason to `trouble`.
template <class T>
[[nodiscard]] std::shared_ptr<const T> shared_or_trouble(result<T> read, std::string& trouble) {
  if (read) return std::make_shared<const T>(*std::move(read));
  trouble = read.error().message;
  return nullptr;
}

}  // namespace hotset::detail
