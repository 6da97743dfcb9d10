// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file that is open for reading, by the calls of POSIX.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hotset/core/error.hpp"

namespace hotset {

/// Closed at its end. Threads: reads are safe.
class posix_file {
 public:
  /// `direct`: past the system's cache. Errors: it is not there, may not be read, is no file, or (direct) its file system reads through
  /// the cache alone.
  static result<posix_file> open(const std::string& path, bool direct) {
    const auto refused = [&](const std::string& why) {
      return error{"cannot open " + path + ": " + why};
    };
#if defined(O_DIRECT)
    const int flags = O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0);
#else
    if (direct) return refused("this system has no direct reads, accepted: cached ones");
    const int flags = O_RDONLY | O_CLOEXEC;
#endif
    posix_file out(path, ::open(path.c_str(), flags));
    if (out.handle_ < 0 && direct && errno == EINVAL)
      return refused("its file system has no direct reads, accepted: cached ones");
    struct stat about {};
    if (out.handle_ < 0 || ::fstat(out.handle_, &about) != 0)
      return refused(std::generic_category().message(errno));
    if (!S_ISREG(about.st_mode)) return refused("it is no file");
    out.size_ = static_cast<std::uint64_t>(about.st_size);
    return out;
  }
  posix_file(posix_file&& other) noexcept
      : path_(std::move(other.path_)),
        handle_(std::exchange(other.handle_, -1)),
        size_(other.size_) {}
  posix_file& operator=(posix_file&&) = delete;
  ~posix_file() {
    if (handle_ >= 0) ::close(handle_);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// When it was opened. Units: bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Of the system, for other calls that read.
  [[nodiscard]] int descriptor() const noexcept { return handle_; }
  /// As pread: how many bytes were read, 0 at the end, or -1 with errno.
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    return ::pread(handle_, to.data(), to.size(), static_cast<::off_t>(at));
  }

 private:
  posix_file(std::string path, int handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  int handle_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace hotset
