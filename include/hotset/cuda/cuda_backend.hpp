// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into a device's slots, on its own streams or in the engine's stream.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/cuda/copies/chunk_queue.hpp"
#include "hotset/cuda/copies/copy_batch.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/copies/staged_copies.hpp"
#include "hotset/cuda/event_ring.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset::cuda {

/// Stream that copies run on.
enum class copy_mode : std::uint8_t {
  /// Parallel with the engine's work; a copy waits only for the last reader of its slot.
  side_stream,
  /// In the engine's stream, all enqueued before `submit` returns: no overlap (WiSP's P2).
  same_stream,
};

/// One event per submit. Demand from page-locked memory is enqueued at once. Speculation is enqueued in chunks, a few
/// ahead of the device, so demand waits for at most those. Pageable memory goes through a bounded page-locked ring
/// that threads fill; without a ring it is refused. The first failed CUDA call is kept, and nothing is copied after
/// it.
///
/// Blocking: `wait` blocks. `fence` blocks while threads have not yet staged a batch; they begin after the last
/// readers of its slots are done. In same_stream mode `submit` blocks for that instead. `record` and a `submit` of
/// demand block while every ticket of the ring is pending. A `submit` of pageable demand blocks while too many copies
/// wait for the threads. In these two cases speculation is refused instead.
/// Capture: use this class outside of a capture. Inside one, `submit` takes nothing, a `fence` of pending copies
/// fails, and `record` is a permanent failure.
/// Threads: compatible; one thread at a time. No allocation after construction.
template <expert_source Source>
class cuda_backend {
 public:
  using stream_type = stream;

  struct config {
    copy_mode mode = copy_mode::side_stream;
    std::size_t tickets = 4096;  ///< most readers and batches pending at one time
    std::size_t chunk_bytes = std::size_t{2} << 20;  ///< bytes in one chunk of a speculative copy
    std::size_t chunks_ahead = 4;
    std::size_t staging_pieces = 0;  ///< 0: sources must be page-locked
    std::size_t staging_piece_bytes = std::size_t{1} << 20;
    std::size_t staging_threads = 4;
  };

  /// `source`, `bank` and `pages` must outlive the backend. Errors: sizes of 0; those of the runtime; the system
  /// refuses a thread.
  static result<std::unique_ptr<cuda_backend>> create(runtime& api, const Source& source,
                                                      const slot_bank& bank,
                                                      const pinned_memory& pages,
                                                      const config& setup) {
    std::unique_ptr<cuda_backend> made(new (std::nothrow)
                                           cuda_backend(api, source, bank, pages, setup));
    if (!made) return error{"no host memory for a backend"};
    if (auto bad = made->take_parts(setup)) return *std::move(bad);
    return made;
  }
  cuda_backend(const cuda_backend&) = delete;
  cuda_backend& operator=(const cuda_backend&) = delete;
  /// Finishes the copies that have begun.
  ~cuda_backend() {
    staged_.reset();
    if (speculative_) speculative_->finish();
    for (const auto& lane : lanes_) (void)api_.synchronize_stream(lane.handle());
    if (events_ && mode_ == copy_mode::same_stream) events_->drain();
  }

