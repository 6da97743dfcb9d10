// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Does without the misses that no token ranks high.
///
/// Rule: an absent expert whose best rank in the visit is among the first `keep` is fetched at precision 0;
///       any other absent one is dropped, and the engine renormalises what is left of each token.
/// Source: SpecMD 3.1.2 (Drop: "resilient beyond rank 2"), after Skliar et al.
/// Deviations: none. A resident copy of a lower precision is no miss to this rule: it is used.
/// Exact: no.
/// Cost: O(1) per miss.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hotset/concepts/miss_policy.hpp"

namespace hotset::inline v0 {

namespace detail {
[[nodiscard]] constexpr bool is_dropped(const miss& m, std::uint32_t keep) noexcept {
  return m.held == miss::absent && m.rank >= keep;
}
/// With none kept a token could be left without any expert.
[[nodiscard]] inline validation validate_keep(std::string_view policy, std::uint32_t keep) {
  if (keep < 1) return error{std::string(policy) + " keep = 0, accepted: 1 or more"};
  return std::nullopt;
}
}  // namespace detail

class drop {
 public:
  struct config {
    std::uint32_t keep = 2;  ///< ranks that are never dropped, from the best
    /// Parameters by name, as in `drop:keep=2`.
    template <class From>
    static config read(From& from) {
      config out;
      out.keep = from.number("keep", out.keep);
      return out;
    }
    [[nodiscard]] validation validate() const { return detail::validate_keep(name, keep); }
  };
  static constexpr std::string_view name = "drop";
  static constexpr miss_traits traits{};

  explicit drop(const geometry& shape) : drop(shape, config{}) {}
  drop(const geometry&, const config& options) : keep_(options.keep) {}

  void decide(std::span<const miss> misses, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n) {
      out[n] = {miss_action::fetch, 0};
      if (misses[n].held != miss::absent) out[n].action = miss_action::keep;
      if (detail::is_dropped(misses[n], keep_)) out[n].action = miss_action::drop;
    }
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return 0; }

 private:
  std::uint32_t keep_;
};

static_assert(miss_policy<drop>);

}  // namespace hotset::inline v0
