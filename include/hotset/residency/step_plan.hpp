// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the pager decided for one visit (or one token group of it): hits, copies, and what stays on the host.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/concepts/admission_policy.hpp"
#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/concepts/miss_policy.hpp"
#include "hotset/core/access.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"

namespace hotset::inline v0 {

template <eviction_policy, admission_policy, miss_policy>
class pager;

/// How a distinct expert of a visit is served.
enum class service : std::uint8_t {
  hit,   ///< resident before the visit
  fill,  ///< copied into a slot for this visit
  host,  ///< refused a slot: the engine serves it from the host copy
};

namespace detail {

/// What a plan consists of.
class step_plan_state {
 public:
  step_plan_state() = default;
  explicit step_plan_state(const geometry& shape)
      : capacity_(std::min(static_cast<std::size_t>(shape.experts),
                           static_cast<std::size_t>(shape.max_tokens_per_visit) *
                               static_cast<std::size_t>(shape.top_k))),
        experts_(capacity_),
        slots_(capacity_),
        services_(capacity_),
        hits_(capacity_, service::hit),
        order_(capacity_),
        weights_(capacity_),
        ranks_(capacity_),
        fills_(capacity_),
        late_(capacity_),
        requested_(capacity_),
        requested_steps_(capacity_),
        request_of_(capacity_),
        deferred_(2 * capacity_) {}

  /// What every plan starts from; small, for it is written anew for each visit.
  struct counters {
    std::uint32_t distinct = 0;
    std::uint32_t fills = 0;
    std::uint32_t late = 0;
    std::uint32_t host = 0;
    std::uint32_t requested = 0;
    std::uint32_t deferred = 0;
    std::uint32_t dropped = 0;
    std::uint32_t substituted = 0;
    std::uint32_t ignored = 0;
    std::uint32_t groups = 1;
    std::uint32_t group = 0;
  };

 protected:
  visit_context context_{};
  counters count_{};
  std::span<const std::uint32_t> tokens_{};
  std::span<const expert_id> routed_{};
  std::uint64_t serial_ = 0;
  bool all_hits_ = true;    ///< then services_ is not written
  bool reordered_ = false;  ///< order_ differs from 0, 1, 2, ...
  bool expert_wise_ = false;
  bool speculative_ = false;
  bool judged_ = false;
  bool edited_ = false;
  std::uint32_t refused_ = 0;  ///< of a speculative plan: requests for which there was no slot
  std::size_t capacity_ = 0;
  std::vector<expert_id> experts_;
  std::vector<slot_id> slots_;
  std::vector<service> services_;
  std::vector<service> hits_;  ///< what services_ would hold if all are hits
  std::vector<std::uint32_t> order_;
  std::vector<double> weights_;
  std::vector<std::uint16_t> ranks_;
  std::vector<fill> fills_;
  std::vector<slot_id> late_;
  std::vector<access> requested_;         ///< resident keys that a prefetcher asked for
  std::vector<step_id> requested_steps_;  ///< by fill: the step that a speculative one is meant for
  std::vector<std::uint32_t> request_of_;  ///< by fill: position of its request
  std::vector<std::uint32_t> deferred_;    ///< with room for fills that are not made after all
};

}  // namespace detail

/// A buffer that a caller makes once and passes to every plan call. Only the pager writes it.
class step_plan : private detail::step_plan_state {
 public:
  step_plan() = default;
  explicit step_plan(const geometry& shape) : step_plan_state(shape) {}
  step_plan(const step_plan&) = default;
  step_plan& operator=(const step_plan&) = default;
  /// The other one is left without room for any visit: a pager refuses it.
  step_plan(step_plan&& other) noexcept : step_plan_state(other.leave()) {}
  step_plan& operator=(step_plan&& other) noexcept {
    step_plan_state::operator=(other.leave());
    return *this;
  }
  ~step_plan() = default;

  [[nodiscard]] const visit_context& context() const noexcept { return context_; }
  /// The distinct experts, in order of first appearance.
  [[nodiscard]] std::span<const expert_id> experts() const noexcept {
    return {experts_.data(), count_.distinct};
  }
  /// The slot of each of them; no_slot for one that stays on the host.
  [[nodiscard]] std::span<const slot_id> slots() const noexcept {
    return {slots_.data(), count_.distinct};
  }
  [[nodiscard]] std::span<const service> services() const noexcept {
    return {all_hits_ ? hits_.data() : services_.data(), count_.distinct};
  }
  /// The copies to make, in the order of need.
  [[nodiscard]] std::span<const fill> fills() const noexcept {
    return {fills_.data(), count_.fills};
  }
  [[nodiscard]] std::span<fill> fills() noexcept { return {fills_.data(), count_.fills}; }
  /// Slots of hits whose speculative copy may still be on its way: fence on them before use.
  [[nodiscard]] std::span<const slot_id> late_slots() const noexcept {
    return {late_.data(), count_.late};
  }
  /// True if nothing is copied and nothing stays on the host.
  [[nodiscard]] bool all_hits() const noexcept { return all_hits_; }
  [[nodiscard]] std::size_t host_count() const noexcept { return count_.host; }
  /// The routed ids of the whole visit, as an engine computes them: the view's own, or what a miss policy has made of
  /// them, -1 where an expert was dropped; then the engine renormalises the weights of what is left. Of a speculative
  /// plan none.
  [[nodiscard]] std::span<const expert_id> routed() const noexcept { return routed_; }
  /// True if a miss policy has changed what the router chose.
  [[nodiscard]] bool edited() const noexcept { return edited_; }
  /// Misses that no token uses after all.
  [[nodiscard]] std::size_t dropped_count() const noexcept { return count_.dropped; }
  [[nodiscard]] std::size_t substituted_count() const noexcept { return count_.substituted; }
  /// False if a miss policy was asked, whatever it decided.
  [[nodiscard]] bool undisputed() const noexcept { return !judged_; }
  /// Of a speculative plan: the position of the request that fill i is made for.
  [[nodiscard]] std::uint32_t request_of(std::size_t i) const noexcept { return request_of_[i]; }
  /// Of a speculative plan: positions of the requests that got no copy, ascending.
  [[nodiscard]] std::span<const std::uint32_t> deferred() const noexcept {
    return {deferred_.data(), count_.deferred};
  }
  /// Routed ids that named no expert of the layer.
  [[nodiscard]] std::size_t ignored_ids() const noexcept { return count_.ignored; }

  /// Token groups: 1 for a visit that fits.
  [[nodiscard]] std::size_t groups() const noexcept { return count_.groups; }
  [[nodiscard]] std::size_t group() const noexcept { return count_.group; }
  [[nodiscard]] bool more() const noexcept { return count_.group + 1 < count_.groups; }
  /// The tokens of this group, ascending: all of a visit in one group, and of every group in expert-wise mode. Of a
  /// speculative plan none.
  [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
  /// True if each group computes a part of every token's sum: the order of summation changes (not exact).
  [[nodiscard]] bool expert_wise() const noexcept { return expert_wise_; }
  [[nodiscard]] bool speculative() const noexcept { return speculative_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  template <eviction_policy, admission_policy, miss_policy>
  friend class pager;

  step_plan_state leave() noexcept {
    return std::exchange(static_cast<step_plan_state&>(*this), step_plan_state());
  }
  void reset() noexcept {
    count_ = counters{};
    judged_ = edited_ = false;
    all_hits_ = true;
    reordered_ = expert_wise_ = speculative_ = false;
  }
};

}  // namespace hotset::inline v0
