// SPDX-License-Identifier: Apache-2.0
// With CONFUSION=none the file compiles. With the name of a case, that line must not.
#include <cstdint>
#include <vector>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

#define CASE_none 1
#define CASE_layer_for_pool 2
#define CASE_number_for_slot 3
#define CASE_expert_for_layer 4
#define CASE_swapped_key 5
#define CASE_slot_beside_expert 6
#define CASE_slot_less_than_layer 7
#define CASE_slot_as_subscript_of_layers 8
#define CASE_number_as_subscript 9
#define CASE_layer_as_subscript_of_keys 10
#define CASE_slots_as_routed 11
#define CASE_difference_of_kinds 12
#define CASE_precision_for_size_class 13
#define CASE_id_as_number 14
#define CHOSEN_(name) CASE_##name
#define CHOSEN(name) CHOSEN_(name)
#define IS(name) (CHOSEN(CONFUSION) == CASE_##name)

namespace hotset {

void mix(pager<lru>& pages, layer_id layer, expert_id expert, slot_id slot, slot_id other,
         pool_id pool, precision_id precision, const per_layer<int>& of_layers,
         const per_slot<int>& of_slots, const per_key<int>& of_keys,
         const std::vector<slot_id>& slots, const std::vector<std::int32_t>& routed) {
  expert_use a;
  routing_view view;
  size_class_id size_class{};
  a.pool = pool;
  a.slot = slot;
  a.key = {layer, expert};
  view.experts = routed;
  (void)pages.invalidate(layer);
  (void)(of_layers[layer] + of_slots[slot] + of_keys[{layer, expert}] + (slot - other) +
         number(slot));
  (void)(slot == other && slot < other && slot == 3);
#if IS(layer_for_pool)
  a.pool = layer;
#elif IS(number_for_slot)
  a.slot = 3;
#elif IS(expert_for_layer)
  (void)pages.invalidate(expert);
#elif IS(swapped_key)
  a.key = expert_key{expert, layer};
#elif IS(slot_beside_expert)
  (void)(slot == expert);
#elif IS(slot_less_than_layer)
  (void)(slot < layer);
#elif IS(slot_as_subscript_of_layers)
  (void)of_layers[slot];
#elif IS(number_as_subscript)
  (void)of_slots[3];
#elif IS(layer_as_subscript_of_keys)
  (void)of_keys[layer];
#elif IS(slots_as_routed)
  view.experts = slots;
#elif IS(difference_of_kinds)
  (void)(slot - expert);
#elif IS(precision_for_size_class)
  size_class = precision;
#elif IS(id_as_number)
  const std::int32_t n = slot;
  (void)n;
#endif
  (void)slots;
  (void)precision;
  (void)size_class;
}

}  // namespace hotset
