// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A custom policy: evicts the most recently used expert, which suits a cycle larger than the cache.

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

class most_recent {
 public:
  using config = hotset::no_options;
  static constexpr std::string_view name = "most_recent";
  static constexpr hotset::eviction_traits traits{};
  most_recent(const hotset::pool_layout& layout, const config&) : slots_(layout.slots()) {}
  void on_visit(const hotset::visit_event& visit) noexcept {
    for (const auto slot : visit.used) at(slot) = {visit.context.pool, ++clock_};
  }
  void on_prefetch(const hotset::prefetch_event& copy) noexcept {
    at(copy.slot) = {copy.pool, ++clock_};
  }
  void on_evict(hotset::slot_id, hotset::expert_key) noexcept {}
  void on_move(hotset::slot_id from, hotset::slot_id to) noexcept { at(to) = at(from); }
  std::size_t select_victims(const hotset::visit_context& visit, const hotset::slot_mask& eligible,
                             std::span<hotset::slot_id> out) noexcept {
    std::size_t count = 0;
    for (std::uint64_t before = clock_ + 1; count < out.size(); before = at(out[count++]).second) {
      out[count] = hotset::no_slot;
      for (auto s = eligible.next(); s != hotset::no_slot; s = eligible.next(s + 1))
        if (at(s).first == visit.pool && at(s).second < before)
          if (out[count] == hotset::no_slot || at(s).second > at(out[count]).second) out[count] = s;
      if (out[count] == hotset::no_slot) break;
    }
    return count;
  }

 private:
  using use = std::pair<hotset::pool_id, std::uint64_t>;  // time of use: larger is later
  use& at(hotset::slot_id slot) noexcept { return slots_[slot]; }
  hotset::per_slot<use> slots_;
  std::uint64_t clock_ = 0;
};

static_assert(hotset::is_eviction_policy<most_recent>());
