// SPDX-License-Identifier: Apache-2.0
#pragma once
/// All bytes of an input: a file, mapped read-only, or the contents of a pipe.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// Required part of a weights file: all of it, or only the header, so that a truncated download can be read.
enum class file_extent : std::uint8_t { whole, header };
/// Maximum data size that a header alone may describe. Units: bytes.
inline constexpr std::uint64_t most_described_bytes = std::uint64_t{1} << 48U;

/// While one exists in this thread, data read from a pipe, a socket or a terminal is kept, because it cannot be read
/// twice. Opening the same path again returns it.
class kept_streams {
 public:
  kept_streams() noexcept;
  ~kept_streams();
  kept_streams(const kept_streams&) = delete;
  kept_streams& operator=(const kept_streams&) = delete;
};

/// Move-only. The mapping lives as long as the object. The file must not be truncated meanwhile: reading past its new
/// end is a bus error, which no reader can turn into an exception.
///
/// Opening a FIFO waits for its writer, and reading waits for its end. /dev/stdin and similar paths are read from
/// their current position. A stream may take half of this machine's memory.
class mapped_file {
 public:
  /// Errors: trace_error if the path cannot be opened, mapped or read, or is a folder or a device.
  explicit mapped_file(const std::filesystem::path& path);
  ~mapped_file();
  mapped_file(mapped_file&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        stream_(std::move(other.stream_)) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  /// Empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    if (stream_) return *stream_;
    return {static_cast<const std::byte*>(data_), size_};
  }
  /// Returns the bytes as characters.
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }

 private:
  void* data_ = nullptr;  ///< mapped address, or nullptr
  std::size_t size_ = 0;
  std::shared_ptr<const std::vector<std::byte>> stream_;
};

}  // namespace hotset::lab
