// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decorator: reserves a share of each pool for prefetched experts that are not used yet.
///
/// Rule: of the n keys in a pool, u are prefetched and unused; the reserve is r = share * n, half up, within 1..n-1.
///   If u >= r, a prefetch evicts unused keys first, else other keys first. Any other choice evicts the u - r unused
///   keys that the inner policy ranks first, then other keys, then the remaining unused keys. Within each group the
///   inner policy's order applies. A prefetched key that is used becomes an other key.
/// Source: none; caches that keep prefetched and fetched blocks apart are common practice.
/// Deviations: n counts held keys, not free slots. All prefetches of a plan are judged by what the pool held before
///   it. The keys of a warm start count as prefetched. Under the guard `named`, a prefetch evicts other keys if every
///   unused key is still waited for. Then u may exceed r until a miss takes the surplus back.
/// Exact: yes (never changes what is computed).
/// Cost: the inner policy's, plus O(1) per hit and fill. A choice costs nothing more while u = 0, else up to three
///   choices of the inner policy instead of one, plus O(S / 64).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/policy/eviction_decorator.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

template <eviction_policy P>
class reserve_prefetch : public eviction_decorator<P> {
  using eviction_decorator<P>::inner_;

 public:
  struct config {
    double share = 0.2;  ///< share of the keys in a pool
    typename P::config inner{};
    /// Parameters by name, as in `reserve_prefetch:share=0.2`.
    template <class From>
    static config read(From& from) {
      return {.share = from.real("share", config{}.share)};
    }
    [[nodiscard]] validation validate() const {
      if (!(share > 0 && share < 1))
        return refusal("reserve_prefetch share = ", share, ", accepted: more than 0, less than 1");
      return inner.validate();
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return validate_for(inner, shape);
    }
  };
  static constexpr std::string_view name = "reserve_prefetch";
  static constexpr eviction_traits traits = detail::moving(detail::decorator_of(P::traits));

  reserve_prefetch(const pool_layout& layout, const config& options)
      : eviction_decorator<P>(layout, options.inner),
        share_(options.share),
        pools_(layout.pools()),
        pool_of_(layout.slots()),
        unused_(layout.slots()),
        offered_(layout.slots()),
        kept_(layout.slots()),
        surplus_(layout.slots(), no_slot) {}

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills) {
      if (f.victim != no_key) leave(f.slot);
      come(e.context.pool, f.slot);
    }
    if (pools_[e.context.pool].unused != 0)
      for (const auto slot : e.used) settle(slot);
    inner_.on_visit(e);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    come(e.pool, e.slot);
    unused_.set(e.slot);
    ++pools_[e.pool].unused;
    inner_.on_prefetch(e);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    leave(slot);
    inner_.on_evict(slot, key);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    pool_of_[to] = pool_of_[from];
    unused_.assign(to, unused_.test(from));
    unused_.reset(from);
    inner_.on_move(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    const auto& pool = pools_[context.pool];
    if (pool.unused == 0) return inner_.select_victims(context, eligible, out);
    const auto reserved = reserved_of(pool.held);
    if (!context.speculative && pool.unused > reserved)
      return take_back(pool.unused - reserved, context, eligible, out);
    const bool unused_first = context.speculative && pool.unused >= reserved;
    const auto count = take(unused_first, context, eligible, out);
    return count + take(!unused_first, context, eligible, out.subspan(count));
  }

  [[nodiscard]] eviction_traits facts() const noexcept { return detail::moving(facts_of(inner_)); }

 private:
  /// Counts of one pool.
  struct counts {
    std::size_t held = 0;
    std::size_t unused = 0;  ///< prefetched and not used yet
  };
  [[nodiscard]] counts& pool_of(slot_id slot) noexcept { return pools_[pool_of_[slot]]; }
  void come(pool_id pool, slot_id slot) noexcept {
    pool_of_[slot] = pool;
    ++pools_[pool].held;
  }
  void leave(slot_id slot) noexcept {
    settle(slot);
    --pool_of(slot).held;
  }
  /// Pre: held >= 1.
  [[nodiscard]] std::size_t reserved_of(std::size_t held) const noexcept {
    const auto share = static_cast<std::size_t>(std::lround(share_ * static_cast<double>(held)));
    return std::min(std::max(share, std::size_t{1}), held - 1);
  }
  void settle(slot_id slot) noexcept {
    if (!unused_.test(slot)) return;
    unused_.reset(slot);
    --pool_of(slot).unused;
  }

  /// Takes eligible slots, either unused or other ones.
  std::size_t take(bool unused, const visit_context& context, const slot_mask& eligible,
                   std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    unused ? offered_.assign_intersection(eligible, unused_)
           : offered_.assign_difference(eligible, unused_);
    return inner_.select_victims(context, offered_, out);
  }
  /// Takes the surplus unused slots first. The surplus does not depend on eligibility, because the order does not.
  std::size_t take_back(std::size_t too_many, const visit_context& context,
                        const slot_mask& eligible, std::span<slot_id> out) noexcept {
    const auto surplus = std::span(surplus_).first(too_many);
    const auto found = surplus.first(inner_.select_victims(context, unused_, surplus));
    kept_.assign_intersection(unused_, unused_);
    std::size_t count = 0;
    for (const auto slot : found) {
      kept_.reset(slot);
      if (count < out.size() && eligible.test(slot)) out[count++] = slot;
    }
    count += take(false, context, eligible, out.subspan(count));
    if (count == out.size()) return count;
    offered_.assign_intersection(eligible, kept_);
    return count + inner_.select_victims(context, offered_, out.subspan(count));
  }

  double share_;
  per_pool<counts> pools_;
  per_slot<pool_id> pool_of_;  // [slot] pool of its key
  slot_mask unused_;           // prefetched and not used yet, in all pools
  slot_mask offered_;
  slot_mask kept_;                // unused slots within the reserve
  std::vector<slot_id> surplus_;  // unused slots beyond the reserve
};

}  // namespace hotset
