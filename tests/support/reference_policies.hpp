// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The naive rules, and helpers for hand-walked cases.

#include <map>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "naive_policies.hpp"
#include "single_uses.hpp"
#include "written_ids.hpp"

namespace hotset::reference {

/// One pool of layers with 8 experts, top-2.
inline pool_layout shared(std::int32_t layers, std::int64_t slots) {
  return pool_layout::shared({.layers = layers, .experts = 8, .top_k = 2}, slots).value();
}

/// Short hand-walked cases: one policy, its slots, and a trace's events.
template <class P>
class hand_walk {
 public:
  hand_walk(const pool_layout& layout, const typename P::config& options)
      : layout_(layout), policy(layout, options), eligible(layout.slots()) {}
  explicit hand_walk(const pool_layout& layout) : hand_walk(layout, typename P::config{}) {}

  void begin(step_id step, support::written_layer layer,
             request_class kind = request_class::decode) {
    step_ = step;
    layer_ = layer;
    kind_ = kind;
    ++ordinal_;
    support::begin_visit(policy, step, layer);
  }
  expert_use about(support::written_slot slot, expert_key key, double weight = 0) const {
    return {.key = key,
            .slot = slot,
            .pool = layout_.pool_of_layer(key.layer),
            .step = step_,
            .ordinal = ordinal_ - 1,
            .weight = weight,
            .kind = kind_};
  }
  void fill(support::written_slot slot, expert_key key, double weight = 0) {
    take(about(slot, key, weight));
  }
  /// Fills experts first, first + 1, ... of layer 0 into slots 0, 1, ...
  void fill_from(support::written_expert first, std::int32_t count) {
    for (const auto s : each<slot_id>(count)) fill(s, {0_layer, first.id + number(s)});
  }
  void prefetch(support::written_slot slot, expert_key key, step_id meant_for) {
    auto a = about(slot, key);
    a.step = meant_for;
    a.speculative = true;
    take(a);
  }
  void take(const expert_use& a) {
    keys_[a.slot] = a.key;
    eligible.set(a.slot);
    support::bring(policy, a);
  }
  void hit(support::written_slot slot, double weight = 0) {
    support::hit(policy, about(slot, keys_.at(slot), weight));
  }
  void hit_again(support::written_slot slot, double weight = 0) {
    auto a = about(slot, keys_.at(slot), weight);
    a.repeated = true;
    support::hit(policy, a);
  }
  void bypass(expert_key key, double weight = 0) {
    support::bypass(policy, about(no_slot, key, weight));
  }
  void request(support::written_slot slot, step_id meant_for) {
    const auto a = about(slot, keys_.at(slot));
    policy.on_request({.key = a.key, .slot = a.slot, .pool = a.pool, .step = meant_for});
  }
  void evict(support::written_slot slot) {
    policy.on_evict(slot, keys_.at(slot));
    keys_.erase(slot);
    eligible.reset(slot);
  }
  /// All eligible slots of the pool of `layer` in eviction order, as of this visit.
  std::vector<slot_id> order(step_id step, support::written_layer layer,
                             request_class kind = request_class::decode) {
    return order_of(layout_.pool_of_layer(layer), step, layer, kind);
  }
  std::vector<slot_id> order_of(pool_id pool, step_id step, support::written_layer layer,
                                request_class kind = request_class::decode) {
    std::vector<slot_id> out(layout_.slots() + 1, no_slot);
    out.resize(policy.select_victims({layer, pool, step, ordinal_, kind}, eligible, out));
    return out;
  }

 private:
  pool_layout layout_;
  std::map<slot_id, expert_key> keys_;
  step_id step_ = 0;
  layer_id layer_{};
  request_class kind_ = request_class::decode;
  std::uint64_t ordinal_ = 0;

 public:
  P policy;
  slot_mask eligible;
};

}  // namespace hotset::reference
