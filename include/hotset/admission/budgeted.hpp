// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Admits a limited number of misses per visit: those of the most recently used keys.
///
/// Rule: a visit admits `fills_per_visit` misses, those whose last use is latest. Keys never used come last; ties go
///   to the earlier key in routed order.
/// Source: none; limits the bytes that one visit puts on the link.
/// Deviations: none.
/// Exact: yes, if the miss policy serves a refused key exactly.
/// Cost: O(m n) for n misses and a limit of m; O(1) per use. Memory: 8 bytes per key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/ids/per_key.hpp"
#include "hotset/policy/admission_policy.hpp"

namespace hotset {

class budgeted {
 public:
  struct config {
    std::uint64_t fills_per_visit = 4;
    /// Parameters by name, as in `budgeted:fills_per_visit=4`.
    template <class From>
    static config read(From& from) {
      return {from.number("fills_per_visit", config{}.fills_per_visit)};
    }
    // 0 is valid: admits nothing.
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "budgeted";
  static constexpr admission_traits traits{.admits_all = false};

  budgeted(const pool_layout& layout, const config& options)
      : allowance_(options.fills_per_visit), last_use_(layout.shape()) {}

  void admit(const visit_context&, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    std::fill_n(admitted.begin(), misses.size(), std::uint8_t{0});
    for (std::uint64_t n = 0; n < std::min<std::uint64_t>(allowance_, misses.size()); ++n) {
      std::size_t best = misses.size();
      for (std::size_t m = 0; m < misses.size(); ++m)
        if (admitted[m] == 0 &&
            (best == misses.size() || last_use(misses[m]) > last_use(misses[best])))
          best = m;
      admitted[best] = 1;
    }
  }
  void on_use(const expert_use& a, bool, bool) noexcept { last_use_[a.key] = ++clock_; }
  void on_evict(expert_key, step_id) noexcept {}

 private:
  [[nodiscard]] std::uint64_t last_use(const expert_use& a) const noexcept {
    return last_use_[a.key];
  }

  std::uint64_t allowance_;
  std::uint64_t clock_ = 0;
  per_key<std::uint64_t> last_use_;  // [key] clock at the last use, 0: never
};

static_assert(admission_policy<budgeted>);

}  // namespace hotset
