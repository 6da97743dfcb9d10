// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots beside those of a cache, through which a visit streams what it misses and does not keep.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset {

/// An expert that an admission or a miss policy leaves without a slot is either computed on the host, or copied here for one
/// visit: exact, at the price of its copy, and no resident leaves. No pager knows these slots.
/// Copies wait for the slot's readers and its copy before, so that a slot is used again no sooner than it may.
/// Each visit begins with `begin_visit`, asks `stream_in` for every expert that its plans leave on the host, and calls `record_readers`
/// when all that reads the slots is enqueued: the copies of the next visit wait for that.
/// No allocation after construction. Complexity: O(slots) a call. Threads: compatible.
template <transfer_backend Backend>
class transient_slots {
 public:
  using stream_type = typename Backend::stream_type;

  /// `count` slots from `first` on: memory that the backend can fill, beside the slots of every pager. The backend outlives them.
  transient_slots(Backend& backend, slot_id first, std::size_t count)
      : backend_(backend), first_(first), slots_(count) {}

  /// Forgets what the visit before has streamed.
  void begin_visit() noexcept { used_ = 0; }
  /// The slot in which what is enqueued on `stream` from now on finds the expert. A second group of the visit that asks for
  /// the same expert at the same precision finds it without a copy. no_slot: all slots are in use, or the copy failed: the expert is the host's.
  [[nodiscard]] slot_id stream_in(expert_key key, precision_id precision,
                                  stream_type& stream) noexcept {
    for (std::size_t i = 0; i < used_; ++i)
      if (slots_[i].key == key && slots_[i].precision == precision)
        return slots_[i].failed ? no_slot : id_of(i);
    if (used_ == slots_.size()) return no_slot;
    const auto i = used_++;
    slots_[i].key = key;
    slots_[i].precision = precision;
    slots_[i].failed = !copy({.key = key, .slot = id_of(i), .precision = precision}, i, stream);
    if (slots_[i].failed) return no_slot;
    ++streamed_;
    return id_of(i);
  }
  /// All that reads the slots has been enqueued on `stream`.
  void record_readers(stream_type& stream) noexcept {
    const auto used = std::span(slots_).first(used_);
    if (std::ranges::all_of(used, &transient::failed)) return;
    const auto readers = backend_.record(stream);
    for (auto& slot : used)
      if (!slot.failed) slot.after = readers;
  }
  /// Whether all that was given out and has settled by now did arrive. A copy may fail after `stream_in` has enqueued what reads it,
  /// as on a stream with a thread of its own. Errors: fill_failed, told once: a visit has computed with what is no expert.
  [[nodiscard]] status settle() noexcept {
    for (auto& slot : slots_)
      if (backend_.poll(slot.copied) != transfer_state::pending) take_in(slot);
    return std::exchange(lost_, status::ok);
  }
  /// Waits for all copies and recorded readers, then as `settle`. Call it, beside `slot_cache::invalidate`, before host bytes
  /// change or go away.
  [[nodiscard]] status drain() noexcept {
    for (auto& slot : slots_) {
      (void)backend_.wait(slot.copied);
      (void)backend_.wait(slot.after);
    }
    return settle();
  }
  /// Experts that were copied so far.
  [[nodiscard]] std::uint64_t streamed() const noexcept { return streamed_; }

 private:
  struct transient {
    expert_key key = no_key;
    precision_id precision{};
    bool failed = false;
    ticket after = no_ticket;   ///< what the next copy into the slot waits for
    ticket copied = no_ticket;  ///< given out, and not known to have arrived
  };

  [[nodiscard]] slot_id id_of(std::size_t i) const noexcept {
    return first_ + static_cast<std::int32_t>(i);
  }
  /// False: its bytes are not there, nor will be.
  bool copy(fill wanted, std::size_t i, stream_type& stream) noexcept {
    (void)backend_.wait(slots_[i].copied);
    take_in(slots_[i]);
    wanted.after = slots_[i].after;
    const auto sent = backend_.submit({&wanted, 1}, stream, urgency::now);
    if (sent.accepted != 1) return false;
    slots_[i].after = sent.id;  // a fence may fail while bytes still move
    const bool is_there = backend_.fence(stream, sent.id) == status::ok &&
                          backend_.poll(sent.id) != transfer_state::failed;
    if (is_there) slots_[i].copied = sent.id;
    return is_there;
  }
  /// Pre: its copy has settled.
  void take_in(transient& slot) noexcept {
    if (backend_.poll(std::exchange(slot.copied, no_ticket)) != transfer_state::arrived)
      lost_ = status::fill_failed;
  }

  Backend& backend_;
  slot_id first_;
  std::vector<transient> slots_;
  std::size_t used_ = 0;  ///< by the running visit, the first ones
  status lost_ = status::ok;
  std::uint64_t streamed_ = 0;
};

}  // namespace hotset
