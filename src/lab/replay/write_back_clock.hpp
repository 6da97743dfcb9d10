// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Clock of a system that copies victims back before their slots are filled. The library's engines do not: weights
/// are read-only.
///
/// Rule: a victim's copy back starts when its fill would have, and the fill starts when it has ended. `write_back()`
///       announces a copy back by itself; the slot's next fill names its ticket. `serial`: both directions share the
///       link; `duplex`: the way back is a separate link with the same scheduling. While one of `spares` slots is
///       free, a fill takes it without waiting; the victim's slot becomes a spare one when it was copied back. A
///       cancelled fill cancels its victim's copy back. Demand after an unfinished batch promotes that batch.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/visit_event.hpp"
#include "lab/replay/clock_backend.hpp"

namespace hotset {

/// Way in which victims are copied back before their slots are filled.
enum class write_back_way : std::uint8_t { none, serial, duplex };

/// Configuration of a link's way back.
struct write_back_config {
  write_back_way way = write_back_way::none;
  link_model link = link_model::instant();  ///< times of the way back; not instant if there is one
  std::size_t spares = 0;  ///< slots beside the cache's, for fills whose victim is copied back

  /// `in`: link of the fills.
  [[nodiscard]] validation validate(const link_model& in) const {
    if (in.is_instant() || link.is_instant())
      return error{
          "a link on which nothing takes time, accepted: a bandwidth both ways where victims are "
          "copied back"};
    return std::nullopt;
  }
};

class write_back_clock final : public clock_backend {
 public:
  /// Errors: throws invalid_config. Pre: victims are copied back.
  write_back_clock(const config& setup, const write_back_config& back)
      : clock_backend(setup, back.way == write_back_way::duplex ? 2 : 1), spares_(back.spares) {
    require_valid(back.validate(setup.link));
    add_way(back.link, setup.shape);
  }

  /// Copies a victim back ahead of its slot's next fill, which names the ticket as its `after`. `after`: the slot's
  /// last reader. Pre: the model has the key and the precision.
  ticket write_back(expert_key key, precision_id precision, ticket after,
                    clock_stream& stream) noexcept {
    advance(stream.host());
    auto& e = open();
    const auto batch = e.id;
    e.left = 1;
    (void)take_victim({.key = key, .precision = precision, .after = after}, batch, urgency::soon);
    return batch;
  }
  /// Units: bytes of victims in finished runs of chunks.
  [[nodiscard]] std::uint64_t bytes_moved_back() const noexcept { return ways_[1].moved.bytes; }
  /// Time spent copying victims back.
  [[nodiscard]] ticks busy_back() const noexcept { return ways_[1].moved.time; }

 private:
  copy_id take_victim(const fill& victim, ticket batch, urgency when) noexcept {
    return take({1, static_cast<std::uint8_t>(lanes_.size() - 1)}, victim, batch, when);
  }
  /// Enqueues the victim's copy back, then the fill, which waits for it unless a spare slot is free.
  void enqueue(const fill& f, ticket batch, urgency when) noexcept override {
    if (when == urgency::now && ready_after(f.after) == never) promote(f.after);
    auto alone = f;
    auto victim = no_copy;
    if (f.victim != no_key) {
      victim =
          take_victim({.key = f.victim, .precision = f.precision, .after = f.after}, batch, when);
      copies_[victim].settles = false;
      alone.after = no_ticket;
    }
    const auto p = take({}, alone, batch, when);
    if (victim == no_copy) return;
    if (spares_ != 0) {
      --spares_;
      return;
    }
    copies_[p].ready = never;
    copies_[victim].waiting_fill = p;
  }
  /// Cancels a copy; a fill that took a spare slot returns it.
  void take_back(copy_id p) noexcept override {
    if (!copies_[p].settles && copies_[p].waiting_fill == no_copy) ++spares_;
    remove(p);
  }
  /// A victim was copied back: its slot goes to the fill that waits for it, else to the first fill that waits for any
  /// slot, else to the spare ones.
  void carried_beside(copy_id fill) noexcept override {
    for (const auto when : {urgent, speculative})
      for (const auto p : waiting_[list_of(0, when)]) {
        if (fill != no_copy || !copies_[p].is_held()) continue;
        fill = p;
        for (auto& c : copies_)
          if (c.waiting_fill == p) c.waiting_fill = no_copy;
      }
    if (fill == no_copy)
      ++spares_;
    else
      copies_[fill].ready = now_;
  }

  std::size_t spares_;  // free ones
};

/// Frees slots as pager::pre_evict does and copies the victims back at once; fills of those slots wait for the
/// copies.
template <class Pager>
std::size_t pre_evict_back(Pager& pages, write_back_clock& clock, const visit_context& context,
                           std::size_t slots, std::span<const slot_id> spared,
                           clock_stream& stream) {
  return pages.pre_evict(context, slots, spared, [&](slot_id slot, expert_key key) {
    const auto reader = pages.slot(slot).last_reader;
    pages.wait_before_fill(slot, clock.write_back(key, pages.precision_of(slot), reader, stream));
  });
}

}  // namespace hotset
