// SPDX-License-Identifier: Apache-2.0
#pragma once
/// All bytes of an input: a file, mapped read-only into memory, or what a pipe holds.

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

/// What a reader of weights asks of a file: all of it, or its header alone, for a download that was cut short behind it.
enum class file_extent : std::uint8_t { whole, header };
/// Accepted size of the data that a header alone describes. Units: bytes.
inline constexpr std::uint64_t most_described_bytes = std::uint64_t{1} << 48U;

/// While one lives in this thread, what was read from a pipe, a socket or a terminal is kept for whoever opens the
/// same again: it cannot be read twice.
class kept_streams {
 public:
  kept_streams() noexcept;
  ~kept_streams();
  kept_streams(const kept_streams&) = delete;
  kept_streams& operator=(const kept_streams&) = delete;
};

/// Move-only. The mapping lives as long as the object. The file must not be shortened meanwhile: reading
/// past its new end is a bus error, which no reader can turn into an exception.
///
/// Opening a FIFO waits for its writer, and reading it for the end. /dev/stdin and the like are read from where they
/// stand. A stream may hold half of this machine's memory.
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
  /// The same bytes as characters.
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }

 private:
  void* data_ = nullptr;  ///< mapped, or nullptr
  std::size_t size_ = 0;
  std::shared_ptr<const std::vector<std::byte>> stream_;
};

}  // namespace hotset::lab