  [[nodiscard]] validation check(const pool_layout& layout) const { return bank_.check(layout); }
  submission submit(std::span<const fill> fills, stream& reader, urgency when) noexcept {
    if (fills.empty() || failures_.happened() || refuses_capture(reader)) return {};
    fills = fills.first(std::min(fills.size(), bank_.slots()));
    const auto path = gather(fills);
    if (path == copy_path::staged && when == urgency::now) staged_->wait_for_room(gathered_.size());
    if (!has_room(path, when)) return {};
    const auto t = when == urgency::now ? open_ticket() : events_->open();
    if (t == no_ticket) return {};
    const device_scope scope(api_, bank_.device());
    const auto lane = choose_lane(reader, when);
    for (const auto reader_of : readers_) put_into_stream(reader_of);
    if (path == copy_path::none || (path == copy_path::direct && !wait_for_readers(lane)))
      events_->settle(t, transfer_state::failed);
    else
      enqueue(path, when, t, lane);
    return {t, fills.size()};
  }
  void promote(ticket t) noexcept {
    if (events_->is_recorded(t)) return;
    const device_scope scope(api_, bank_.device());
    if (!speculative_->push(t) && staged_) staged_->promote(t);
  }
  bool cancel(ticket t) noexcept {
    if (events_->is_recorded(t)) return false;
    return speculative_->cancel(t) || (staged_ && staged_->cancel(t));
  }
  status fence(stream& reader, ticket t) noexcept {
    put_into_stream(t);
    switch (events_->poll(t)) {
      case transfer_state::arrived: return status::ok;
      case transfer_state::failed:
      case transfer_state::cancelled: return status::fill_failed;
      case transfer_state::pending: break;
    }
    if (refuses_capture(reader)) return status::fill_failed;
    if (mode_ == copy_mode::same_stream) return status::ok;
    return events_->fence(reader.handle(), t) && events_->poll(t) != transfer_state::failed
               ? status::ok
               : status::fill_failed;
  }
  ticket record(stream& reader) noexcept {
    if (refuses_capture(reader)) {
      (void)failures_.note(error_code::stream_capture_unsupported, "cuda_backend::record");
      return no_ticket;
    }
    if (mode_ == copy_mode::same_stream) return no_ticket;
    const auto t = open_ticket();
    events_->record(t, reader.handle());
    return t;
  }
  [[nodiscard]] transfer_state poll(ticket t) noexcept {
    if (!speculative_->empty()) {
      const device_scope scope(api_, bank_.device());
      speculative_->pump();
    }
    return events_->poll(t);
  }
  transfer_state wait(ticket t) noexcept {
    put_into_stream(t);
    return events_->wait(t);
  }

  /// Forwards to the source; see transfer/expert_source.hpp.
  template <class KeyOrLayer>
  void invalidate(KeyOrLayer what) const noexcept {
    hotset::detail::invalidate_in(source_, what);
  }

  /// The first failed CUDA call, if any. After it `submit` takes nothing.
  [[nodiscard]] std::optional<error> trouble() const {
    if (!failures_.happened()) return std::nullopt;
    return describe(api_, failures_.first());
  }
  [[nodiscard]] transfer_counts counts() const noexcept {
    auto out = staged_ ? staged_->counts() : transfer_counts{};
    out.bytes_direct += demand_.bytes() + speculative_->bytes();
    return out;
  }

 private:
  enum class copy_path : std::uint8_t { none, direct, staged };
  /// Demand has two lanes, so that a copy that waits for a reader does not delay one that does not.
  enum lane_index : std::size_t { demand_lane, waiting_lane, speculative_lane, lane_count };

  cuda_backend(runtime& api, const Source& source, const slot_bank& bank,
               const pinned_memory& pages, const config& setup)
      : api_(api),
        source_(source),
        bank_(bank),
        pages_(pages),
        mode_(setup.mode),
        demand_(api, bank.slots() * expert_layout::max_tensors) {
    gathered_.reserve(bank.slots() * expert_layout::max_tensors);
    readers_.reserve(bank.slots() * expert_layout::max_tensors);
  }
  validation take_parts(const config& setup) {
    const auto device = bank_.device();
    auto events = event_ring::create(api_, device, setup.tickets, failures_);
    if (!events) return events.error();
    events_.emplace(*std::move(events));
    const auto most_copies = 2 * bank_.slots() * expert_layout::max_tensors;
    auto chunks = chunk_queue::create(api_, device, setup.chunk_bytes, setup.chunks_ahead,
                                      most_copies, *events_, failures_);
    if (!chunks) return chunks.error();
    speculative_.emplace(*std::move(chunks));
    if (mode_ == copy_mode::side_stream)
      for (std::size_t i = 0; i < lane_count; ++i) {
        auto lane = stream::create(
            api_, device, i == speculative_lane ? stream_priority::low : stream_priority::high);
        if (!lane) return lane.error();
        lanes_.push_back(*std::move(lane));
      }
    if (setup.staging_pieces == 0) return std::nullopt;
    auto staged = staged_copies::create(api_,
                                        {device, setup.staging_pieces, setup.staging_piece_bytes,
                                         setup.staging_threads, most_copies},
                                        pages_, *events_, failures_);
    if (!staged) return staged.error();
    staged_ = *std::move(staged);
    return std::nullopt;
  }

