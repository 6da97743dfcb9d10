// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies adapters to a device: the uploader of an adapter_registry that uses cuda::virtual_memory.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hotset/adapters/uploader.hpp"
#include "hotset/core/error.hpp"
#include "hotset/cuda/copies/staging_ring.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Bytes go through a ring of page-locked pieces on a separate stream, in parallel with computation.
/// `wait_for_readers` waits only for work that was enqueued to the readers before the call. Threads: one at a time,
/// the registry's.
class adapter_uploader {
 public:
  struct config {
    int device = 0;
    std::size_t pieces = 4;
    std::size_t piece_bytes = std::size_t{4} << 20;
    /// Streams of the device whose kernels read expert maps and weights.
    std::vector<stream_handle> readers{};
  };

  /// `api` and the readers must outlive the uploader. Errors: those of staging_ring; those of the runtime.
  static result<std::unique_ptr<adapter_uploader>> create(runtime& api, const config& setup) {
    auto own = stream::create(api, setup.device, stream_priority::low);
    if (!own) return own.error();
    auto ring = staging_ring::create(api, setup.device, setup.pieces, setup.piece_bytes);
    if (!ring) return ring.error();
    auto passed = create_events(api, setup.device, setup.readers.size());
    if (!passed) return passed.error();
    std::unique_ptr<adapter_uploader> made(new (std::nothrow) adapter_uploader(
        api, setup, *std::move(own), *std::move(ring), *std::move(passed)));
    if (!made) return error{"no host memory for an adapter uploader"};
    return made;
  }
  adapter_uploader(const adapter_uploader&) = delete;
  adapter_uploader& operator=(const adapter_uploader&) = delete;

  /// `from` may be overwritten when this returns. Pre: the spans have equal size.
  bool copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
    const device_scope scope(api_, setup_.device);
    if (!failures_.note(scope.what().code, scope.what().call)) return false;
    while (!from.empty()) {
      const auto bytes = std::min(from.size(), ring_->piece_bytes());
      if (!ring_->copy(from.first(bytes), to.data(), own_.handle(), failures_)) return false;
      from = from.subspan(bytes);
      to = to.subspan(bytes);
    }
    return true;
  }
  bool fence() noexcept {
    if (failures_.note(api_.synchronize_stream(own_.handle()), "cudaStreamSynchronize"))
      return true;
    ring_->drain();  // the caller may unmap next: no copy may be running
    return false;
  }
  /// Also returns false if a reader is being captured: work that a graph launches later cannot be waited for.
  bool wait_for_readers() noexcept {
    for (std::size_t i = 0; i < passed_.size(); ++i)
      if (!mark(setup_.readers[i], passed_[i].get())) return false;
    bool all = true;
    for (const auto& event : passed_)
      all = failures_.note(api_.synchronize_event(event.get()), "cudaEventSynchronize") && all;
    return all;
  }

  /// The first failed call since construction: tells why the registry could not copy or could not wait.
  [[nodiscard]] failure first_failure() const noexcept { return failures_.first(); }

 private:
  adapter_uploader(runtime& api, const config& setup, stream own,
                   std::unique_ptr<staging_ring> ring, std::vector<owned_event> passed)
      : api_(api),
        setup_(setup),
        own_(std::move(own)),
        ring_(std::move(ring)),
        passed_(std::move(passed)) {}

  bool mark(stream_handle reader, event_handle passed) noexcept {
    return refuse_capture(api_, reader, failures_) == error_code::success &&
           failures_.note(api_.record_event(passed, reader), "cudaEventRecord");
  }

  runtime& api_;
  config setup_;
  sticky_failure failures_;
  stream own_;
  /// Waits for its pieces, so it is destroyed before the stream.
  std::unique_ptr<staging_ring> ring_;
  std::vector<owned_event> passed_;  ///< [readers]
};
static_assert(uploader<adapter_uploader>);

}  // namespace hotset::cuda
