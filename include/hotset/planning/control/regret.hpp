// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many more copies a running cache made than the best that could be done with the same slots, window by window, and
/// what of it nobody could have known.
///
/// Rule: a window holds the distinct experts of the last visits; at its end two judges replay it from the residents that the
/// window began with: belady, and next_visit_oracle, which is told each layer's next visit. Fills divide into those that belady
/// has too (unavoidable), those more that the oracle has (beyond the horizon of the next visit), and the rest (ours).
/// Regret is fills / belady's fills - 1.
/// Source: none of the papers; Belady 1966 for the bound, with forced admission, as the simulator's; the horizon is ours.
/// Deviations: experts that the window does not use again count as never used, so the bound is that of the window. The
/// oracle's rates have seen the windows before this one, in the first they begin with nothing. It is no optimum: a cache may
/// copy less than it. What a split visit's groups use is told to the judges as the whole visit's.
/// Cost: observe O(ids); begin_window O(visits of the last window * experts); end_window two replays of the window. Memory:
/// visits * experts of a layer, at most, and 16 bytes a key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/next_visit_oracle.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/predict/history/two_rates.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset {

/// Threads: compatible. observe allocates nothing once a window has been seen; the ends of windows allocate.
class regret {
 public:
  struct config {
    std::size_t visits = 4096;  ///< of a window, at most

    [[nodiscard]] validation validate() const {
      if (visits < 1 || visits > (std::size_t{1} << 24U))
        return error{"regret visits = " + std::to_string(visits) + ", accepted: 1..16777216"};
      return std::nullopt;
    }
  };
  /// What was counted so far.
  struct outcome {
    std::uint64_t visits = 0;
    std::uint64_t fills = 0;
    std::uint64_t best_fills = 0;        ///< belady's
    std::uint64_t next_visit_fills = 0;  ///< next_visit_oracle's; may be more than fills

    // What the fills are made of: the three add up to them, and none is negative.

    /// Whatever were known of the window.
    [[nodiscard]] std::uint64_t unavoidable() const noexcept { return std::min(best_fills, fills); }
    /// For want of what comes after each layer's next visit. All that is above belady's where the cache did better than
    /// the oracle.
    [[nodiscard]] std::uint64_t horizon() const noexcept {
      const auto theirs = std::min(next_visit_fills, fills);
      return theirs - std::min(theirs, unavoidable());
    }
    /// That knowing each layer's next visit would have saved.
    [[nodiscard]] std::uint64_t ours() const noexcept { return fills - unavoidable() - horizon(); }
    /// 0 where belady copies nothing either.
    [[nodiscard]] double ratio() const noexcept {
      if (best_fills == 0) return 0;
      return static_cast<double>(fills) / static_cast<double>(best_fills) - 1;
    }
  };

  /// Pre: options.validate() has nothing to say.
  regret(pool_layout layout, const config& options)
      : layout_(std::move(layout)),
        visits_(options.visits),
        distinct_(shape().expert_count(), most_ids()),
        scratch_(std::min(shape().expert_count(), most_ids())),
        past_(shape(), {}) {
    ends_.reserve(visits_);
    layers_.reserve(visits_);
  }

  /// Begins a window: who is resident (pager::residents(), the least wanted first) and the fills so far. The visits of the
  /// one before are the past from now on.
  void begin_window(std::vector<expert_key> residents, std::uint64_t fills) {
    for (std::size_t i = 0; i < ends_.size(); ++i) past_.visit(layers_[i], visit(i));
    residents_ = std::move(residents);
    fills_before_ = fills;
    ids_.clear();
    ends_.clear();
    layers_.clear();
  }
  /// False if the window is full and the visit was left out: end it.
  bool observe(const routing_view& view) {
    if (ends_.size() == visits_) return false;
    const auto count = distinct_.collect(view.experts, scratch_.data());
    ids_.insert(ids_.end(), scratch_.begin(), scratch_.begin() + count);
    ends_.push_back(ids_.size());
    layers_.push_back(view.layer);
    return true;
  }
  [[nodiscard]] bool is_full() const noexcept { return ends_.size() == visits_; }

