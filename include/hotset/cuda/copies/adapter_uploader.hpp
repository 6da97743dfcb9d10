// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings adapters to a device: the uploader of an adapter_registry over cuda::virtual_memory.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/adapters/uploader.hpp"
#include "hotset/core/error.hpp"
#include "hotset/cuda/copies/staging_ring.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Bytes go through a ring of page-locked pieces on a stream of their own, beside whatever computes. Only what was
/// enqueued to the readers before `wait_for_readers` is waited for. Threads: one at a time, that of the registry.
class adapter_uploader {
 public:
  struct config {
    int device = 0;
    std::size_t pieces = 4;
    std::size_t piece_bytes = std::size_t{4} << 20;
    /// Streams of the device whose kernels read expert maps and weights.
    std::vector<stream_handle> readers{};
  };

  /// `api` outlives the uploader, and so do the readers. Errors: those of staging_ring; what the runtime said.
  static result<std::unique_ptr<adapter_uploader>> create(runtime& api, const config& setup) {
    auto own = stream::create(api, setup.device, stream_priority::low);
    if (!own) return own.error();
    auto ring = staging_ring::create(api, setup.device, setup.pieces, setup.piece_bytes);
    if (!ring) return ring.error();
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    auto passed = create_events(api, setup.readers.size());
    if (!passed) return passed.error();
    std::unique_ptr<adapter_uploader> made(new (std::nothrow) adapter_uploader(
        api, setup, *std::move(own), *std::move(ring), *std::move(passed)));
    if (!made) return error{"no host memory for an adapter uploader"};
    return made;
  }
  adapter_uploader(const adapter_uploader&) = delete;
  adapter_uploader& operator=(const adapter_uploader&) = delete;

  /// `from` may be written again when this returns. Pre: of one size.
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
    ring_->drain();  // whoever unmaps now must not do so under a copy
    return false;
  }
  /// False as well where a reader is under capture: what a graph reads when it is launched cannot be waited for.
  bool wait_for_readers() noexcept {
    for (std::size_t i = 0; i < passed_.size(); ++i)
      if (!mark(setup_.readers[i], passed_[i].get())) return false;
    bool all = true;
    for (const auto& event : passed_)
      all = failures_.note(api_.synchronize_event(event.get()), "cudaEventSynchronize") && all;
    return all;
  }

  /// The first call that failed, for good: why a registry could not copy, or not wait.
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
  std::unique_ptr<staging_ring> ring_;  ///< its pieces are waited for before the stream goes
  std::vector<owned_event> passed_;     ///< [readers]
};
static_assert(uploader<adapter_uploader>);

}  // namespace hotset::cuda
