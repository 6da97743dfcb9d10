// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measures the seconds that one more unit of work takes.
///
/// Rule: a small and a large amount of work are timed in turns. The price of a unit is the difference of the shortest
///   times divided by the difference of the amounts. The fixed cost of a call cancels out. Other load cancels out
///   too, if each amount ran once without it.
/// Source: WiSP's Appendix H names the measurement as the next step: there the prices are presets.
/// Cost: `rounds` times both amounts of work. For start-up only, because the work would disturb an engine.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace tiny_moe {

/// Amounts of timed work, and the number of rounds.
struct calibration_work {
  std::size_t small = 1;
  std::size_t large = 2;
  std::size_t rounds = 5;

  [[nodiscard]] hotset::validation validate() const {
    if (small < 1 || small >= large)
      return hotset::refusal("calibration of ", small, " and ", large,
                             " units, accepted: 1 or more, and more than that");
    if (rounds < 1) return hotset::error{"calibration rounds = 0, accepted: 1 or more"};
    return std::nullopt;
  }
};

/// Returns the seconds that one more unit takes. seconds_of(units) does the work and returns its duration.
/// Errors: those of the work; a large amount that took no longer than the small one.
template <class SecondsOf>
[[nodiscard]] hotset::result<double> seconds_per_unit(const calibration_work& work,
                                                      SecondsOf seconds_of) {
  if (auto bad = work.validate()) return *std::move(bad);
  auto small = std::numeric_limits<double>::infinity();
  auto large = small;
  for (std::size_t i = 0; i < work.rounds; ++i) {
    small = std::min<double>(small, seconds_of(work.small));
    large = std::min<double>(large, seconds_of(work.large));
  }
  const double more = large - small;
  if (!(more > 0))
    return hotset::refusal(work.large, " units took no longer than ", work.small,
                           ", accepted: work that takes time");
  return more / static_cast<double>(work.large - work.small);
}

/// Returns the seconds per byte of the link. fills: at least work.large, each of `bytes` bytes; their slots are
/// overwritten.
/// Errors: those of seconds_per_unit; a copy that the backend refuses, or that fails.
template <class Clock = std::chrono::steady_clock, hotset::transfer_backend Backend>
[[nodiscard]] hotset::result<double> link_seconds_per_byte(Backend& backend,
                                                           typename Backend::stream_type& stream,
                                                           std::span<const hotset::fill> fills,
                                                           std::uint64_t bytes,
                                                           const calibration_work& work) {
  if (bytes == 0 || work.large > fills.size())
    return hotset::refusal("calibration of ", work.large, " copies with ", fills.size(), " of ",
                           bytes, " bytes, accepted: as many, of 1 byte or more");
  bool failed = false;
  const auto copy = [&](std::size_t count) {
    const auto start = Clock::now();
    const auto sent = backend.submit(fills.first(count), stream, hotset::urgency::now);
    failed = failed || sent.accepted != count ||
             backend.wait(sent.id) != hotset::transfer_state::arrived;
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  (void)copy(work.large);  // warm-up: touches pages and wakes threads
  const auto seconds = seconds_per_unit(work, copy);
  if (failed) return hotset::error{"calibration: a copy was refused or failed"};
  if (!seconds) return seconds.error();
  return *seconds / static_cast<double>(bytes);
}

}  // namespace tiny_moe
