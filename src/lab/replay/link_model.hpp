// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Time of a copy over one link, and of each of its chunks, in whole nanoseconds.

#include <cstdint>

#include "hotset/core/error.hpp"
#include "hotset/core/numbers/units.hpp"

namespace hotset {

/// A time on a clock that starts at 0, or a duration. Units: nanoseconds.
using ticks = std::uint64_t;

/// A copy of b bytes takes latency + ceil(b / bandwidth). The end of each chunk is rounded from the copy's beginning,
/// not from the chunk's: the chunks together take exactly as long as the copy. One fill is one copy.
/// Complexity: O(1), integers only. Pre: times on one clock stay below 2^64 ns, 584 years.
class link_model {
 public:
  struct config {
    std::uint64_t bytes_per_second = 0;
    ticks latency = 0;  ///< per copy, before its first byte
    /// A copy can be pre-empted at chunk borders; 0: not at all.
    std::uint64_t chunk_bytes = 1_MiB;
    static constexpr ticks max_latency = 1'000'000'000'000;

    [[nodiscard]] validation validate() const {
      if (bytes_per_second == 0) return error{"bytes_per_second = 0, accepted: 1 or more"};
      if (latency > max_latency)
        return refusal("latency = ", latency, " ns, accepted: 0..", max_latency);
      return std::nullopt;
    }
  };

  /// Errors: throws invalid_config.
  explicit link_model(const config& setup) : setup_(setup) { require_valid(setup.validate()); }
  /// A link on which copies take no time.
  static link_model instant() noexcept { return link_model({.chunk_bytes = 0}, unchecked{}); }

  [[nodiscard]] bool is_instant() const noexcept { return setup_.bytes_per_second == 0; }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return setup_.chunk_bytes; }
  /// Returns at least 1.
  [[nodiscard]] std::uint64_t chunks_of(std::uint64_t bytes) const noexcept {
    if (setup_.chunk_bytes == 0 || bytes == 0) return 1;
    return (bytes - 1) / setup_.chunk_bytes + 1;
  }
  /// Bytes that the first `chunks` chunks of a copy carry.
  [[nodiscard]] std::uint64_t bytes_until(std::uint64_t bytes,
                                          std::uint64_t chunks) const noexcept {
    return chunks < chunks_of(bytes) ? chunks * setup_.chunk_bytes : bytes;
  }
  [[nodiscard]] ticks time_of(std::uint64_t bytes) const noexcept {
    return setup_.latency + carry(bytes);
  }
  /// Time of the first `chunks` chunks of a copy of `bytes`.
  [[nodiscard]] ticks time_until(std::uint64_t bytes, std::uint64_t chunks) const noexcept {
    return chunks == 0 ? 0 : time_of(bytes_until(bytes, chunks));
  }
  /// Smallest number of chunks that take at least `time`, at least 1; all chunks if the copy is shorter.
  [[nodiscard]] std::uint64_t chunks_by(std::uint64_t bytes, ticks time) const noexcept {
    const auto all = chunks_of(bytes);
    if (is_instant() || all == 1) return all;
    if (time <= setup_.latency) return 1;
    // ceil(n * chunk * second / rate) >= left if n * chunk * second > (left - 1) * rate
    const wide left = time - setup_.latency;
    const wide full = (left - 1) * setup_.bytes_per_second / (wide{setup_.chunk_bytes} * second);
    return full < all ? static_cast<std::uint64_t>(full) + 1 : all;
  }

 private:
  __extension__ using wide = unsigned __int128;
  static constexpr std::uint64_t second = 1'000'000'000;
  struct unchecked {};

  link_model(const config& setup, unchecked) noexcept : setup_(setup) {}

  [[nodiscard]] ticks carry(std::uint64_t bytes) const noexcept {
    if (is_instant()) return 0;
    const wide rate = setup_.bytes_per_second;
    return static_cast<ticks>((wide{bytes} * second + rate - 1) / rate);
  }

  config setup_;
};

}  // namespace hotset
