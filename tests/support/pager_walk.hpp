// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Short hand-walked cases: a pager, its plan, and invariants.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "written_ids.hpp"

namespace hotset::support {

/// Invariants while no plan is open. Slots of a resized pool may lie anywhere; their precision is constant.
template <class Pager>
void expect_consistent(Pager& p) {
  const auto& shape = p.shape();
  const auto& layout = p.layout();
  std::set<slot_id> claimed;
  std::vector<std::int64_t> held(layout.pools(), 0);
  std::vector<std::uint64_t> bytes(layout.pools(), 0);
  std::size_t unread = 0;
  for (const auto l : each<layer_id>(shape.layers)) {
    const auto row = p.row(l);
    ASSERT_EQ(row.size(), static_cast<std::size_t>(shape.experts));
    for (const auto e : each<expert_id>(shape.experts)) {
      const auto slot = p.locate({l, e});
      const auto shown = row[static_cast<std::size_t>(e)];
      if (slot == no_slot) {
        ASSERT_EQ(shown, -1) << "an absent expert is in a row";
        continue;
      }
      ASSERT_TRUE(claimed.insert(slot).second) << "two keys share slot " << slot;
      const auto& entry = p.slot(slot);
      ASSERT_EQ(entry.key, (expert_key{l, e})) << "map and table disagree on slot " << slot;
      ASSERT_NE(entry.state, slot_state::free);
      ASSERT_EQ(shown, entry.state == slot_state::resident ? slot : no_slot);
      const auto precision = p.precision_of(slot);
      ASSERT_EQ(precision, layout.at(layout.pool_of_slot(slot)).precision);
      const auto pool = static_cast<std::size_t>(layout.pool_of(l, precision));
      ++held[pool];
      bytes[pool] += shape.bytes_of(l, precision);
      unread += entry.state == slot_state::resident && entry.pins == 0 ? 1U : 0U;
    }
  }
  std::size_t in_use = 0;
  for (std::size_t s = 0; s < layout.slots(); ++s)
    in_use += p.slot(static_cast<slot_id>(s)).state != slot_state::free ? 1U : 0U;
  ASSERT_EQ(in_use, claimed.size()) << "a slot is in use and no key names it";
  for (std::size_t n = 0; n < layout.pools(); ++n) {
    const auto& pool = layout.at(static_cast<pool_id>(n));
    ASSERT_LE(held[n], pool.precision == 0 ? p.quota(pool.layers.front()) : pool.slots);
    ASSERT_EQ(p.resident_bytes(static_cast<pool_id>(n)), bytes[n]);
  }
  const auto order = p.residents();
  ASSERT_EQ(order.size(), unread) << "the policy and the pager disagree on what may be evicted";
  ASSERT_EQ(std::set<expert_key>(order.begin(), order.end()).size(), order.size());
}

/// Unpins the slot's current content.
template <class Pager>
void unpin(Pager& p, written_slot slot) {
  p.unpin({slot.id, p.slot(slot).generation});
}

template <class Pager = pager<lru>>
class pager_walk {
 public:
  explicit pager_walk(typename Pager::config setup)
      : decisions(std::move(setup)), plan(decisions.make_plan()) {}

