// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files that are open for reading, and experts whose tensors lie in them: read when they are copied, no page is
/// mapped.

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
#include "hotset/transfer/expert_source.hpp"

namespace hotset {

/// A file that is open for reading, by the calls of POSIX, and closed at its end. Threads: reads are safe.
class posix_file {
 public:
  /// `direct`: past the system's cache. Errors: it is not there, may not be read, is no file, or (direct) its file
  /// system reads through the cache alone.
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
  /// The system's handle, for other calls that read.
  [[nodiscard]] int descriptor() const noexcept { return handle_; }
  /// Calls pread. Returns how many bytes were read, 0 at the end, or -1 with errno.
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    return ::pread(handle_, to.data(), to.size(), static_cast<::off_t>(at));
  }

 private:
  posix_file(std::string path, int handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  int handle_ = -1;
  std::uint64_t size_ = 0;
};

/// Things of which each read borrows one; more reads wait. Threads: safe. No allocation but by `add`.
template <class T>
class lending_pool {
 public:
  void add(T thing) { free_.push_back(std::move(thing)); }
  /// A thing for one read; its end returns it.
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
        from_.free_.push_back(std::move(thing_));  // there is room: it came from here
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

/// Where the bytes of one tensor of one expert lie.
struct file_extent {
  std::size_t file = 0;  ///< of the source's files
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// How files are read.
enum class file_reads : std::uint8_t {
  cached,  ///< the system keeps what it read as long as it has memory
  direct,  ///< past the system's cache: what the slots hold is not held twice
};

/// Reads block the thread that copies. Of a file that is too short, or that the device cannot read, the copy fails and `problem` says
/// why; nothing is made up. Threads: reads are safe, `add` is not beside them. No allocation after construction but by `problem`.
/// Memory: 32 bytes for each tensor of each expert, and where reads are direct 1 MiB for each that may run beside another.
template <class File = posix_file>
class basic_file_expert_source {
 public:
  /// A file that does not let itself be read directly is refused. Errors: a shape that does not validate; a file that cannot be opened.
  /// `beside`: direct reads at one time, such as the threads of the backend; more wait.
  static result<basic_file_expert_source> open(const geometry& shape,
                                               const std::vector<std::string>& paths,
                                               file_reads how = file_reads::cached,
                                               std::size_t beside = 1) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (paths.empty()) return error{"experts in no file, accepted: one file or more"};
    if (beside == 0 || beside > most_beside)
      return refusal(beside, " reads beside each other, accepted: 1..", most_beside);
    basic_file_expert_source out(shape, how, beside);
    for (const auto& path : paths) {
      auto file = File::open(path, how == file_reads::direct);
      if (!file) return file.error();
      out.files_.push_back(*std::move(file));
    }
    return out;
  }

