// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decorator: protects keys that were used often since their fill.
///
/// Rule: slots used by at least `uses` visits since their fill are not offered to the inner policy. If victims are
///   still missing, they come from these slots, in the inner policy's order.
/// Source: none; common practice.
/// Deviations: none. A key refilled within one visit has one use since that fill.
/// Exact: yes (never changes what is computed).
/// Cost: the inner policy's, plus O(1) per hit and fill, plus O(S / 64) per choice.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/policy/eviction_decorator.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

template <eviction_policy P>
class protect_hot : public eviction_decorator<P> {
  using eviction_decorator<P>::inner_;

 public:
  struct config {
    std::uint64_t uses = 4;
    typename P::config inner{};
    /// Parameters by name, as in `protect_hot:uses=4`.
    template <class From>
    static config read(From& from) {
      return {.uses = from.number("uses", config{}.uses)};
    }
    [[nodiscard]] validation validate() const {
      if (uses < 1) return error{"protect_hot uses = 0, accepted: 1 or more"};
      return inner.validate();
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return validate_for(inner, shape);
    }
  };
  static constexpr std::string_view name = "protect_hot";
  static constexpr eviction_traits traits = detail::decorator_of(P::traits);

  protect_hot(const pool_layout& layout, const config& options)
      : eviction_decorator<P>(layout, options.inner),
        enough_(options.uses),
        uses_(layout.slots(), 0),
        hot_(layout.slots()),
        offered_(layout.slots()) {}

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills) forget(f.slot);
    if (e.counted.empty())
      for (const auto slot : e.used) count(slot);
    else
      e.each_use([&](std::size_t i, bool is_filled) {
        if (is_filled || !e.repeats(e.experts[i])) count(e.used[i]);
      });
    inner_.on_visit(e);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    forget(slot);
    inner_.on_evict(slot, key);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    uses_[to] = std::exchange(uses_[from], 0);
    hot_.assign(to, hot_.test(from));
    hot_.reset(from);
    inner_.on_move(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    offered_.assign_difference(eligible, hot_);
    const auto cold = inner_.select_victims(context, offered_, out);
    if (cold == out.size()) return cold;
    // All eligible cold slots are taken: the rest are hot.
    offered_.assign_intersection(eligible, hot_);
    return cold + inner_.select_victims(context, offered_, out.subspan(cold));
  }

  [[nodiscard]] eviction_traits facts() const noexcept { return facts_of(inner_); }

 private:
  void forget(slot_id slot) noexcept {
    uses_[slot] = 0;
    hot_.reset(slot);
  }
  void count(slot_id slot) noexcept {
    if (++uses_[slot] == enough_) hot_.set(slot);
  }

  std::uint64_t enough_;
  per_slot<std::uint64_t> uses_;  // [slot] visits since the fill
  slot_mask hot_;
  slot_mask offered_;
};

}  // namespace hotset