  [[nodiscard]] routing_view view(step_id step, written_layer layer, id_view<expert_id> ids,
                                  std::span<const float> weights = {}) const {
    return {.layer = layer,
            .step = step,
            .kind = kind,
            .experts = ids,
            .weights = weights,
            .ordinal = ordinal};
  }
  status try_plan(step_id step, written_layer layer, routed_ids ids) {
    ids_ = std::move(ids.ids);
    return decisions.plan(view(step, layer, ids_), plan);
  }
  /// A whole visit with all of its groups. Returns the number of fills.
  std::size_t visit(step_id step, written_layer layer, routed_ids ids,
                    std::vector<float> weights = {}) {
    ids_ = std::move(ids.ids);
    weights_ = std::move(weights);
    std::size_t fills = 0;
    const auto planned = decisions.plan(view(step, layer, ids_, weights_), plan);
    EXPECT_EQ(planned, status::ok) << describe(planned);
    if (planned != status::ok) return fills;
    do {
      fills += plan.fills().size();
      ++ordinal;
    } while (next_group());
    return fills;
  }
  /// Commits the plan and plans the next group. Returns false if that was the last one.
  bool next_group() {
    EXPECT_EQ(decisions.commit(plan), status::ok);
    expect_consistent(decisions);
    if (!plan.more()) return false;
    EXPECT_EQ(decisions.plan_next(plan), status::ok);
    return true;
  }
  /// Plans and commits speculative fills. Returns them.
  std::vector<fill> prefetch(step_id step, written_layer layer,
                             const std::vector<prefetch_request>& requests) {
    const visit_context context{
        .layer = layer, .pool = decisions.layout().pool_of_layer(layer), .step = step};
    EXPECT_EQ(decisions.plan_prefetch(context, requests, plan), status::ok);
    std::vector<fill> made(plan.fills().begin(), plan.fills().end());
    EXPECT_EQ(decisions.commit(plan), status::ok);
    expect_consistent(decisions);
    return made;
  }
  void arrive(const std::vector<fill>& fills) {
    for (const auto& f : fills) decisions.arrived(f.slot, f.generation);
    expect_consistent(decisions);
  }
  [[nodiscard]] std::set<expert_id> readable(written_layer layer) const {
    std::set<expert_id> out;
    const auto row = decisions.row(layer);
    for (std::size_t e = 0; e < row.size(); ++e)
      if (row[e] != no_slot) out.insert(static_cast<expert_id>(e));
    return out;
  }
  [[nodiscard]] std::set<expert_id> placed(written_layer layer) const {
    std::set<expert_id> out;
    for (const auto e : each<expert_id>(decisions.shape().experts))
      if (decisions.locate({layer, e}) != no_slot) out.insert(e);
    return out;
  }
  [[nodiscard]] pager_stats stats() const { return decisions.stats(); }

  Pager decisions;
  visit_plan plan;
  request_class kind = request_class::decode;
  std::uint64_t ordinal = 0;

 private:
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

/// LRU that records its notifications; select_victims is only counted.
class told_lru {
 public:
  struct journal {
    std::vector<std::string> lines;
    std::size_t questions = 0;
  };
  struct config {
    journal* to = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "told_lru";
  static constexpr eviction_traits traits{.wants_requests = true, .needs_weights = true};

  told_lru(const pool_layout& layout, const config& options) : inner_(layout), to_(options.to) {}
  void on_visit(const visit_event& e) noexcept {
    if (e.begins)
      write("step " + std::to_string(e.context.step) + " layer " + to_string(e.context.layer));
    for (const auto& f : e.fills)
      if (f.victim != no_key) write("evict " + to_string(f.victim.expert));
    const auto words = [&](const char* what, expert_id expert) {
      return what + to_string(expert) + (e.repeats(expert) ? " again" : "");
    };
    e.each_use([&](std::size_t i, bool is_filled) {
      write(words(is_filled ? "fill " : "hit ", e.experts[i]));
    });
    for (const auto& b : e.bypassed) write(words("bypass ", b.expert));
    inner_.on_visit(e);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    write("prefetch " + to_string(e.key.expert));
    inner_.on_prefetch(e);
  }
  void on_request(const prefetch_event& e) noexcept { write("request " + to_string(e.key.expert)); }
  void on_evict(slot_id slot, expert_key key) noexcept {
    write("evict " + to_string(key.expert));
    inner_.on_evict(slot, key);
  }
  void on_move(slot_id from, slot_id to) noexcept { inner_.on_move(from, to); }
  std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    if (to_ != nullptr) ++to_->questions;
    return inner_.select_victims(context, eligible, out);
  }

 private:
  void write(std::string line) noexcept {
    if (to_ != nullptr) to_->lines.push_back(std::move(line));
  }
  lru inner_;
  journal* to_;
};
static_assert(eviction_policy<told_lru>);

/// Refuses the experts that the test names.
class picky {
 public:
  struct config {
    std::set<expert_id> refused{};
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "picky";
  static constexpr admission_traits traits{};
  picky(const pool_layout&, const config& options) : refused_(options.refused) {}
  void admit(const visit_context&, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n)
      admitted[n] = refused_.count(misses[n].key.expert) == 0 ? 1 : 0;
  }
  void on_use(const expert_use&, bool, bool) noexcept {}
  void on_evict(expert_key, step_id) noexcept {}

 private:
  std::set<expert_id> refused_;
};
static_assert(admission_policy<picky>);

}  // namespace hotset::support
