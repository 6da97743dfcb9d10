// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The header of a GGUF file, mapped: metadata and tensor descriptions, all checked on opening.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/files/mapped_file.hpp"

namespace hotset::lab {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian here");

/// A type of ggml: elements and bytes of a block.
struct gguf_type {
  std::uint32_t id;
  std::string_view name;
  std::uint32_t block;
  std::uint32_t bytes;
};
[[nodiscard]] std::span<const gguf_type> gguf_types() noexcept;

/// Move-only; views stay valid while the object, or the object that it was moved to, lives.
///
/// Checked on opening: magic and version; every count, length, type and name (no duplicates); alignment; sizes by
/// type and extents; each tensor's range in the file, without overlap.
/// Source: docs/gguf.md of ggml, versions 2 and 3.
class gguf_file {
 public:
  /// Type of a metadata value, with the file's number.
  enum class value_type : std::uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
  };
  /// One scalar, or the elements of an array, as stored in the file.
  struct value {
    value_type type = value_type::u8;  ///< type of each element
    bool is_array = false;
    std::uint64_t count = 1;  ///< number of elements
    std::span<const std::byte> bytes;

    /// Returns element i of booleans and non-negative integers; nothing for other types. Pre: i < count.
    [[nodiscard]] std::optional<std::uint64_t> natural(std::uint64_t i = 0) const noexcept;
    /// Returns the value if it is one string.
    [[nodiscard]] std::optional<std::string_view> text() const noexcept;
  };
  /// Description of one tensor.
  struct tensor {
    std::string name;
    std::string_view type;  ///< ggml's name: "Q4_K", "F16", ...
    /// Fastest dimension first; for stacked experts the last one is their number.
    std::vector<std::uint64_t> dimensions;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  ///< first byte, relative to the file
  };

  /// `extent`: header accepts a file that ends anywhere after its tensor descriptions.
  /// Errors: trace_error, one line: file, byte offset or name, accepted values.
  explicit gguf_file(const std::filesystem::path& path, file_extent extent = file_extent::whole);

  /// Returns nullptr if the key is missing.
  [[nodiscard]] const value* find(std::string_view key) const;
  using metadata_map = std::map<std::string, value, std::less<>>;
  [[nodiscard]] const metadata_map& metadata() const noexcept { return metadata_; }
  /// Tensors in the order of the file.
  [[nodiscard]] const std::vector<tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  /// Bytes that the tensor descriptions name and the file lacks.
  [[nodiscard]] std::uint64_t missing_bytes() const noexcept { return missing_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  class reader;

  std::filesystem::path path_;
  mapped_file map_;
  std::uint32_t version_ = 0;
  std::uint64_t missing_ = 0;
  metadata_map metadata_;
  std::vector<tensor> tensors_;
};

}  // namespace hotset::lab
