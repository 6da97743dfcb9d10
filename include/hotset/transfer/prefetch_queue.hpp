// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Prefetch requests that wait for a slot and for the link, ordered by visit or by predicted score.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Counters of a queue. Each added request is issued, expired, displaced or still waiting.
struct prefetch_queue_stats {
  std::uint64_t added = 0;
  std::uint64_t repeated = 0;   ///< the key was already waiting; not added
  std::uint64_t issued = 0;     ///< removed because the expert was copied or found resident
  std::uint64_t expired = 0;    ///< its visit came first, or its expert was invalidated
  std::uint64_t displaced = 0;  ///< removed because the queue was full
  friend bool operator==(const prefetch_queue_stats&, const prefetch_queue_stats&) = default;
};

/// Order of requests.
enum class fill_order : std::uint8_t {
  nearest,  ///< by visit (step, layer), then in order of addition
  /// Largest probability / visits until its use (fMoE), updated with every visit; ties: the visit, then the id.
  likeliest,
  /// Largest predicted probability, for predictors that discount distance themselves; ties as `likeliest`.
  greatest
};

/// A key waits once, for the nearest requested visit. Of two requests for one visit, `nearest` keeps the first; the
/// other orders keep the newer probability.
/// Complexity: every operation O(waiting); with `likeliest`, a new visit costs O(waiting log waiting). No allocation
/// after construction.
class prefetch_queue {
 public:
  struct config {
    std::size_t most_waiting = 256;
    fill_order order = fill_order::nearest;
    [[nodiscard]] validation validate() const {
      if (order > fill_order::greatest)
        return refusal("queue order = ", static_cast<int>(order),
                       ", accepted: 0 (nearest), 1 (likeliest), 2 (greatest)");
      if (most_waiting < 1 || most_waiting > (std::size_t{1} << 20U))
        return refusal("most_waiting = ", most_waiting, ", accepted: 1..1048576");
      return std::nullopt;
    }
  };

  prefetch_queue() : prefetch_queue(config{}) {}
  /// `layers`: layers of a step, used to count the visits between two steps.
  explicit prefetch_queue(const config& setup, std::int32_t layers = 1)
      : most_(std::max<std::size_t>(setup.most_waiting, 1)), order_(setup.order), layers_(layers) {
    waiting_.reserve(most_ + 1);
  }

  /// Adds a request. A full queue drops its last request, which may be the new one.
  void add(const prefetch_request& request) noexcept {
    const auto same = std::ranges::find(waiting_, request.key, &prefetch_request::key);
    if (same != waiting_.end()) {
      ++stats_.repeated;
      if (!replaces(request, *same)) return;
      waiting_.erase(same);
    } else {
      ++stats_.added;
    }
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), request, in_order{*this}),
                    request);
    if (waiting_.size() <= most_) return;
    waiting_.pop_back();
    ++stats_.displaced;
  }

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  [[nodiscard]] std::span<const prefetch_request> requests() const noexcept { return waiting_; }

  /// Removes `count` requests from `first` on, except those at `kept` (ascending, relative to `first`). Counts them as
  /// issued.
  void take(std::size_t first, std::size_t count, std::span<const std::uint32_t> kept) noexcept {
    const auto begin = waiting_.begin() + static_cast<std::ptrdiff_t>(first);
    auto to = begin;
    for (const auto at : kept) *to++ = begin[static_cast<std::ptrdiff_t>(at)];
    waiting_.erase(to, begin + static_cast<std::ptrdiff_t>(count));
    stats_.issued += count - kept.size();
  }
  /// Removes requests for a visit that has come, or for an earlier one: they are too late.
  void expire(step_id step, layer_id layer) noexcept {
    expire_if([&](const prefetch_request& r) {
      return r.for_step < step || (r.for_step == step && r.key.layer <= layer);
    });
    advance(step, layer);
  }
  /// Sets the running visit, from which `likeliest` counts distances.
  void advance(step_id step, layer_id layer) noexcept {
    if (order_ != fill_order::likeliest || (step_ == step && layer_ == layer)) return;
    step_ = step;
    layer_ = layer;
    std::sort(waiting_.begin(), waiting_.end(), in_order{*this});
  }
  void forget(expert_key key) noexcept {
    expire_if([&](const prefetch_request& r) { return r.key == key; });
  }
  void forget(layer_id layer) noexcept {
    expire_if([&](const prefetch_request& r) { return r.key.layer == layer; });
  }
  [[nodiscard]] const prefetch_queue_stats& stats() const noexcept { return stats_; }

 private:
  struct in_order {
    const prefetch_queue& queue;
    bool operator()(const prefetch_request& a, const prefetch_request& b) const noexcept {
      if (queue.order_ == fill_order::nearest) return before(a, b);
      const auto p = queue.urgency_of(a);
      const auto q = queue.urgency_of(b);
      if (p != q) return p > q;
      if (before(a, b) || before(b, a)) return before(a, b);
      return a.key.expert < b.key.expert;
    }
  };
  /// A NaN probability counts as 0. A request for an earlier visit counts as the nearest.
  [[nodiscard]] double urgency_of(const prefetch_request& r) const noexcept {
    if (!(r.probability > 0)) return 0;
    const double p{r.probability};
    if (order_ == fill_order::greatest || r.for_step < step_) return p;
    const auto visits = static_cast<double>(r.for_step - step_) * layers_ + (r.key.layer - layer_);
    return p / std::max(visits, 1.0);
  }
  [[nodiscard]] bool replaces(const prefetch_request& request,
                              const prefetch_request& waits) const noexcept {
    if (order_ == fill_order::nearest) return before(request, waits);
    return !before(waits, request);
  }
  static bool before(const prefetch_request& a, const prefetch_request& b) noexcept {
    return a.for_step != b.for_step ? a.for_step < b.for_step : a.key.layer < b.key.layer;
  }
  template <class Is>
  void expire_if(Is is) noexcept {
    stats_.expired += std::erase_if(waiting_, is);
  }

  std::size_t most_;
  fill_order order_ = fill_order::nearest;
  std::int32_t layers_ = 1;
  step_id step_ = 0;  ///< step of the running visit
  layer_id layer_ = before_layers;
  std::vector<prefetch_request> waiting_;
  prefetch_queue_stats stats_;
};

}  // namespace hotset
