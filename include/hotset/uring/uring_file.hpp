// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file read through io_uring: all pieces of a read are under way at once.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <liburing.h>

#include "hotset/core/error.hpp"
#include "hotset/transfer/file_expert_source.hpp"

// ThreadSanitizer sees the writes of pread, but not the kernel's writes for a ring.
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

/// A `File` of basic_file_expert_source. Threads: reads are safe; `rings` of them run in parallel, further ones wait.
class uring_file {
 public:
  /// Bytes in a piece of a read; the last piece may be shorter.
  static constexpr std::size_t piece_bytes = std::size_t{128} << 10U;
  static constexpr unsigned depth = 16;  ///< most pieces under way at once
  static constexpr std::size_t rings = 4;

  /// Opens a file like posix_file::open. Errors: those of posix_file::open; a system that lacks io_uring or forbids
  /// it.
  static result<uring_file> open(const std::string& path, bool direct) {
    auto file = posix_file::open(path, direct);
    if (!file) return file.error();
    auto pool = std::make_unique<ring_pool>();
    for (std::size_t r = 0; r < rings; ++r) {
      auto ring = make_ring();
      if (ring == nullptr)
        return error{"cannot read " + path + " by io_uring: " +
                     std::generic_category().message(errno) + ", accepted: plain reads"};
      pool->add(std::move(ring));
    }
    return uring_file(*std::move(file), std::move(pool));
  }

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// Size when the file was opened. Units: bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
  /// Reads like pread, at most `depth` pieces of the bytes.
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    ring_pool::borrowed taken(*rings_);
    auto& ring = *taken;
    if (ring == nullptr && (ring = make_ring()) == nullptr) return -1;
    const auto got = read_part(*ring, at, to.first(std::min(to.size(), piece_bytes * depth)));
    // A piece that is still queued would be submitted with the next read, after its buffer is freed.
    if (::io_uring_sq_ready(ring.get()) != 0) ring.reset();
    if (got >= 0) return got;
    errno = static_cast<int>(-got);
    return -1;
  }

 private:
  struct ring_end {
    void operator()(io_uring* ring) const noexcept {
      ::io_uring_queue_exit(ring);
      delete ring;
    }
  };
  using ring_handle = std::unique_ptr<io_uring, ring_end>;
  using ring_pool = lending_pool<ring_handle>;  ///< null: to be created again
  /// Returns null, with errno, if the system refuses a ring.
  static ring_handle make_ring() noexcept {
    std::unique_ptr<io_uring> ring(new (std::nothrow) io_uring);
    const int code = ring == nullptr ? ENOMEM : -::io_uring_queue_init(depth, ring.get(), 0);
    if (code == 0) return ring_handle(ring.release());
    errno = code;
    return nullptr;
  }

  uring_file(posix_file file, std::unique_ptr<ring_pool> pool)
      : file_(std::move(file)), rings_(std::move(pool)) {}

  /// Returns the bytes read from the first one on, or a negative errno if there are none. Returns only when nothing
  /// is under way, because the caller then owns the bytes of `to`. Pre: to.size() <= piece_bytes * depth.
  std::ptrdiff_t read_part(io_uring& ring, std::uint64_t at,
                           std::span<std::byte> to) const noexcept {
    const auto pieces = (to.size() + piece_bytes - 1) / piece_bytes;
    for (std::size_t p = 0; p < pieces; ++p) {
      const auto piece =
          to.subspan(p * piece_bytes, std::min(piece_bytes, to.size() - p * piece_bytes));
      // Never null: the ring is empty and has `depth` entries.
      auto* const entry = ::io_uring_get_sqe(&ring);
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
        else if (waited == sent && taken != -EINTR)  // nothing under way could make room
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
  std::unique_ptr<ring_pool> rings_;
};

/// An expert source that reads through io_uring.
using uring_expert_source = basic_file_expert_source<uring_file>;
static_assert(expert_reader<uring_expert_source>);

}  // namespace hotset
