// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fetches every miss at the lowest precision, which gives the shortest copy.
///
/// Rule: an absent expert is copied at the lowest precision of the model. A resident expert serves at the precision
///   that it has. Prefetches use precision 0, because no visit waits for them.
/// Source: SpecMD 3.1.2 (Fetch-lowest-bit).
/// Deviations: the paper does not say what precision a prefetch has.
/// Exact: no.
/// Cost: O(1) per miss.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/policy/miss_policy.hpp"

namespace hotset {

namespace detail {
/// Returns why a policy that lowers precision does not suit a model, or nothing.
[[nodiscard]] inline validation validate_cascade(std::string_view policy, const geometry& shape) {
  if (shape.precisions() > 1) return std::nullopt;
  return refusal(policy, " needs two or more precisions, this model has ", shape.precisions(),
                 "; accepted: 2 or more");
}
}  // namespace detail

class fetch_lowest {
 public:
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return detail::validate_cascade(name, shape);
    }
  };
  static constexpr std::string_view name = "fetch_lowest";
  static constexpr miss_traits traits{};

  fetch_lowest(const geometry& shape, const config&)
      : lowest_(static_cast<precision_id>(shape.precisions() - 1)) {}

  void decide(std::span<const miss> misses, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n)
      out[n] = misses[n].held == miss::absent ? miss_decision{miss_action::fetch, lowest_}
                                              : miss_decision{miss_action::keep, precision_id{}};
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  precision_id lowest_;
};

static_assert(miss_policy<fetch_lowest>);

}  // namespace hotset