  /// Judges the window. `fills`: so far. Errors: a visit that does not fit a pool.
  [[nodiscard]] result<outcome> end_window(std::uint64_t fills) const {
    auto made = future_uses::create(shape(), events());
    if (!made) return made.error();
    const auto future = std::make_shared<const future_uses>(*std::move(made));
    const auto best = fills_of<belady>({.future = future});
    if (!best) return best.error();
    const auto next_visit = fills_of<next_visit_oracle>(
        {.future = future, .past = std::make_shared<const two_rates>(past_)});
    if (!next_visit) return next_visit.error();
    return outcome{ends_.size(), fills - fills_before_, *best, *next_visit};
  }

 private:
  [[nodiscard]] const geometry& shape() const noexcept { return layout_.shape(); }
  [[nodiscard]] std::size_t most_ids() const noexcept { return shape().ids_per_visit(); }
  [[nodiscard]] id_view<expert_id> visit(std::size_t i) const noexcept {
    const auto begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(ids_).subspan(begin, ends_[i] - begin);
  }
  [[nodiscard]] std::vector<future_uses::event> events() const {
    std::vector<future_uses::event> out;
    out.reserve(ids_.size());
    for (std::size_t i = 0; i < ends_.size(); ++i)
      for (const auto id : visit(i)) out.push_back({i, {layers_[i], id}});
    return out;
  }
  /// Of a cache with that eviction over the window.
  template <class Eviction>
  [[nodiscard]] result<std::uint64_t> fills_of(typename Eviction::config knowing) const {
    auto pages = pager<Eviction>::create({.layout = layout_, .eviction = std::move(knowing)});
    if (!pages) return pages.error();
    warm(*pages);
    if (const auto bad = replay(*pages); bad != status::ok)
      return error{"a visit of the window: " + std::string(describe(bad)) +
                   ", accepted: visits that the cache served"};
    return pages->stats().fills;
  }
  template <class Pager>
  void warm(Pager& pages) const {
    auto plan = pages.make_plan();
    for (std::span<const expert_key> left = residents_; !left.empty();) {
      const auto [code, consumed] = pages.plan_warm(left, plan);
      if (code != status::ok || consumed == 0) return;
      const std::vector<fill> fills(plan.fills().begin(), plan.fills().end());
      if (pages.commit(plan) != status::ok) return;
      for (const auto& f : fills) pages.arrived(f.slot, f.generation);
      left = left.subspan(consumed);
    }
  }
  /// A visit's experts as tokens of top_k each, the last one filled up with absent ids.
  template <class Pager>
  status replay(Pager& pages) const {
    auto plan = pages.make_plan();
    std::vector<expert_id> padded;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const auto ids = visit(i);
      padded.assign(ids.begin(), ids.end());
      const auto k = shape().ranks();
      padded.resize((padded.size() + k - 1) / k * k, no_expert);
      if (padded.empty()) continue;
      routing_view view;
      view.layer = layers_[i];
      view.step = i;
      view.ordinal = i;
      view.experts = padded;
      const auto code = pages.serve(view, plan, [](const visit_group&) {});
      if (code != status::ok) return code;
    }
    return status::ok;
  }

  pool_layout layout_;
  std::size_t visits_ = 0;
  std::vector<expert_key> residents_;
  std::uint64_t fills_before_ = 0;
  std::vector<expert_id> ids_;     ///< distinct experts of all visits
  std::vector<std::size_t> ends_;  ///< by visit, in ids_
  std::vector<layer_id> layers_;   ///< by visit
  unique_ids distinct_;
  std::vector<expert_id> scratch_;  ///< of one visit
  two_rates past_;                  ///< of the windows before
};

}  // namespace hotset
