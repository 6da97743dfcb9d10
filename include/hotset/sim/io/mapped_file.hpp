// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A whole file, mapped read-only into memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace hotset::inline v0::sim {

/// What a reader of weights asks of a file: all of it, or its header alone, for a download that was cut short behind it.
enum class file_extent : std::uint8_t { whole, header };
/// Accepted size of the data that a header alone describes. Units: bytes.
inline constexpr std::uint64_t most_described_bytes = std::uint64_t{1} << 48U;

/// Move-only. The mapping lives as long as the object. The file must not be shortened meanwhile: reading
/// past its new end is a bus error, which no reader can turn into an exception.
class mapped_file {
 public:
  /// Errors: trace_error if the file cannot be opened, is no regular file, or cannot be mapped.
  explicit mapped_file(const std::filesystem::path& path);
  ~mapped_file();
  mapped_file(mapped_file&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  /// Empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data_), size_};
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hotset::inline v0::sim
