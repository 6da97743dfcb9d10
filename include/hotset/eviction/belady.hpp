// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key is used again furthest in the future: the offline optimum to compare with.
///
/// Rule: order by the next visit that uses the key after the running one, furthest first, never first of
///       all; then recency position. Admission is forced: every miss that is fetched takes a slot.
/// Source: Belady 1966; event-atomic form as in WiSP.
/// Deviations: none. With token groups, a group is an event: the future is built from groups.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: O(1) expected and O(log S) at worst per hit, O(1) per fill; a victim costs O(log S) plus the
///       ineligible slots passed over.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/indexed_heap.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset::inline v0 {

class belady {
 public:
  struct config {
    std::shared_ptr<const future_uses> future{};
    [[nodiscard]] validation validate() const {
      if (!future) return error{"belady future = none, accepted: the uses of the trace to come"};
      return std::nullopt;
    }
    /// As validate(), and the future must belong to this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      if (future->keys() != shape.keys())
        return error{"belady future has " + std::to_string(future->keys()) +
                     " keys, accepted: layers x experts (" + std::to_string(shape.keys()) + ")"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "belady";

  explicit belady(const pool_layout& layout, const config& options)
      : experts_(static_cast<std::size_t>(layout.shape().experts)),
        future_(options.future),
        order_(layout) {
    if (!future_ || future_->keys() != layout.shape().keys()) {
      // Refused by validate(); without a future no key is ever used again.
      auto none = future_uses::create(layout.shape(), {});
      if (none) future_ = std::make_shared<const future_uses>(*std::move(none));
    }
    ordinals_ = future_->ordinals().data();
    cursor_.resize(future_->keys());
    for (std::size_t k = 0; k < cursor_.size(); ++k) cursor_[k] = future_->first(k);
  }

  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access& a) noexcept { place(a); }
  void on_fill(const access& a) noexcept { place(a); }
  void on_bypass(const access&) noexcept {}
  void on_evict(slot_id slot, expert_key) noexcept { order_.vacate(slot); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  void place(const access& a) noexcept {
    auto& cursor = cursor_[static_cast<std::size_t>(a.key.layer) * experts_ +
                           static_cast<std::size_t>(a.key.expert)];
    while (ordinals_[cursor] <= a.ordinal && ordinals_[cursor] != future_uses::never) ++cursor;
    const std::uint64_t furthest_first = future_uses::never - ordinals_[cursor];
    order_.assign(a.pool, a.slot, {furthest_first, ++clock_});
  }

  std::size_t experts_;
  std::uint64_t clock_ = 0;
  std::shared_ptr<const future_uses> future_;
  const std::uint32_t* ordinals_ = nullptr;
  std::vector<std::size_t> cursor_;  // [key] into ordinals_
  indexed_heap order_;
};

static_assert(eviction_policy<belady>);

}  // namespace hotset::inline v0
