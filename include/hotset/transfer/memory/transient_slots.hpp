// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots beside those of a cache, for experts that a visit uses without keeping them.

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

/// Copies an expert that has no slot (an admission or miss policy left it on the host) for one visit. The result is
/// exact, the cost is the copy, and no resident is evicted. Pagers do not know these slots.
/// A copy into a slot waits for the slot's readers and its previous copy.
/// Each visit calls `begin_visit`, then `stream_in` for every expert that its plans leave on the host. It calls
/// `record_readers` after all work that reads the slots is enqueued. Copies of the next visit wait for that work. No
/// allocation after construction. Complexity: O(slots) a call. Threads: compatible.
template <transfer_backend Backend>
class transient_slots {
 public:
  using stream_type = typename Backend::stream_type;

  /// Uses `count` slots from `first` on: memory that the backend can fill, not used by any pager. Pre: the backend
  /// outlives the object.
  transient_slots(Backend& backend, slot_id first, std::size_t count)
      : backend_(backend), first_(first), slots_(count) {}

  /// Begins a visit: the slots of the previous visit may be reused.
  void begin_visit() noexcept { used_ = 0; }
  /// Copies the expert and returns its slot for work that is enqueued on `stream` afterwards. If another group of the
  /// visit requests the same expert and precision, no copy is made. no_slot: all slots are in use, or the copy failed;
  /// the host must compute the expert.
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
  /// Call after all work that reads the slots is enqueued on `stream`.
  void record_readers(stream_type& stream) noexcept {
    const auto used = std::span(slots_).first(used_);
    if (std::ranges::all_of(used, &transient::failed)) return;
    const auto readers = backend_.record(stream);
    for (auto& slot : used)
      if (!slot.failed) slot.after = readers;
  }
  /// Checks that all settled copies arrived. A copy may fail after its reader was enqueued, as on a stream with its
  /// own thread. Errors: fill_failed, reported once: a visit has computed with wrong bytes.
  [[nodiscard]] status settle() noexcept {
    for (auto& slot : slots_)
      if (backend_.poll(slot.copied) != transfer_state::pending) take_in(slot);
    return std::exchange(lost_, status::ok);
  }
  /// Waits for all copies and recorded readers, then does the same as `settle`. Call it together with
  /// `slot_cache::invalidate` before host bytes change or are freed.
  [[nodiscard]] status drain() noexcept {
    for (auto& slot : slots_) {
      (void)backend_.wait(slot.copied);
      (void)backend_.wait(slot.after);
    }
    return settle();
  }
  /// Number of experts copied so far.
  [[nodiscard]] std::uint64_t streamed() const noexcept { return streamed_; }

 private:
  struct transient {
    expert_key key = no_key;
    precision_id precision{};
    bool failed = false;
    ticket after = no_ticket;   ///< the next copy into the slot waits for it
    ticket copied = no_ticket;  ///< copy that has not been seen to arrive
  };

  [[nodiscard]] slot_id id_of(std::size_t i) const noexcept {
    return first_ + static_cast<std::int32_t>(i);
  }
  /// Returns false if the bytes did not arrive and will not.
  bool copy(fill wanted, std::size_t i, stream_type& stream) noexcept {
    (void)backend_.wait(slots_[i].copied);
    take_in(slots_[i]);
    wanted.after = slots_[i].after;
    const auto sent = backend_.submit({&wanted, 1}, stream, urgency::now);
    if (sent.accepted != 1) return false;
    // A fence may fail while bytes still move. A copy that has ended may have waited for no reader.
    if (backend_.poll(sent.id) == transfer_state::pending) slots_[i].after = sent.id;
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
  std::size_t used_ = 0;  ///< the first `used_` slots belong to the running visit
  status lost_ = status::ok;
  std::uint64_t streamed_ = 0;
};

}  // namespace hotset
