// SPDX-License-Identifier: Apache-2.0
// Random interleavings of all slot_cache calls, over a backend that delays, reorders, refuses and fails. No kernel
// reads wrong bytes unless a call reported it.

#include <gtest/gtest.h>

#include "allocation.hpp"
#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/admission/least_valuable.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "interleaving.hpp"

namespace hotset::slot_cache_interleaving_test {
namespace {

using interleaving::run;
using support::factory_of;

TEST(slot_cache_interleaving, lru) { run({factory_of<pager<lru>>()}); }
TEST(slot_cache_interleaving, least_stale) { run({factory_of<pager<least_stale>>()}); }
TEST(slot_cache_interleaving, least_stale_by_last_access) {
  run({factory_of<pager<least_stale>>({.order = stale_order::last_access})});
}
TEST(slot_cache_interleaving, lfu_after_two_uses) {
  run({.make = factory_of<pager<lfu, after_n_uses>>(), .may_stay_on_host = true});
}
TEST(slot_cache_interleaving, protect_decode_within_a_budget) {
  run({.make = factory_of<pager<protect_decode<lru>, budgeted>>({}, {.fills_per_visit = 3}),
       .may_stay_on_host = true});
}
TEST(slot_cache_interleaving, similar_steps_with_least_valuable_admission) {
  run({.make = factory_of<pager<similar_steps, least_valuable>>({.rows = 256, .matches = 4},
                                                                {.streams = 2, .rows = 256}),
       .may_stay_on_host = true});
}
TEST(slot_cache_interleaving, gate_score) { run({factory_of<pager<gate_score>>()}); }

}  // namespace
}  // namespace hotset::slot_cache_interleaving_test
