// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Admits a key on its n-th miss, later if it was evicted recently.
///
/// Rule: a key is admitted on its `uses`-th miss since its last eviction. Within `window` steps of that eviction, it
///   is admitted on its `after_eviction`-th miss instead. A visit counts once. Admission sets the count to 0.
/// Source: none; common practice against thrash.
/// Deviations: none.
/// Exact: yes, if the miss policy serves a refused key exactly.
/// Cost: O(1) per miss and per use. Memory: 16 bytes per key.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/ids/per_key.hpp"
#include "hotset/policy/admission_policy.hpp"

namespace hotset {

class after_n_uses {
 public:
  struct config {
    std::uint64_t uses = 2;
    std::uint64_t after_eviction = 3;
    std::uint64_t window = 16;  ///< steps
    /// Parameters by name, as in `after_n_uses:uses=2:window=16`.
    template <class From>
    static config read(From& from) {
      config out;
      out.uses = from.number("uses", out.uses);
      out.after_eviction = from.number("after_eviction", std::max(out.after_eviction, out.uses));
      out.window = from.number("window", out.window);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (uses < 1) return error{"after_n_uses uses = 0, accepted: 1 or more"};
      if (after_eviction < uses)
        return refusal("after_n_uses after_eviction = ", after_eviction, ", accepted: uses (", uses,
                       ") or more");
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "after_n_uses";
  static constexpr admission_traits traits{.admits_all = false};

  after_n_uses(const pool_layout& layout, const config& options)
      : options_(options), keys_(layout.shape()) {}

  void admit(const visit_context&, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n) {
      const auto& a = misses[n];
      const auto& k = keys_[a.key];
      const auto needed = a.step < k.wary_until ? options_.after_eviction : options_.uses;
      admitted[n] = k.misses + (a.repeated ? 0U : 1U) >= needed ? 1 : 0;
    }
  }
  void on_use(const expert_use& a, bool hit, bool admitted) noexcept {
    // Branch-free: misses and admissions are unpredictable.
    auto& misses = keys_[a.key].misses;
    const auto counted = misses + static_cast<std::uint64_t>(!hit & !a.repeated);
    misses = counted * static_cast<std::uint64_t>(hit | !admitted);
  }
  void on_evict(expert_key key, step_id step) noexcept {
    auto& k = keys_[key];
    k.misses = 0;
    const auto last = ~step_id{0} - 1;
    k.wary_until = (options_.window < last - step ? step + options_.window : last) + 1;
  }

 private:
  struct record {
    std::uint64_t misses = 0;
    step_id wary_until = 0;  ///< first step in which `uses` misses are enough again
  };

  config options_;
  per_key<record> keys_;
};

static_assert(admission_policy<after_n_uses>);

}  // namespace hotset
