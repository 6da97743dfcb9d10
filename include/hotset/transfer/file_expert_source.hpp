// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files opened for reading, and a source that reads experts' tensors from files when they are copied, without mapping
/// pages.

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/transfer/expert_extents.hpp"
#include "hotset/transfer/expert_source.hpp"

namespace hotset {

/// A file opened for reading with POSIX calls; the destructor closes it. Threads: reads are safe.
class posix_file {
 public:
  /// `direct`: bypasses the system's page cache. Errors: the file does not exist, cannot be read, is not a regular
  /// file, or (direct) its file system has no direct reads.
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
    if (!S_ISREG(about.st_mode)) return refused("not a regular file");
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
  /// Size when the file was opened. Units: bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The system's file descriptor, for other read calls.
  [[nodiscard]] int descriptor() const noexcept { return handle_; }
  /// Calls pread. Returns the number of bytes read, 0 at the end of the file, or -1 with errno set.
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    return ::pread(handle_, to.data(), to.size(), static_cast<::off_t>(at));
  }

 private:
  posix_file(std::string path, int handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  int handle_ = -1;
  std::uint64_t size_ = 0;
};

/// Pool of objects. Each read borrows one, and waits if none is free. Threads: safe. Only `add` allocates.
template <class T>
class lending_pool {
 public:
  void add(T thing) { free_.push_back(std::move(thing)); }
  /// An object borrowed for one read. The destructor returns it.
  class borrowed {
   public:
    explicit borrowed(lending_pool& from) noexcept : from_(from) {
      std::unique_lock lock(from_.mutex_);
      from_.returned_.wait(lock, [&] { return !from_.free_.empty(); });
      thing_ = std::move(from_.free_.back());
      from_.free_.pop_back();
    }
    borrowed(const borrowed&) = delete;
    borrowed& operator=(const borrowed&) = delete;
    ~borrowed() {
      {
        const std::lock_guard lock(from_.mutex_);
        // Has capacity, because the object came from here.
        from_.free_.push_back(std::move(thing_));
      }
      from_.returned_.notify_one();
    }
    [[nodiscard]] T& operator*() noexcept { return thing_; }

   private:
    lending_pool& from_;
    T thing_{};
  };

 private:
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<T> free_;
};

/// The way in which files are read.
enum class file_reads : std::uint8_t {
  cached,  ///< through the system's page cache
  direct,  ///< bypasses the page cache, so that bytes held by slots are not cached twice
};

/// Reads block the copying thread. If a file is too short or a read fails, the copy fails and `problem` gives the
/// reason. Threads: reads are safe; `add` must not run beside them. Allocates nothing after construction except in
/// `problem`. Memory: 32 bytes for each tensor of each expert; with direct reads also 1 MiB for each concurrent read.
template <class File = posix_file>
class basic_file_expert_source {
 public:
  /// Opens the files. `beside`: the most direct reads at one time, such as the number of backend threads; more reads
  /// wait. Errors: an invalid shape; a file that cannot be opened; with direct reads, a file without support for them.
  static result<basic_file_expert_source> open(const geometry& shape,
                                               const std::vector<std::string>& paths,
                                               file_reads how = file_reads::cached,
                                               std::size_t beside = 1) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (paths.empty()) return error{"no files, accepted: one file or more"};
    if (beside == 0 || beside > most_beside)
      return refusal("beside = ", beside, ", accepted: 1..", most_beside);
    basic_file_expert_source out(shape, how, beside);
    for (const auto& path : paths) {
      auto file = File::open(path, how == file_reads::direct);
      if (!file) return file.error();
      out.files_.push_back(*std::move(file));
    }
    return out;
  }

