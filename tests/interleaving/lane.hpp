// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One open visit of an engine, group by group, and the requirements of each of its plans.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kernel_ledger.hpp"
#include "tested_cache.hpp"

namespace hotset::interleaving {

class lane {
 public:
  explicit lane(cache_visit made) : visit(std::move(made)) {}

  cache_visit visit;
  routing_view view{};
  std::size_t kernel = 0;  ///< of the open group
  bool launched = true;
  /// A refused visit cannot be used for `resolve_next`, and neither can the visit before it.
  bool usable = false;

  /// Arrays for another visit. Those of the visit before stay unchanged, because the cache may still read them.
  std::pair<std::vector<expert_id>*, std::vector<float>*> next_arrays() {
    current_ ^= 1U;
    return {&ids_.at(current_), &weights_.at(current_)};
  }

  /// The slot is kept for the key.
  [[nodiscard]] static bool is_held(slot_id slot, expert_key key,
                                    const support::tested_cache& cache) {
    const auto& entry = cache.pages().slot(slot);
    return entry.key == key && entry.state == slot_state::resident && entry.pins != 0;
  }

  /// A group was resolved, the visit's first or a later one: checks its plan and returns its kernel's reads.
  std::vector<expected_read> opened(bool first, const support::tested_cache& cache,
                                    const support::unruly_backend& backend, bool may_stay_on_host,
                                    support::event_trail& trail) {
    const auto& plan = visit.plan();
    if (first) begin(plan, cache.pages().layout().shape());
    check(visit.is_open(), "a resolved visit is not open", trail);
    check(plan.context().layer == view.layer && plan.context().step == view.step &&
              plan.context().kind == view.kind,
          "a plan of another visit", trail);
    check(plan.groups() == groups_ && plan.group() == group_, "a group out of its turn", trail);
    check(visit.more() == (group_ + 1 < groups_), "more() is wrong", trail);
    ++group_;
    check_experts(plan, cache.pages().layout().shape(), trail);
    return check_slots(plan, cache, backend, may_stay_on_host, trail);
  }

 private:
  static void check(bool good, const char* what, support::event_trail& trail) {
    if (!good) trail.fault(what);
  }
  void begin(const visit_plan& plan, const geometry& shape) {
    groups_ = plan.groups();
    group_ = 0;
    done_.clear();
    top_k_ = static_cast<std::size_t>(shape.top_k);
    all_.clear();
    for (const auto id : view.experts)
      if (id >= 0 && id < shape.experts && std::ranges::find(all_, id) == all_.end())
        all_.push_back(id);
  }
  /// Every token, or every expert, is in exactly one group when the visit is complete.
  void check_experts(const visit_plan& plan, const geometry& shape, support::event_trail& trail) {
    std::vector<expert_id> wanted;
    if (groups_ == 1 || plan.expert_wise())
      check(plan.tokens().size() == view.experts.size() / top_k_, "not all tokens", trail);
    if (groups_ == 1) {
      wanted = all_;
    } else if (plan.expert_wise()) {
      wanted.assign(plan.experts().begin(), plan.experts().end());
      for (const auto e : wanted)
        check(std::ranges::find(all_, e) != all_.end() &&
                  done_.insert(static_cast<std::uint32_t>(e)).second,
              "an expert of no token, or a second time", trail);
      if (!visit.more()) check(done_.size() == all_.size(), "an expert was left out", trail);
    } else {
      for (const auto t : plan.tokens()) {
        const bool known = t * top_k_ < view.experts.size() && done_.insert(t).second;
        check(known, "a token that there is not, or a second time", trail);
        if (!known) return;
        for (const auto id : view.experts.subspan(t * top_k_, top_k_))
          if (id >= 0 && id < shape.experts && std::ranges::find(wanted, id) == wanted.end())
            wanted.push_back(id);
      }
      if (!visit.more())
        check(done_.size() == view.experts.size() / top_k_, "a token was left out", trail);
    }
    check(std::ranges::equal(plan.experts(), wanted), "the plan has other experts", trail);
  }
  std::vector<expected_read> check_slots(const visit_plan& plan, const support::tested_cache& cache,
                                         const support::unruly_backend& backend,
                                         bool may_stay_on_host, support::event_trail& trail) {
    std::vector<expected_read> reads;
    const auto row = cache.row(view.layer);
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const expert_key key{view.layer, plan.experts()[i]};
      const auto slot = plan.slots()[i];
      if (plan.services()[i] == service::host) {
        check(may_stay_on_host && slot == no_slot, "an expert was left on the host", trail);
        continue;
      }
      // A copy that failed during the call will be reported later; until then another expert may have its slot.
      const bool whole =
          row[static_cast<std::size_t>(key.expert)] == slot && is_held(slot, key, cache);
      check(whole || backend.is_disputed(slot), "a slot of an open visit is not its own", trail);
      for (const auto& other : reads)
        check(other.slot != slot, "two experts of a visit share a slot", trail);
      reads.push_back({slot, backend.host_bytes(key, cache.pages().precision_of(slot))});
    }
    return reads;
  }

  std::array<std::vector<expert_id>, 2> ids_{};
  std::array<std::vector<float>, 2> weights_{};
  unsigned current_ = 0;
  std::size_t groups_ = 0;
  std::size_t group_ = 0;  ///< the next one
  std::size_t top_k_ = 1;
  std::vector<expert_id> all_{};    ///< distinct, by first appearance
  std::set<std::uint32_t> done_{};  ///< tokens, or experts
};

}  // namespace hotset::interleaving
