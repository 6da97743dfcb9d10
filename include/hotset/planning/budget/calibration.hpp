// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The prices of a cost model, measured at start-up where nobody knows them: link seconds per byte, seconds per token.
///
/// Rule: a small and a large amount of work are timed in turns; the price of a unit is the difference of the shortest times
/// by the difference of the amounts. What every call costs, whatever its size, drops out; so does what others did
/// meanwhile, if each amount was left alone once.
/// Source: WiSP Appendix H names it as the next step: there the prices are presets.
/// Deviations: none.
/// Cost: `rounds` times both amounts of work. For start-up only: the work must not disturb anybody.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset {

/// How much work is timed, and how often.
struct calibration_work {
  std::size_t small = 1;
  std::size_t large = 2;
  std::size_t rounds = 5;

  [[nodiscard]] validation validate() const {
    if (small < 1 || small >= large)
      return error{"calibration of " + std::to_string(small) + " and " + std::to_string(large) +
                   " units, accepted: 1 or more, and more than that"};
    if (rounds < 1) return error{"calibration rounds = 0, accepted: 1 or more"};
    return std::nullopt;
  }
};

/// Seconds that one more unit takes. seconds_of(units) does the work and says how long it took.
/// Errors: those of the work; a large amount that took no longer than the small one.
template <class SecondsOf>
[[nodiscard]] result<double> seconds_per_unit(const calibration_work& work, SecondsOf seconds_of) {
  if (auto bad = work.validate()) return *std::move(bad);
  auto small = std::numeric_limits<double>::infinity();
  auto large = small;
  for (std::size_t i = 0; i < work.rounds; ++i) {
    small = std::min<double>(small, seconds_of(work.small));
    large = std::min<double>(large, seconds_of(work.large));
  }
  const double more = large - small;
  if (!(more > 0))
    return error{std::to_string(work.large) + " units took no longer than " +
                 std::to_string(work.small) + ", accepted: work that takes time"};
  return more / static_cast<double>(work.large - work.small);
}

/// Seconds of the link for one byte. fills: at least work.large, each of `bytes`; their slots are overwritten.
/// Errors: as above; a copy that the backend refuses, or that fails.
template <class Clock = std::chrono::steady_clock, transfer_backend Backend>
[[nodiscard]] result<double> link_seconds_per_byte(Backend& backend,
                                                   typename Backend::stream_type& stream,
                                                   std::span<const fill> fills, std::uint64_t bytes,
                                                   const calibration_work& work) {
  if (bytes == 0 || work.large > fills.size())
    return error{"calibration of " + std::to_string(work.large) + " copies with " +
                 std::to_string(fills.size()) + " of " + std::to_string(bytes) +
                 " bytes, accepted: as many, of 1 byte or more"};
  bool failed = false;
  const auto copy = [&](std::size_t count) {
    const auto start = Clock::now();
    const auto sent = backend.submit(fills.first(count), stream, urgency::now);
    failed = failed || sent.accepted != count || backend.wait(sent.id) != transfer_state::arrived;
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  (void)copy(std::min(work.large,
                      fills.size()));  // pages are touched and threads woken for the first time
  const auto seconds = seconds_per_unit(work, copy);
  if (failed) return error{"calibration: a copy was refused or failed"};
  if (!seconds) return seconds.error();
  return *seconds / static_cast<double>(bytes);
}

}  // namespace hotset
