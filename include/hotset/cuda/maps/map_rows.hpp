// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of ids on the device, such as a cache's slot map, in which kernels look up slots.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/event_ring.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Shape: int32 [layers][experts]; -1 before the first update. The address is stable, so graphs may hold it.
/// No allocation after construction. Must outlive the work that reads it.
template <identifier Id>
class device_rows {
 public:
  struct config {
    int device = 0;
    std::size_t ring_rows = 0;  ///< rows that the device may lag behind; 0: four for each layer
  };

  /// `failures` must outlive the rows. Errors: an invalid shape; a ring with fewer rows than layers; those of the
  /// runtime.
  static result<device_rows> create(runtime& api, const geometry& shape, const config& setup,
                                    sticky_failure& failures) {
    if (auto bad = shape.validate()) return *std::move(bad);
    const auto layers = shape.layer_count();
    const auto rows = setup.ring_rows == 0 ? 4 * layers : setup.ring_rows;
    if (rows < layers)
      return refusal("a ring of ", rows, " rows, accepted: ", layers,
                     " (one for each layer) or more");
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    auto ring = pinned_buffer::allocate(api, rows * shape.expert_count() * sizeof(Id));
    if (!ring) return ring.error();
    auto events = event_ring::create(api, setup.device, rows, failures);
    if (!events) return events.error();
    device_rows made(api, shape, setup.device, *std::move(ring), *std::move(events), failures);
    if (auto bad = made.take_memory()) return *std::move(bad);
    return made;
  }
  device_rows(device_rows&&) noexcept = default;
  device_rows& operator=(device_rows&&) = delete;
  /// Waits until the device has read what was uploaded.
  ~device_rows() {
    if (memory_.get() != nullptr) events_.drain();
  }

  /// Device memory. Shape: [experts]; the rows of the next layers follow.
  [[nodiscard]] const Id* row(layer_id layer) const noexcept {
    return all_rows() + index_of(layer) * experts_;
  }

  /// Uploads the rows of layers first..last-1 that changed since their last upload, in one copy: the shortest run
  /// that holds them all. Does nothing if no row changed. A visit needs its own layer's row; a captured step needs
  /// all rows. `Source` has row(layer) and row_version(layer), like slot_cache and pager. Blocks while the device
  /// lags a whole ring behind.
  /// A stream that did not upload the last rows waits for them. Pre: kernels of other streams that read a changed row
  /// have ended, or `reader` waits for them: an upload waits for its own stream alone.
  /// Errors: stream_capture_unsupported (call it before a graph is replayed, not inside a capture); those of the
  /// runtime.
  template <class Source>
  error_code update(const Source& source, layer_id first, layer_id last,
                    const stream& reader) noexcept {
    const auto is_old = [&](layer_id l) { return source.row_version(l) != uploaded_[l]; };
    while (first < last && !is_old(first)) ++first;
    while (first < last && !is_old(last - 1)) last = last - 1;
    const bool waits = uploader_ != reader.handle() && !underway_.empty() &&
                       events_.poll(underway_.back().passed) == transfer_state::pending;
    if (first == last && !waits) return error_code::success;
    if (const auto bad = refuse_capture(api_, reader.handle(), failures_);
        bad != error_code::success)
      return bad;
    if (waits && !events_.fence(reader.handle(), underway_.back().passed))
      return failures_.first().code;
    if (first == last) return error_code::success;
    auto* const staged = take_rows(static_cast<std::size_t>(last - first));
    for (auto l = first; l < last; ++l)
      std::ranges::copy(source.row(l), staged + static_cast<std::size_t>(l - first) * experts_);
    if (!upload(staged, first, last, reader)) return failures_.first().code;
    for (auto l = first; l < last; ++l) uploaded_[l] = source.row_version(l);
    return error_code::success;
  }
  template <class Source>
  error_code update(const Source& source, layer_id layer, const stream& reader) noexcept {
    return update(source, layer, layer + 1, reader);
  }

 private:
  struct upload_underway {
    std::size_t first_row = 0;  ///< position in the ring
    std::size_t rows = 0;
    ticket passed = no_ticket;
  };

  device_rows(runtime& api, const geometry& shape, int device, pinned_buffer ring,
              event_ring events, sticky_failure& failures)
      : api_(api),
        device_(device),
        experts_(shape.expert_count()),
        ring_(std::move(ring)),
        events_(std::move(events)),
        failures_(failures),
        uploaded_(shape.layer_count(), 0) {
    underway_.reserve(ring_rows());
  }
  validation take_memory() {
    const auto bytes = uploaded_.size() * experts_ * sizeof(Id);
    auto memory = allocate_memory(api_, bytes, "rows of ids");
    if (!memory) return memory.error();
    memory_ = *std::move(memory);
    auto clean = stream::create(api_, device_);
    if (!clean) return clean.error();
    auto* const absent = take_rows(uploaded_.size());
    std::fill_n(absent, uploaded_.size() * experts_, static_cast<Id>(-1));
    if (!upload(absent, layer_id{}, static_cast<layer_id>(uploaded_.size()), *clean) ||
        !failures_.note(api_.synchronize_stream(clean->handle()), "cudaStreamSynchronize"))
      return describe(api_, failures_.first());
    return std::nullopt;
  }

  [[nodiscard]] Id* all_rows() const noexcept { return static_cast<Id*>(memory_.get()); }
  [[nodiscard]] std::size_t ring_rows() const noexcept {
    return ring_.bytes().size() / (experts_ * sizeof(Id));
  }
  /// Takes adjacent rows of the ring that the device has read.
  Id* take_rows(std::size_t rows) noexcept {
    if (next_row_ + rows > ring_rows()) next_row_ = 0;
    const auto overlaps = [&](const upload_underway& u) {
      return u.first_row < next_row_ + rows && next_row_ < u.first_row + u.rows;
    };
    while (std::ranges::any_of(underway_, overlaps)) {
      (void)events_.wait(underway_.front().passed);
      underway_.erase(underway_.begin());
    }
    return reinterpret_cast<Id*>(ring_.bytes().data()) + next_row_ * experts_;
  }
  bool upload(const Id* staged, layer_id first, layer_id last, const stream& reader) noexcept {
    const auto rows = static_cast<std::size_t>(last - first);
    const device_scope scope(api_, device_);
    const copy_request copy{all_rows() + index_of(first) * experts_, staged,
                            rows * experts_ * sizeof(Id)};
    if (!failures_.note(api_.copy(copy, reader.handle()), "cudaMemcpyAsync")) return false;
    const auto passed = events_.open();
    // The ring has a place for each row, and take_rows has freed one.
    HOTSET_ASSERT(passed != no_ticket);
    events_.record(passed, reader.handle());
    underway_.push_back({next_row_, rows, passed});
    uploader_ = reader.handle();
    next_row_ += rows;
    return !failures_.happened();
  }

  runtime& api_;
  int device_;
  std::size_t experts_;
  pinned_buffer ring_;
  event_ring events_;
  sticky_failure& failures_;
  stream_handle uploader_{};               ///< stream of the last upload
  per_layer<std::uint64_t> uploaded_;      ///< [layers] version of the last upload
  std::vector<upload_underway> underway_;  ///< oldest first
  std::size_t next_row_ = 0;               ///< position in the ring
  owned_memory memory_;
};
/// Slot map on the device; -1 = absent.
using map_rows = device_rows<slot_id>;

}  // namespace hotset::cuda
