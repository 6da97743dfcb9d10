// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file that is read by io_uring: the pieces of one read are all on their way to the device at once.

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <liburing.h>

#include "hotset/core/error.hpp"
#include "hotset/transfer/file_expert_source.hpp"

// ThreadSanitizer sees what pread writes, and nothing of what the kernel writes for a ring.
#if defined(__SANITIZE_THREAD__)
#define HOTSET_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOTSET_THREAD_SANITIZER 1
#endif
#endif
#if !defined(HOTSET_THREAD_SANITIZER)
#define HOTSET_THREAD_SANITIZER 0
#endif
#if HOTSET_THREAD_SANITIZER
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
extern "C" void __tsan_write_range(void* from, unsigned long bytes);
#endif

namespace hotset {

/// A `File` of basic_file_expert_source. Threads: reads are safe; `rings` of them run beside each other, more wait.
class uring_file {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{128}
                                             << 10U;  ///< of a read, the last one less
  static constexpr unsigned depth = 16;               ///< pieces on their way at once
  static constexpr std::size_t rings = 4;

  /// As posix_file::open. Errors: its own; a system that has no io_uring, or forbids it.
  static result<uring_file> open(const std::string& path, bool direct) {
    auto file = posix_file::open(path, direct);
    if (!file) return file.error();
    auto shared = std::make_unique<shared_state>();
    for (std::size_t r = 0; r < rings; ++r) {
      int code = 0;
      shared->free_rings.push_back(make_ring(code));
      if (code != 0)
        return error{"cannot read " + path + " by io_uring: " +
                     std::generic_category().message(code) + ", accepted: plain reads"};
    }
    return uring_file(*std::move(file), std::move(shared));
  }

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// When it was opened. Units: bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
  /// As pread: how many bytes from the first one on were read, 0 at the end, or -1 with errno.
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    const borrowed ring(*shared_);
    if (ring.code() != 0) {
      errno = ring.code();
      return -1;
    }
    std::size_t done = 0;
    while (done < to.size()) {
      const auto part = to.subspan(done, std::min(to.size() - done, piece_bytes * depth));
      const auto got = read_part(*ring, at + done, part);
      if (got < 0 && done == 0) {
        errno = static_cast<int>(-got);
        return -1;
      }
      if (got > 0) done += static_cast<std::size_t>(got);
      // What is behind an error or a short piece is asked for again by the caller, who then meets the reason.
      if (got < 0 || static_cast<std::size_t>(got) < part.size()) break;
    }
    return static_cast<std::ptrdiff_t>(done);
  }

 private:
  struct ring_end {
    void operator()(io_uring* ring) const noexcept {
      ::io_uring_queue_exit(ring);
      delete ring;
    }
  };
  using ring_handle = std::unique_ptr<io_uring, ring_end>;
  struct shared_state {
    std::mutex mutex;
    std::condition_variable returned;
    std::vector<ring_handle> free_rings;  ///< null: to be made anew
  };
  /// Null, and an errno in `code`, if the system refuses one.
  static ring_handle make_ring(int& code) noexcept {
    std::unique_ptr<io_uring> ring(new (std::nothrow) io_uring);
    code = ring == nullptr ? ENOMEM : -::io_uring_queue_init(depth, ring.get(), 0);
    return ring_handle(code == 0 ? ring.release() : nullptr);
  }
  /// A ring for one read; its end gives it back.
  class borrowed {
   public:
    explicit borrowed(shared_state& from) noexcept : from_(from) {
      std::unique_lock lock(from_.mutex);
      from_.returned.wait(lock, [&] { return !from_.free_rings.empty(); });
      ring_ = std::move(from_.free_rings.back());
      from_.free_rings.pop_back();
      lock.unlock();
      if (ring_ == nullptr) ring_ = make_ring(code_);
    }
    borrowed(const borrowed&) = delete;
    borrowed& operator=(const borrowed&) = delete;
    ~borrowed() {
      // The ring would submit this piece with the next read, after its buffer is freed.
      if (ring_ != nullptr && ::io_uring_sq_ready(ring_.get()) != 0) ring_.reset();
      {
        const std::lock_guard lock(from_.mutex);
        from_.free_rings.push_back(std::move(ring_));  // there is room: it came from here
      }
      from_.returned.notify_one();
    }
    /// 0, or why there is no ring.
    [[nodiscard]] int code() const noexcept { return code_; }
    [[nodiscard]] io_uring& operator*() const noexcept { return *ring_; }

   private:
    shared_state& from_;
    ring_handle ring_;
    int code_ = 0;
  };

  uring_file(posix_file file, std::unique_ptr<shared_state> shared)
      : file_(std::move(file)), shared_(std::move(shared)) {}

  /// Bytes from the first one on, or a negative errno if there are none. Pre: to.size() <= piece_bytes * depth.
  /// Returns when nothing is on its way any more, for the bytes of `to` are the caller's then.
  std::ptrdiff_t read_part(io_uring& ring, std::uint64_t at,
                           std::span<std::byte> to) const noexcept {
    const auto pieces = (to.size() + piece_bytes - 1) / piece_bytes;
    for (std::size_t p = 0; p < pieces; ++p) {
      const auto piece =
          to.subspan(p * piece_bytes, std::min(piece_bytes, to.size() - p * piece_bytes));
      auto* const entry = ::io_uring_get_sqe(&ring);  // never null: the ring is empty and as deep
      ::io_uring_prep_read(entry, file_.descriptor(), piece.data(),
                           static_cast<unsigned>(piece.size()), at + p * piece_bytes);
      ::io_uring_sqe_set_data64(entry, p);
    }
    std::array<std::int32_t, depth> results{};
    for (std::size_t waited = 0, sent = 0; waited < pieces;) {
      if (sent < pieces) {
        const int taken = ::io_uring_submit(&ring);
        if (taken > 0)
          sent += static_cast<std::size_t>(taken);
        else if (waited == sent && taken != -EINTR)  // nothing is on its way that could make room
          return taken == 0 ? -EAGAIN : taken;
      }
      io_uring_cqe* done = nullptr;
      if (waited == sent || ::io_uring_wait_cqe(&ring, &done) < 0) continue;  // interrupted
      results[static_cast<std::size_t>(done->user_data)] = done->res;
      ::io_uring_cqe_seen(&ring, done);
      ++waited;
    }
    const auto done = whole_prefix(std::span(results).first(pieces), to.size());
#if HOTSET_THREAD_SANITIZER
    if (done > 0) __tsan_write_range(to.data(), static_cast<std::size_t>(done));
#endif
    return done;
  }
  static std::ptrdiff_t whole_prefix(std::span<const std::int32_t> results,
                                     std::size_t bytes) noexcept {
    std::size_t done = 0;
    for (const auto got : results) {
      if (got < 0) return done == 0 ? got : static_cast<std::ptrdiff_t>(done);
      done += static_cast<std::size_t>(got);
      if (static_cast<std::size_t>(got) < std::min(piece_bytes, bytes)) break;
      bytes -= static_cast<std::size_t>(got);
    }
    return static_cast<std::ptrdiff_t>(done);
  }

  posix_file file_;
  std::unique_ptr<shared_state> shared_;
};

/// Over io_uring.
using uring_expert_source = basic_file_expert_source<uring_file>;
static_assert(expert_reader<uring_expert_source>);

}  // namespace hotset