  /// Sets the position of an expert's tensors like expert_extents::add. Errors: those of it.
  validation add(expert_key key, precision_id precision, std::span<const file_extent> tensors) {
    return where_.add(key, precision, tensors, files_);
  }

  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id precision) const noexcept {
    return where_.sizes(key, precision);
  }
  [[nodiscard]] bool read(expert_key key, precision_id precision, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept {
    const auto& start = where_.at(key, precision, tensor);
    const auto& file = files_[start.file];
    const auto from = start.offset + at;
    return how_ == file_reads::direct ? read_blocks(file, from, to) : read_whole(file, from, to);
  }

  /// The reason of the last failed read; empty if none has failed.
  [[nodiscard]] std::string problem() const {
    const std::lock_guard lock(shared_->mutex);
    const auto& last = shared_->last;
    if (last.file == nullptr) return {};
    return "cannot read " + last.file->path() + " at byte " + std::to_string(last.at) + ": " +
           (last.code == 0 ? "end of file" : std::generic_category().message(last.code));
  }

 private:
  static constexpr std::size_t most_beside = 256;
  static constexpr std::size_t block = 4096;  ///< direct reads are whole multiples of it
  /// Fits a chunk of host_backend at any offset within a block.
  static constexpr std::size_t buffer_bytes = (std::size_t{1} << 20U) + 2 * block;

  struct failure {
    const File* file = nullptr;
    std::uint64_t at = 0;
    int code = 0;  ///< errno; 0: the end of the file
  };
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept { ::operator delete (p, std::align_val_t{block}); }
  };
  using block_buffer = std::unique_ptr<std::byte[], aligned_delete>;
  /// State that reads may change.
  struct shared_state {
    std::mutex mutex;
    failure last;
    lending_pool<block_buffer> buffers;
  };
  basic_file_expert_source(const geometry& shape, file_reads how, std::size_t beside)
      : how_(how), where_(shape), shared_(std::make_unique<shared_state>()) {
    for (std::size_t b = 0; how == file_reads::direct && b < beside; ++b)
      shared_->buffers.add(block_buffer(
          static_cast<std::byte*>(::operator new (buffer_bytes, std::align_val_t{block}))));
  }

  bool read_whole(const File& file, std::uint64_t at, std::span<std::byte> to) const noexcept {
    return read_some(file, at, to, to.size()) >= to.size();
  }
  /// Reads at least `needed` bytes, unless a read fails or the file ends. Returns the number of bytes read. Continues
  /// after interrupted and short reads.
  std::size_t read_some(const File& file, std::uint64_t at, std::span<std::byte> to,
                        std::size_t needed) const noexcept {
    std::size_t done = 0;
    while (done < needed) {
      const auto got = file.read(at + done, to.subspan(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fail({&file, at + done, got < 0 ? errno : 0});
        break;
      }
      done += static_cast<std::size_t>(got);
    }
    return done;
  }
  /// Reads whole blocks into the buffer and copies the requested bytes from there.
  bool read_blocks(const File& file, std::uint64_t at, std::span<std::byte> to) const noexcept {
    typename lending_pool<block_buffer>::borrowed taken(shared_->buffers);
    const std::span<std::byte> buffer((*taken).get(), buffer_bytes);
    while (!to.empty()) {
      const auto ahead = static_cast<std::size_t>(at % block);
      const auto wanted = std::min(to.size(), buffer_bytes - ahead);
      const auto whole = (ahead + wanted + block - 1) / block * block;
      // A direct read cannot continue within a block, so a short read is repeated from that block's start. Two repeats
      // without progress mean the end of the file.
      std::size_t done = 0;
      int stalls = 0;
      while (done < ahead + wanted) {
        const auto from = done / block * block;
        const auto got = read_some(file, at - ahead + from, buffer.subspan(from, whole - from), 1);
        if (got == 0) return false;
        stalls = from + got > done ? 0 : stalls + 1;
        if (stalls == 2) return fail({&file, at - ahead + done, 0});
        done = std::max(done, from + got);
      }
      std::memcpy(to.data(), buffer.data() + ahead, wanted);
      to = to.subspan(wanted);
      at += wanted;
    }
    return true;
  }
  bool fail(const failure& how) const noexcept {
    const std::lock_guard lock(shared_->mutex);
    shared_->last = how;
    return false;
  }

  file_reads how_;
  std::vector<File> files_;
  expert_extents where_;
  std::unique_ptr<shared_state> shared_;
};

/// A source with POSIX reads.
using file_expert_source = basic_file_expert_source<>;
static_assert(expert_reader<file_expert_source>);

}  // namespace hotset
