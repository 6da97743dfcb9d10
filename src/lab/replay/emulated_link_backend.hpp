// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots at the pace of an emulated link.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "hotset/transfer/host_backend.hpp"
#include "lab/replay/link_model.hpp"

namespace hotset {

/// The machine's clock. Sleeps for the long part of a wait and yields for the rest, because a sleep ends late.
struct patient_clock {
  using time_point = std::chrono::steady_clock::time_point;
  static time_point now() noexcept { return std::chrono::steady_clock::now(); }
  static void wait_until(time_point end) noexcept {
    constexpr std::chrono::microseconds lateness{100};
    if (const auto left = end - now(); left > lateness)
      std::this_thread::sleep_for(left - lateness);
    while (now() < end) std::this_thread::yield();
  }
};

/// Pace of a link. Its times follow the link model only: a chunk that ends late delays no other one.
template <class Clock>
class link_pace {
 public:
  explicit link_pace(const link_model& link = link_model::instant()) noexcept : link_(link) {}

  using time = typename Clock::time_point;
  static time now() noexcept { return Clock::now(); }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return link_.chunk_bytes(); }
  void resume() noexcept { free_ = std::max(free_, now()); }
  ticks hold(time submitted, std::uint64_t from, std::uint64_t total) noexcept {
    const auto chunk = chunk_bytes() == 0 ? 0 : from / chunk_bytes();
    const auto spent = link_.time_until(total, chunk + 1) - link_.time_until(total, chunk);
    free_ = std::max(free_, submitted) + std::chrono::nanoseconds(spent);
    Clock::wait_until(free_);
    return spent;
  }

 private:
  link_model link_;
  time free_{};  ///< end of the work given to the link
};

/// Scheduling and times of clock_backend with real copies, so that overlap can be tested without a device. A copy is
/// never faster than the machine's memory.
/// Threads: safe. No allocation after construction.
template <expert_origin Source, class Clock = patient_clock>
class emulated_link_backend : public host_backend<Source, link_pace<Clock>> {
  using base = host_backend<Source, link_pace<Clock>>;

 public:
  struct config {
    link_model::config link{};
    std::size_t most_fills = 4096;  ///< maximum waiting fills
    transfer_observer* observer = nullptr;
  };

  /// `source` and `bank` outlive the backend. Errors: throws invalid_config for an invalid config, or if the system
  /// cannot start a thread.
  emulated_link_backend(const Source& source, const host_slot_bank& bank, const config& setup)
      : base(source, bank,
             {.most_fills = setup.most_fills,
              .pace = link_pace<Clock>(link_model(setup.link)),
              .observer = setup.observer}) {}

  status fence(host_stream& stream, ticket t) noexcept {
    if (!stream.is_caller() || base::poll(t) != transfer_state::pending)
      return base::fence(stream, t);
    const auto begin = Clock::now();
    const auto done = base::fence(stream, t);
    const auto waited = std::chrono::nanoseconds(Clock::now() - begin).count();
    blocked_.fetch_add(static_cast<ticks>(waited), std::memory_order_relaxed);
    return done;
  }
  /// Time that callers' streams have waited in fences; the waits of streams with their own thread are not counted.
  [[nodiscard]] ticks blocked() const noexcept { return blocked_.load(std::memory_order_relaxed); }
  /// Time that the link has been carrying copies.
  [[nodiscard]] ticks busy() const noexcept { return base::held(); }

 private:
  std::atomic<ticks> blocked_ = 0;
};

}  // namespace hotset
