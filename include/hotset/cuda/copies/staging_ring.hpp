// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Bounded ring of page-locked pieces through which pageable memory is copied to a device.

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// A piece is overwritten only after the device has read it. Threads: safe.
class staging_ring {
 public:
  /// Page-locks pieces * piece_bytes. Errors: sizes of 0; those of the runtime (nothing is leaked).
  static result<std::unique_ptr<staging_ring>> create(runtime& api, int device, std::size_t pieces,
                                                      std::size_t piece_bytes) {
    if (pieces == 0 || piece_bytes == 0)
      return refusal("a staging ring of ", pieces, " pieces of ", piece_bytes,
                     " bytes, accepted: 1 or more of each");
    const device_scope scope(api, device);
    if (scope.what().happened()) return describe(api, scope.what());
    auto memory = pinned_buffer::allocate(api, pieces * piece_bytes);
    if (!memory) return memory.error();
    std::unique_ptr<staging_ring> made(new (std::nothrow)
                                           staging_ring(api, *std::move(memory), piece_bytes));
    if (!made) return error{"no host memory for a staging ring"};
    auto events = create_events(api, device, pieces);
    if (!events) return events.error();
    for (std::size_t i = 0; i < pieces; ++i) made->pieces_[i].read = std::move((*events)[i]);
    return made;
  }
  staging_ring(const staging_ring&) = delete;
  staging_ring& operator=(const staging_ring&) = delete;
  /// Waits until the device has read every piece.
  ~staging_ring() { drain(); }

  [[nodiscard]] std::size_t piece_bytes() const noexcept { return piece_bytes_; }

  /// Writes bytes into the next piece and enqueues its copy to the device. Blocks until the device has read the
  /// piece's previous bytes. Pre: from.size() <= piece_bytes().
  bool copy(std::span<const std::byte> from, void* to, stream_handle stream,
            sticky_failure& failures) noexcept {
    auto& piece = next();
    const std::lock_guard busy(piece.mutex);
    if (piece.in_use &&
        !failures.note(api_.synchronize_event(piece.read.get()), "cudaEventSynchronize"))
      return false;
    std::ranges::copy(from, piece.memory);
    piece.in_use = false;
    if (!failures.note(api_.copy({to, piece.memory, from.size()}, stream), "cudaMemcpyAsync"))
      return false;
    piece.in_use = failures.note(api_.record_event(piece.read.get(), stream), "cudaEventRecord");
    return piece.in_use;
  }
  /// Waits until the device has read every piece or has failed.
  void drain() noexcept {
    for (auto& piece : pieces_) {
      const std::lock_guard busy(piece.mutex);
      if (piece.in_use) (void)api_.synchronize_event(piece.read.get());
      piece.in_use = false;
    }
  }

 private:
  struct ring_piece {
    std::mutex mutex{};  ///< held while the piece is filled
    std::byte* memory = nullptr;
    owned_event read{};
    bool in_use = false;  ///< `read` was recorded after its last copy
  };

  staging_ring(runtime& api, pinned_buffer memory, std::size_t piece_bytes)
      : api_(api),
        memory_(std::move(memory)),
        piece_bytes_(piece_bytes),
        pieces_(memory_.bytes().size() / piece_bytes) {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      pieces_[i].memory = memory_.bytes().data() + i * piece_bytes;
  }
  ring_piece& next() noexcept {
    const std::lock_guard lock(mutex_);
    return pieces_[turn_++ % pieces_.size()];
  }

  runtime& api_;
  pinned_buffer memory_;
  std::size_t piece_bytes_;
  std::vector<ring_piece> pieces_;
  std::mutex mutex_;
  std::size_t turn_ = 0;
};

}  // namespace hotset::cuda
