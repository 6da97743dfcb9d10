// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decorator: a prefill does not evict recently decoded experts.
///
/// Rule: during a prefill visit, slots that a decode (or verify) visit used in the running step or in the `window`
///   steps before it are not offered to the inner policy. If victims are still missing, they come from these slots,
///   in the inner policy's order. For other visits the inner policy is unchanged.
/// Source: none; the fault that it fixes is reported as imp #1408.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the inner policy's, plus O(1) per decode use (amortised over expiry), plus O(S / 64) per choice of a
///   prefill.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/policy/eviction_decorator.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

template <eviction_policy P>
class protect_decode : public eviction_decorator<P> {
  using eviction_decorator<P>::inner_;

 public:
  struct config {
    std::uint64_t window = 16;  ///< steps
    typename P::config inner{};
    /// Parameters by name, as in `protect_decode:window=16`.
    template <class From>
    static config read(From& from) {
      return {.window = from.number("window", config{}.window)};
    }
    [[nodiscard]] validation validate() const { return inner.validate(); }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return validate_for(inner, shape);
    }
  };
  static constexpr std::string_view name = "protect_decode";
  static constexpr eviction_traits traits = detail::moving(detail::decorator_of(P::traits));

  protect_decode(const pool_layout& layout, const config& options)
      : eviction_decorator<P>(layout, options.inner),
        window_(options.window),
        used_in_(layout.slots(), 0),
        uses_(layout.slots(), 1),
        recent_(layout.slots()),
        offered_(layout.slots()) {}

  void on_visit(const visit_event& e) noexcept {
    if (e.begins) expire(e.context.step);
    for (const auto& f : e.fills)
      if (f.victim != no_key) forget(f.slot);
    if (e.context.kind != request_class::prefill) use(e.used, e.context.step);
    inner_.on_visit(e);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    forget(slot);
    inner_.on_evict(slot, key);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    used_in_[to] = used_in_[from];
    if (recent_.test(from)) uses_.take_place(from, to);
    recent_.assign(to, recent_.test(from));
    recent_.reset(from);
    inner_.on_move(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (context.kind != request_class::prefill)
      return inner_.select_victims(context, eligible, out);
    expire(context.step);
    offered_.assign_difference(eligible, recent_);
    const auto others = inner_.select_victims(context, offered_, out);
    if (others == out.size()) return others;
    offered_.assign_intersection(eligible, recent_);
    return others + inner_.select_victims(context, offered_, out.subspan(others));
  }

  [[nodiscard]] eviction_traits facts() const noexcept { return detail::moving(facts_of(inner_)); }

 private:
  void use(std::span<const slot_id> slots, step_id step) noexcept {
    for (const auto slot : slots) {
      used_in_[slot] = step;
      recent_.set(slot);
    }
    uses_.move_to_back(0, slots);
  }
  void forget(slot_id slot) noexcept {
    uses_.erase(slot);
    recent_.reset(slot);
  }
  void expire(step_id now) noexcept {
    for (auto s = uses_.front(0); s != no_slot; s = uses_.front(0)) {
      const auto step = used_in_[s];
      if (step >= now || now - step <= window_) break;
      forget(s);
    }
  }

  std::uint64_t window_;
  per_slot<step_id> used_in_;  // [slot] step of the last decode use
  recency_list uses_;          // decode uses within the window, oldest first
  slot_mask recent_;           // the slots of uses_, as a set
  slot_mask offered_;
};

}  // namespace hotset
