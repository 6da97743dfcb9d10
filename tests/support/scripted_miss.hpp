// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A miss policy with scripted decisions that records its questions.

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/policy/miss_policy.hpp"

namespace hotset::support {

class scripted_miss {
 public:
  struct script {
    std::map<expert_id, miss_decision> decisions{};  ///< by expert
    precision_id otherwise{};                        ///< precision of other absent experts
    std::map<expert_id, expert_id> stand_ins{};      ///< by substituted expert
    precision_id prefetched{};
    std::vector<std::vector<miss>> asked{};
    std::vector<std::vector<slot_id>> rows{};  ///< rows at each question
    std::vector<std::vector<float>> observed{};
  };
  struct config {
    script* by = nullptr;
    [[nodiscard]] validation validate() const {
      if (by == nullptr) return error{"scripted_miss has no script, accepted: one"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "scripted_miss";
  static constexpr miss_traits traits{};

  scripted_miss(const geometry&, const config& options) : by_(options.by) {}

  void decide(std::span<const miss> misses, const routing_view&, const residency_view& residents,
              std::span<expert_id> ids, std::span<miss_decision> out) noexcept {
    by_->asked.emplace_back(misses.begin(), misses.end());
    by_->rows.emplace_back(residents.row.begin(), residents.row.end());
    for (std::size_t n = 0; n < misses.size(); ++n) {
      const auto e = misses[n].expert;
      const auto decided = by_->decisions.find(e);
      if (decided != by_->decisions.end())
        out[n] = decided->second;
      else if (misses[n].held == miss::absent)
        out[n] = {miss_action::fetch, by_->otherwise};
      else
        out[n] = {miss_action::keep, {}};
      if (out[n].action == miss_action::substitute)
        std::replace(ids.begin(), ids.end(), e, by_->stand_ins.at(e));
    }
  }
  void observe(std::span<const float> weights) noexcept {
    by_->observed.emplace_back(weights.begin(), weights.end());
  }
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return by_->prefetched; }

 private:
  script* by_;
};
static_assert(miss_policy<scripted_miss>);

inline constexpr miss_decision fetch_at(precision_id precision) {
  return {miss_action::fetch, precision};
}
inline constexpr miss_decision keep_low{miss_action::keep, {}};
inline constexpr miss_decision on_host{miss_action::host, {}};
inline constexpr miss_decision dropped{miss_action::drop, {}};
inline constexpr miss_decision substituted{miss_action::substitute, {}};

}  // namespace hotset::support