  /// Says where an expert lies, its tensors in layout order. Errors: no such expert or precision; 0 or more than 8 tensors, or one
  /// of 0 bytes; an extent beyond its file, which then is not the whole of what it should be.
  validation add(expert_key key, precision_id precision, std::span<const file_extent> tensors) {
    const auto what = "layer " + to_string(key.layer) + ", expert " + to_string(key.expert);
    if (!shape_.contains(key) || index_of(precision) >= shape_.precisions())
      return refusal(what, " at precision ", precision, " is outside the model");
    if (tensors.empty() || tensors.size() > expert_layout::max_tensors)
      return refusal(what, " of ", tensors.size(), " tensors, accepted: 1..",
                     expert_layout::max_tensors);
    for (const auto& one : tensors) {
      if (one.file >= files_.size())
        return refusal(what, " in file ", one.file, ", accepted: 0..", files_.size() - 1);
      const auto size = files_[one.file].size();
      if (one.bytes == 0 || one.offset > size || one.bytes > size - one.offset)
        return refusal(what, " at ", one.offset, ", ", one.bytes, " bytes of ",
                       files_[one.file].path(), ", accepted: 1 or more of its ", size);
    }
    const auto at = place_of(key, precision);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      where_[at * expert_layout::max_tensors + t] = tensors[t];
      sizes_[at * expert_layout::max_tensors + t] = tensors[t].bytes;
    }
    counts_[at] = static_cast<std::uint8_t>(tensors.size());
    return std::nullopt;
  }

  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id precision) const noexcept {
    if (!shape_.contains(key) || index_of(precision) >= shape_.precisions()) return {};
    const auto at = place_of(key, precision);
    return {sizes_.data() + at * expert_layout::max_tensors, counts_[at]};
  }
  [[nodiscard]] bool read(expert_key key, precision_id precision, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept {
    const auto& start = where_[place_of(key, precision) * expert_layout::max_tensors + tensor];
    const auto& file = files_[start.file];
    const auto from = start.offset + at;
    return how_ == file_reads::direct ? read_blocks(file, from, to) : read_all(file, from, to);
  }

  /// Why the last read failed; empty if none has.
  [[nodiscard]] std::string problem() const {
    const std::lock_guard lock(shared_->mutex);
    const auto& last = shared_->last;
    if (last.file == nullptr) return {};
    return "cannot read " + last.file->path() + " at byte " + std::to_string(last.at) + ": " +
           (last.code == 0 ? "it ends there" : std::generic_category().message(last.code));
  }

 private:
  static constexpr std::size_t most_beside = 256;
  static constexpr std::size_t block = 4096;  ///< what direct reads are whole multiples of
  /// A chunk of host_backend, wherever it begins.
  static constexpr std::size_t buffer_bytes = (std::size_t{1} << 20U) + 2 * block;

  struct failure {
    const File* file = nullptr;
    std::uint64_t at = 0;
    int code = 0;  ///< of errno; 0: the file has ended
  };
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept { ::operator delete (p, std::align_val_t{block}); }
  };
  using block_buffer = std::unique_ptr<std::byte[], aligned_delete>;
  /// State that a read may change.
  struct shared_state {
    std::mutex mutex;
    failure last;
    lending_pool<block_buffer> buffers;
  };
  basic_file_expert_source(const geometry& shape, file_reads how, std::size_t beside)
      : shape_(shape),
        how_(how),
        where_(shape.keys() * shape.precisions() * expert_layout::max_tensors),
        sizes_(where_.size(), 0),
        counts_(shape.keys() * shape.precisions(), 0),
        shared_(std::make_unique<shared_state>()) {
    for (std::size_t b = 0; how == file_reads::direct && b < beside; ++b)
      shared_->buffers.add(block_buffer(
          static_cast<std::byte*>(::operator new (buffer_bytes, std::align_val_t{block}))));
  }
  [[nodiscard]] std::size_t place_of(expert_key key, precision_id precision) const noexcept {
    return index_of(precision) * shape_.keys() + shape_.index(key);
  }

  bool read_all(const File& file, std::uint64_t at, std::span<std::byte> to) const noexcept {
    return read_some(file, at, to, to.size()) >= to.size();
  }
  /// At least `needed` bytes, unless it fails or the file ends; returns how many. A call that was interrupted, or read less than it was asked
  /// for, goes on.
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
  /// Whole blocks come into the buffer, and what is wanted of them to where it belongs.
  bool read_blocks(const File& file, std::uint64_t at, std::span<std::byte> to) const noexcept {
    typename lending_pool<block_buffer>::borrowed taken(shared_->buffers);
    const std::span<std::byte> buffer((*taken).get(), buffer_bytes);
    while (!to.empty()) {
      const auto ahead = static_cast<std::size_t>(at % block);
      const auto wanted = std::min(to.size(), buffer_bytes - ahead);
      const auto whole = (ahead + wanted + block - 1) / block * block;
      // A read that stops within a block cannot go on there: it is made again from that block's start. One that comes no further
      // twice has met the end of the file.
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

  geometry shape_;
  file_reads how_;
  std::vector<File> files_;
  std::vector<file_extent> where_;    ///< [precisions][keys][max_tensors]
  std::vector<std::uint64_t> sizes_;  ///< likewise
  std::vector<std::uint8_t> counts_;  ///< [precisions][keys]; 0: absent
  std::unique_ptr<shared_state> shared_;
};

/// Over the calls of POSIX.
using file_expert_source = basic_file_expert_source<>;
static_assert(expert_reader<file_expert_source>);

}  // namespace hotset
