// SPDX-License-Identifier: Apache-2.0
// A runtime with its own slots and copies that uses only hotset's eviction decisions.
#include <array>
#include <cstdio>
#include <span>

#include "hotset/eviction/lfru.hpp"

namespace {

constexpr std::int32_t layers = 4, experts = 16, top_k = 2, slots = 12;

// The runtime's cache: the slot of each expert. Slots 0..used-1 are taken.
class expert_slots {
 public:
  using routed_experts = std::array<hotset::expert_id, top_k>;

  // One layer of one step. Returns how many of its experts were resident.
  int visit(hotset::step_id step, hotset::layer_id layer, const routed_experts& routed) {
    std::array<hotset::slot_id, top_k> slot{};
    std::size_t misses = 0;
    for (std::size_t i = 0; i < routed.size(); ++i) {
      slot[i] = find({layer, routed[i]});
      slot[i] == hotset::no_slot ? void(++misses)
                                 : eligible_.reset(slot[i]);  // the visit's experts stay
    }
    // Takes free slots first; the policy selects the other victims from its state before the visit.
    std::array<hotset::slot_id, top_k> taken{};
    std::size_t ready = 0;
    while (ready < misses && used_ < slots) taken[ready++] = used_++;
    hotset::visit_context context;
    context.layer = layer;
    context.step = step;
    const auto victims = std::span(taken).subspan(ready, misses - ready);
    if (policy_.select_victims(context, eligible_, victims) != victims.size()) return 0;
    std::array<hotset::fill, top_k> fills{};
    for (std::size_t i = 0, next = 0; i < routed.size(); ++i) {
      if (slot[i] != hotset::no_slot) continue;
      slot[i] = taken[next];
      auto& copy = fills[next];  // a miss: the runtime copies here
      copy.key = {layer, routed[i]};
      copy.slot = slot[i];
      copy.victim = next < ready ? hotset::no_key : key(slot[i]);
      key(slot[i]) = copy.key;
      ++next;
    }
    policy_.on_visit({.context = context,
                      .used = slot,
                      .fills = std::span(fills).first(misses),
                      .experts = routed});
    for (const auto s : slot) eligible_.set(s);
    return static_cast<int>(routed.size() - misses);
  }

 private:
  hotset::expert_key& key(hotset::slot_id slot) { return keys_[index_of(slot)]; }
  [[nodiscard]] hotset::slot_id find(hotset::expert_key key) const {
    for (hotset::slot_id s{}; s < used_; ++s)
      if (keys_[index_of(s)] == key) return s;
    return hotset::no_slot;
  }

  hotset::lfru policy_{
      hotset::pool_layout::shared({.layers = layers, .experts = experts, .top_k = top_k}, slots)
          .value(),
      {}};
  std::array<hotset::expert_key, slots> keys_{};
  hotset::slot_mask eligible_{slots};
  hotset::slot_id used_{};
};

}  // namespace

int main() {
  expert_slots cache;
  int hits = 0, uses = 0;
  for (hotset::step_id step = 0; step < 100; ++step)
    for (const auto layer : hotset::each<hotset::layer_id>(layers)) {
      // One expert of the layer's own, and one of eight in turn.
      hits += cache.visit(
          step, layer,
          {hotset::expert_id{number(layer)}, static_cast<hotset::expert_id>(8 + (step + 3) % 8)});
      uses += top_k;
    }
  std::printf("lfru in a runtime's own %d slots: %d hits of %d\n", slots, hits, uses);
}
