// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Drops low-ranked misses and fetches the others at a precision that follows their weight.
///
/// Rule: `drop` decides which misses are dropped. `fetch_priority` decides the precision of the others, and when a
///   resident copy of a lower precision serves.
/// Source: SpecMD 5.4 (Drop Priority Cascade).
/// Deviations: the paper names it and defines nothing; the combination of these two rules is ours.
/// Exact: no.
/// Cost: that of fetch_priority.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/miss/drop.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "hotset/policy/miss_policy.hpp"

namespace hotset {

class drop_cascade {
 public:
  struct config {
    std::uint32_t keep = 2;     ///< ranks that are never dropped, counted from the best
    double percentile = 60.0;   ///< in (0, 100)
    std::size_t window = 4096;  ///< number of recent gate weights
    [[nodiscard]] fetch_priority::config cascade() const { return {percentile, window}; }
    /// Parameters by name, as in `drop_cascade:keep=2:percentile=60`.
    template <class From>
    static config read(From& from) {
      return {.keep = from.number("keep", config{}.keep),
              .percentile = from.real("percentile", config{}.percentile),
              .window = from.number("window", config{}.window)};
    }
    [[nodiscard]] validation validate() const {
      if (auto bad = detail::validate_keep(name, keep)) return bad;
      return cascade().validate_as(name);
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return detail::validate_cascade(name, shape);
    }
  };
  static constexpr std::string_view name = "drop_cascade";
  static constexpr miss_traits traits{.needs_weights = true};

  drop_cascade(const geometry& shape, const config& options)
      : keep_(options.keep), cascade_(shape, options.cascade()) {}

  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept {
    cascade_.decide(misses, view, residents, ids, out);
    for (std::size_t n = 0; n < misses.size(); ++n)
      if (detail::is_dropped(misses[n], keep_)) out[n] = {miss_action::drop, precision_id{}};
  }
  void observe(std::span<const float> weights) noexcept { cascade_.observe(weights); }
  [[nodiscard]] precision_id prefetch_precision() const noexcept {
    return cascade_.prefetch_precision();
  }

 private:
  std::uint32_t keep_;
  fetch_priority cascade_;
};

static_assert(miss_policy<drop_cascade>);

}  // namespace hotset