  /// Lists the copies of all tensors. Returns `none` if a tensor is missing, has another size, or is pageable without
  /// a ring.
  copy_path gather(std::span<const fill> fills) noexcept {
    gathered_.clear();
    readers_.clear();
    auto path = copy_path::direct;
    for (const auto& f : fills) {
      const auto tensors = source_.tensors(f.key, f.precision);
      if (tensors.empty() || tensors.size() != bank_.tensors(f.slot)) return copy_path::none;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto to = bank_.bytes(f.slot, i);
        if (to.size() != tensors[i].size()) return copy_path::none;
        if (!pages_.holds(tensors[i])) path = copy_path::staged;
        gathered_.push_back({to.data(), tensors[i].data(), to.size()});
        readers_.push_back(f.after);
      }
    }
    return path == copy_path::staged && !staged_ ? copy_path::none : path;
  }
  [[nodiscard]] bool has_room(copy_path path, urgency when) const noexcept {
    if (path == copy_path::staged) return staged_->has_room(gathered_.size());
    return path == copy_path::none || when == urgency::now ||
           speculative_->has_room(gathered_.size());
  }
  stream_handle choose_lane(const stream& reader, urgency when) noexcept {
    if (mode_ == copy_mode::same_stream) return reader.handle();
    if (when == urgency::soon) return lanes_[speculative_lane].handle();
    const bool waits = std::ranges::any_of(
        readers_, [this](ticket t) { return events_->poll(t) == transfer_state::pending; });
    return lanes_[waits ? waiting_lane : demand_lane].handle();
  }
  bool wait_for_readers(stream_handle lane) noexcept {
    if (mode_ == copy_mode::same_stream) return true;
    auto last = no_ticket;
    for (const auto reader : readers_)
      if (reader != last && !events_->fence(lane, last = reader)) return false;
    return true;
  }
  void enqueue(copy_path path, urgency when, ticket t, stream_handle lane) noexcept {
    if (path == copy_path::staged) {
      staged_->submit(t, gathered_, readers_, lane, when);
      if (mode_ == copy_mode::same_stream) put_into_stream(t);
      return;
    }
    if (when == urgency::soon && mode_ == copy_mode::side_stream)
      return speculative_->submit(t, gathered_, lane);
    if (demand_.issue(gathered_, lane, failures_))
      events_->record(t, lane);
    else
      events_->settle(t, transfer_state::failed);
  }
  /// Waits while every ticket of the ring is pending.
  ticket open_ticket() noexcept {
    auto t = events_->open();
    for (; t == no_ticket; t = events_->open()) (void)wait(events_->oldest());
    return t;
  }
  /// Enqueues the rest of a ticket's copies: before that it has no event that a stream can wait for.
  void put_into_stream(ticket t) noexcept {
    promote(t);
    events_->wait_until_recorded(t);
  }
  bool refuses_capture(const stream& reader) noexcept {
    return refuse_capture(api_, reader.handle(), failures_) != error_code::success;
  }

  runtime& api_;
  const Source& source_;
  const slot_bank& bank_;
  const pinned_memory& pages_;
  copy_mode mode_;
  sticky_failure failures_;
  std::optional<event_ring> events_;
  std::optional<chunk_queue> speculative_;
  std::vector<stream> lanes_;
  std::unique_ptr<staged_copies> staged_;
  copy_batch demand_;
  std::vector<copy_request> gathered_;  ///< copies of the current submit
  std::vector<ticket> readers_;         ///< last reader of each copy's slot
};

}  // namespace hotset::cuda
