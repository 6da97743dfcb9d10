// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A backend without threads, scripted by a test: refuses, fails, delays and reorders copies.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/transfer/transfer_backend.hpp"

namespace hotset::support {

/// Copies stay pending until `finish`, `wait`, or the fence of a blocking backend. A slot's content is the last
/// copied key, or no_key during a copy and after a failed one.
class scripted_backend {
 public:
  struct stream_type {
    struct command {
      ticket fence = no_ticket;
      ticket reader = no_ticket;
      std::function<void()> kernel{};
    };
    std::deque<command> commands{};
  };
  struct batch {
    std::vector<fill> fills{};
    urgency when = urgency::now;
    transfer_state state = transfer_state::pending;
    bool fails = false;
    bool promoted = false;
  };

  explicit scripted_backend(std::size_t slots) : content(slots) {}

  // --- the script
  static constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  std::size_t accept = all;              ///< fills that each submit accepts
  std::set<std::size_t> failing{};       ///< submits whose copies fail; the first is 1
  bool blocking = false;                 ///< fences wait, as on a stream that is the calling thread
  bool refuse_cancels = false;           ///< as if every copy had begun
  std::size_t refuse_fences = 0;         ///< this many fences fail, whatever the copies do
  bool fails_at_once = false;            ///< submits fail before they wait for a reader
  std::function<void()> before_fence{};  ///< runs while a visit is resolved

  // --- results
  std::vector<expert_key> content;  ///< by slot
  std::map<ticket, batch> batches{};
  std::size_t submits = 0;
  std::vector<ticket> fenced{};

  submission submit(std::span<const fill> fills, stream_type&, urgency when) noexcept {
    ++submits;
    const auto taken = std::min(accept, fills.size());
    if (taken == 0) return {};
    auto& made = batches[++last_];
    made.fills.assign(fills.begin(), fills.begin() + static_cast<std::ptrdiff_t>(taken));
    made.when = when;
    made.fails = failing.count(submits) != 0;
    if (fails_at_once) made.state = transfer_state::failed;
    return {last_, taken};
  }
  void promote(ticket t) noexcept {
    if (batches.count(t) != 0) batches[t].promoted = true;
  }
  bool cancel(ticket t) noexcept {
    if (refuse_cancels || poll(t) != transfer_state::pending) return false;
    batches[t].state = transfer_state::cancelled;
    return true;
  }
  status fence(stream_type& stream, ticket t) noexcept {
    if (before_fence) before_fence();
    if (refuse_fences != 0) {
      --refuse_fences;
      return status::fill_failed;
    }
    fenced.push_back(t);
    if (blocking) return wait(t) == transfer_state::arrived ? status::ok : status::fill_failed;
    stream.commands.push_back({.fence = t});
    return status::ok;
  }
  ticket record(stream_type& stream) noexcept {
    if (stream.commands.empty()) return no_ticket;
    readers_[++last_] = &stream;
    stream.commands.push_back({.reader = last_});
    return last_;
  }
  [[nodiscard]] transfer_state poll(ticket t) const noexcept {
    if (readers_.count(t) != 0) return transfer_state::pending;
    const auto found = batches.find(t);
    return found == batches.end() ? transfer_state::arrived : found->second.state;
  }
  transfer_state wait(ticket t) noexcept {
    if (const auto reader = readers_.find(t); reader != readers_.end()) {
      auto* const stream = reader->second;
      while (readers_.count(t) != 0) step(*stream);
    }
    if (poll(t) == transfer_state::pending) finish(t);
    return poll(t);
  }

  // --- the device
  /// Ends a batch's copies now. Pre: they do not wait for a reader.
  void finish(ticket t) {
    auto& b = batches.at(t);
    ASSERT_EQ(b.state, transfer_state::pending);
    for (const auto& f : b.fills) {
      if (poll(f.after) == transfer_state::pending) wait(f.after);
      content[static_cast<std::size_t>(f.slot)] = b.fails ? no_key : f.key;
    }
    b.state = b.fails ? transfer_state::failed : transfer_state::arrived;
  }
  [[nodiscard]] bool may_start(ticket t) const {
    return std::ranges::all_of(batches.at(t).fills, [&](const fill& f) {
      return poll(f.after) != transfer_state::pending;
    });
  }
  void launch(stream_type& stream, std::function<void()> kernel) {
    stream.commands.push_back({.kernel = std::move(kernel)});
  }
  /// Runs the stream as far as its fences permit; copies end when their fences are reached.
  void run(stream_type& stream) {
    while (!stream.commands.empty()) step(stream);
  }
  [[nodiscard]] ticket last() const { return last_; }

 private:
  void step(stream_type& stream) {
    const auto next = std::move(stream.commands.front());
    stream.commands.pop_front();
    if (next.fence != no_ticket) (void)wait(next.fence);
    if (next.reader != no_ticket) readers_.erase(next.reader);
    if (next.kernel) next.kernel();
  }
  ticket last_ = 100;
  std::map<ticket, stream_type*> readers_{};
};
static_assert(transfer_backend<scripted_backend>);

}  // namespace hotset::support
