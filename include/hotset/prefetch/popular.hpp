// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests the experts that the next layer has used most often, or uses most often in a profile.
///
/// Rule: during layer l, requests the `count` experts of layer l+1 with the highest counts, for this step; during the
///   last layer, those of layer 0, for the next step. Counts rise once per visit that uses the expert; a profile's
///   counts never change. Ties go to the lower expert id. An expert with count 0 is not requested.
/// Source: BrainStorm, as the fMoE talk describes it; or any static profile, whose `source` says where its counts
///   come from.
/// Deviations: none. A profile of the replayed trace itself knows the future: say so in its name.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids) per visit; a used expert passes those whose count it overtakes. Memory: 16 bytes per key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/policy/prefetch_policy.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

class popular {
 public:
  static constexpr std::string_view name = "popular";

  struct config {
    std::int32_t count = 0;   ///< requested experts; 0: K
    usage_profile profile{};  ///< empty: running counts

    /// Parameters by name, as in `popular:count=4:profile=before.trace`.
    template <class From>
    static config read(From& from, const policy_knowledge& known) {
      config out;
      out.count = from.number("count", out.count);
      if (profile_of(from)) out.profile = known.profile;
      return out;
    }
    /// Returns nothing if the policy counts for itself; then `first` is not a parameter.
    template <class From>
    static std::optional<profile_request> profile_of(From& from) {
      auto source = from.text("profile", "running");
      if (source == "running") return std::nullopt;
      return profile_request{std::move(source), from.number("first", std::uint64_t{0})};
    }

    [[nodiscard]] validation validate() const {
      if (count < 0) return refusal("popular count = ", count, ", accepted: 0 (K) or more");
      return profile.validate(name);
    }
    /// Also checks that the profile has this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      return profile.validate(name, shape);
    }
  };
  static constexpr prefetch_traits traits{};

  /// Pre: options.validate(shape) returns no error.
  popular(const geometry& shape, const config& options)
      : layers_(shape.layers),
        experts_(shape.expert_count()),
        top_k_(shape.top_k),
        count_(static_cast<std::size_t>(
            std::min(options.count > 0 ? options.count : shape.top_k, shape.experts))),
        running_(options.profile.empty()),
        unique_(experts_, 0),
        ranked_(shape.keys()),
        rank_(shape.keys()),
        counts_(running_ ? std::vector<double>(shape.keys(), 0.0) : options.profile.counts),
        totals_(shape.layer_count(), 0.0),
        asked_for_(shape.layer_count(), 0) {
    HOTSET_ASSERT(!options.validate(shape));
    for (std::size_t layer = 0; layer < asked_for_.size(); ++layer) {
      const auto counts = std::span(counts_).subspan(layer * experts_, experts_);
      const auto of_layer = std::span(ranked_).subspan(layer * experts_, experts_);
      std::iota(of_layer.begin(), of_layer.end(), expert_id{});
      std::iota(&rank_[layer * experts_], &rank_[layer * experts_] + experts_, 0U);
      std::ranges::stable_sort(of_layer, std::greater<>(),
                               [counts](expert_id e) { return counts[index_of(e)]; });
      totals_[layer] = std::accumulate(counts.begin(), counts.end(), 0.0);
      asked_for_[layer] = experts_ - static_cast<std::size_t>(std::ranges::count(counts, 0.0));
    }
  }

  [[nodiscard]] std::int32_t depth() const noexcept { return 1; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return count_; }
  /// Pre: 0 <= view.layer < layers.
  void observe(const routing_view& view) noexcept {
    HOTSET_ASSERT(view.layer >= 0 && view.layer < layers_);
    if (!running_) return;
    const auto layer = index_of(view.layer);
    totals_[layer] += static_cast<double>(
        unique_.collect(view.experts, [&](std::size_t, expert_id e) { raise(layer, e); }));
  }
  /// A request's probability is the expert's share of the layer's counts, times K, at most 1.
  /// Pre: 0 <= view.layer < layers.
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast&,
                                    std::span<prefetch_request> out) noexcept {
    const bool wraps = view.layer + 1 >= layers_;
    const auto next = wraps ? layer_id{} : view.layer + 1;
    const auto step = view.step + (wraps ? 1U : 0U);
    const auto layer = index_of(next);
    const auto count = std::min({count_, asked_for_[layer], out.size()});
    for (std::size_t n = 0; n < count; ++n) {
      const auto expert = ranked_[layer * experts_ + n];
      out[n] = {{next, expert}, step, share(layer, expert)};
    }
    return count;
  }

 private:
  [[nodiscard]] std::size_t index(std::size_t layer, expert_id expert) const noexcept {
    return layer * experts_ + index_of(expert);
  }
  [[nodiscard]] float share(std::size_t layer, expert_id expert) const noexcept {
    const auto share = counts_[index(layer, expert)] / totals_[layer];
    return static_cast<float>(std::min(1.0, share * top_k_));
  }
  /// Counts one use, and moves the expert before those that it now precedes.
  void raise(std::size_t layer, expert_id expert) noexcept {
    const auto key = index(layer, expert);
    const auto uses = ++counts_[key];
    if (uses == 1.0) ++asked_for_[layer];
    expert_id* const ranked = &ranked_[layer * experts_];
    auto at = rank_[key];
    for (; at > 0; --at) {
      const auto before = ranked[at - 1];
      const auto others = counts_[index(layer, before)];
      if (others > uses || (others == uses && before < expert)) break;
      ranked[at] = before;
      rank_[index(layer, before)] = at;
    }
    ranked[at] = expert;
    rank_[key] = at;
  }

  std::int32_t layers_;
  std::size_t experts_;
  std::int32_t top_k_;
  std::size_t count_;
  bool running_;
  unique_ids unique_;
  std::vector<expert_id> ranked_;       // [layers, experts] most popular first
  std::vector<std::uint32_t> rank_;     // [key] its place in ranked_, while counts run
  std::vector<double> counts_;          // [key]
  std::vector<double> totals_;          // [layer] sums of counts_
  std::vector<std::size_t> asked_for_;  // [layer] number of counts above 0
};

static_assert(prefetch_policy<popular>);

}  // namespace hotset
