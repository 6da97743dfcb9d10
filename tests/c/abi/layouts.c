/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of the C interface, checked by a C compiler. Structs keep their layout, because compiled programs call the
 * library. Any change here needs a new HOTSET_ABI_VERSION, except members added at the end. */
#include "hotset.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define AT(type, member, place) _Static_assert(offsetof(type, member) == (place), #type "." #member " has moved")

_Static_assert(HOTSET_ABI_VERSION == 1, "the layouts below are version 1's");
_Static_assert(sizeof(void*) == 8, "the layouts below are those of 64 bits");
SIZE(hotset_key, 8);
AT(hotset_key, layer, 0);
AT(hotset_key, expert, 4);
SIZE(hotset_removal, 24);
AT(hotset_removal, key, 0);
AT(hotset_removal, slot, 8);
AT(hotset_removal, precision, 12);
AT(hotset_removal, last_reader, 16);
SIZE(hotset_pager_options, 136);
AT(hotset_pager_options, layers, 8);
AT(hotset_pager_options, experts, 12);
AT(hotset_pager_options, top_k, 16);
AT(hotset_pager_options, max_tokens, 20);
AT(hotset_pager_options, expert_bytes, 24);
AT(hotset_pager_options, expert_bytes_count, 32);
AT(hotset_pager_options, scope, 40);
AT(hotset_pager_options, split, 44);
AT(hotset_pager_options, guard, 48);
AT(hotset_pager_options, slots, 56);
AT(hotset_pager_options, budget_bytes, 64);
AT(hotset_pager_options, eviction, 72);
AT(hotset_pager_options, admission, 80);
AT(hotset_pager_options, miss, 88);
AT(hotset_pager_options, removed, 96);
AT(hotset_pager_options, user, 104);
AT(hotset_pager_options, lower_bytes, 112);
AT(hotset_pager_options, lower_precisions, 120);
AT(hotset_pager_options, slots_of_precision, 128);
SIZE(hotset_view, 80);
AT(hotset_view, logits, 72);
AT(hotset_view, layer, 8);
AT(hotset_view, kind, 12);
AT(hotset_view, step, 16);
AT(hotset_view, tokens, 24);
AT(hotset_view, experts, 32);
AT(hotset_view, experts_stride, 40);
AT(hotset_view, weights, 48);
AT(hotset_view, weights_stride, 56);
AT(hotset_view, sequences, 64);
SIZE(hotset_fill, 40);
AT(hotset_fill, key, 0);
AT(hotset_fill, slot, 8);
AT(hotset_fill, generation, 12);
AT(hotset_fill, victim, 16);
AT(hotset_fill, precision, 24);
AT(hotset_fill, speculative, 25);
AT(hotset_fill, after, 32);
SIZE(hotset_visit, 104);
AT(hotset_visit, experts, 8);
AT(hotset_visit, slots, 16);
AT(hotset_visit, services, 24);
AT(hotset_visit, count, 32);
AT(hotset_visit, fills, 40);
AT(hotset_visit, fill_count, 48);
AT(hotset_visit, tokens, 56);
AT(hotset_visit, token_count, 64);
AT(hotset_visit, group, 72);
AT(hotset_visit, groups, 76);
AT(hotset_visit, more, 80);
AT(hotset_visit, expert_wise, 84);
AT(hotset_visit, routed, 88);
AT(hotset_visit, routed_count, 96);
SIZE(hotset_callbacks, 32);
AT(hotset_callbacks, copy, 8);
AT(hotset_callbacks, use, 16);
AT(hotset_callbacks, user, 24);
SIZE(hotset_request, 24);
AT(hotset_request, key, 0);
AT(hotset_request, for_step, 8);
AT(hotset_request, probability, 16);
SIZE(hotset_prefetcher_options, 40);
AT(hotset_prefetcher_options, layers, 8);
AT(hotset_prefetcher_options, max_tokens, 20);
AT(hotset_prefetcher_options, prefetch, 24);
AT(hotset_prefetcher_options, predictor, 32);
SIZE(hotset_curve_options, 32);
AT(hotset_curve_options, layers, 8);
AT(hotset_curve_options, max_tokens, 20);
AT(hotset_curve_options, scope, 24);
SIZE(hotset_consumer, 48);
AT(hotset_consumer, misses, 0);
AT(hotset_consumer, misses_count, 8);
AT(hotset_consumer, unit_bytes, 16);
AT(hotset_consumer, seconds_per_miss, 24);
AT(hotset_consumer, min_units, 32);
AT(hotset_consumer, max_units, 40);
SIZE(hotset_stats, 152);
AT(hotset_stats, visits, 8);
AT(hotset_stats, wasted_prefetches, 144);
SIZE(hotset_recorder_options, 56);
AT(hotset_recorder_options, layers, 8);
AT(hotset_recorder_options, experts, 12);
AT(hotset_recorder_options, top_k, 16);
AT(hotset_recorder_options, capacity, 24);
AT(hotset_recorder_options, weights, 32);
AT(hotset_recorder_options, name, 40);
AT(hotset_recorder_options, model, 48);

int main(void) { return hotset_abi_version() == HOTSET_ABI_VERSION ? 0 : 1; }
