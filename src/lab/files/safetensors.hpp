// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A safetensors file, mapped: named arrays, all checked on opening.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lab/files/mapped_file.hpp"

namespace hotset::lab {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// Move-only; views stay valid while the object, or the object that it was moved to, lives.
///
/// Checked on opening: the header's length and JSON; every name (no duplicates), dtype, shape and offset pair; sizes
/// equal shape x dtype; the tensors cover the data without overlap or hole.
class safetensors_file {
 public:
  /// bytes may be unaligned: read with copy_elements() or read_unaligned().
  struct tensor {
    std::string_view dtype;  ///< as in the file: "F16", "U32", ...
    std::vector<std::uint64_t> shape;
    std::span<const std::byte> bytes;  ///< empty if the file ends before them
    /// Size by the header: bytes.size() unless the file is truncated.
    std::uint64_t described_bytes = 0;
    std::uint64_t offset = 0;  ///< first byte, relative to the file

    /// Number of elements: the product of shape.
    [[nodiscard]] std::uint64_t elements() const noexcept {
      std::uint64_t count = 1;
      for (const auto extent : shape) count *= extent;
      return count;
    }
  };

  /// `extent`: header accepts a file that ends anywhere after its header.
  /// Errors: trace_error, one line: file, byte offset or tensor name, accepted values.
  explicit safetensors_file(const std::filesystem::path& path,
                            file_extent extent = file_extent::whole);

  /// Returns nullptr if no tensor has that name.
  [[nodiscard]] const tensor* find(std::string_view name) const;
  /// Errors: trace_error if no tensor has that name.
  [[nodiscard]] const tensor& at(std::string_view name) const;
  /// The header's __metadata__; empty if there is none.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }
  /// Names in the order of the data; tensors without bytes at the same offset by name.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Bytes that the header describes and the file lacks.
  [[nodiscard]] std::uint64_t missing_bytes() const noexcept { return missing_; }

 private:
  std::filesystem::path path_;
  mapped_file map_;
  std::map<std::string, tensor, std::less<>> tensors_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> metadata_;
  std::uint64_t missing_ = 0;
};

/// Element i of bytes at any alignment. Pre: (i + 1) * sizeof(T) <= bytes.size().
template <class T>
[[nodiscard]] T read_unaligned(std::span<const std::byte> bytes, std::size_t i) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// All elements of bytes at any alignment; a remainder shorter than T is ignored.
template <class T>
[[nodiscard]] std::vector<T> copy_elements(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

}  // namespace hotset::lab
