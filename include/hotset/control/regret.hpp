// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many more copies a running cache made than the best that could be done with the same slots, window by window.
///
/// Rule: a window holds the distinct experts of the last visits; at its end belady replays it from the residents that the
/// window began with. Regret is fills / belady's fills - 1.
/// Source: none of the papers; Belady 1966 for the bound, with forced admission, as the simulator's.
/// Deviations: experts that the window does not use again count as never used, so the bound is that of the window.
/// Cost: observe O(ids); end_window a replay of the window. Memory: visits * experts of a layer, at most.

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
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/unique_ids.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset::inline v0 {

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
  struct outcome {
    std::uint64_t visits = 0;
    std::uint64_t fills = 0;
    std::uint64_t best_fills = 0;
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
        distinct_(static_cast<std::size_t>(shape().experts), most_ids()),
        scratch_(std::min(static_cast<std::size_t>(shape().experts), most_ids())) {
    ends_.reserve(visits_);
    layers_.reserve(visits_);
  }

  /// Begins a window: who is resident (pager::residents(), the least wanted first) and the fills so far.
  void begin_window(std::vector<expert_key> residents, std::uint64_t fills) {
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
    auto future = future_uses::create(shape(), events());
    if (!future) return future.reason();
    auto best = pager<belady>::create(
        {.layout = layout_,
         .eviction = {.future = std::make_shared<const future_uses>(*std::move(future))}});
    if (!best) return best.reason();
    warm(*best);
    outcome out;
    out.visits = ends_.size();
    out.fills = fills - fills_before_;
    if (const auto bad = replay(*best); bad != status::ok)
      return error{"a visit of the window: " + std::string(describe(bad)) +
                   ", accepted: visits that the cache served"};
    out.best_fills = best->stats().fills;
    return out;
  }

 private:
  [[nodiscard]] const geometry& shape() const noexcept { return layout_.shape(); }
  [[nodiscard]] std::size_t most_ids() const noexcept {
    return static_cast<std::size_t>(shape().max_tokens_per_visit) *
           static_cast<std::size_t>(shape().top_k);
  }
  [[nodiscard]] std::span<const expert_id> visit(std::size_t i) const noexcept {
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
  void warm(pager<belady>& pages) const {
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
  status replay(pager<belady>& pages) const {
    auto plan = pages.make_plan();
    std::vector<expert_id> padded;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const auto ids = visit(i);
      padded.assign(ids.begin(), ids.end());
      const auto k = static_cast<std::size_t>(shape().top_k);
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
};

}  // namespace hotset::inline v0
