// SPDX-License-Identifier: Apache-2.0
// The interleaving tests with experts in several precisions.

#include <gtest/gtest.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "interleaving.hpp"

namespace hotset::slot_cache_precisions_test {
namespace {

using interleaving::run;
using support::factory_of;

TEST(slot_cache_interleaving, two_precisions) {
  run({.make = factory_of<pager<lru, always, fetch_priority>>({}, {}, {.window = 64}),
       .precisions = 2,
       .upgrades = true});
}
TEST(slot_cache_interleaving, three_precisions) {
  run({.make = factory_of<pager<least_stale, always, fetch_priority>>({}, {}, {.window = 64}),
       .precisions = 3,
       .upgrades = true});
}
TEST(slot_cache_interleaving, three_precisions_after_two_uses) {
  run({.make = factory_of<pager<lfu, after_n_uses, fetch_priority>>({}, {}, {.window = 64}),
       .precisions = 3,
       .may_stay_on_host = true,
       .upgrades = true});
}
TEST(slot_cache_interleaving, similar_steps_in_two_precisions) {
  run({.make = factory_of<pager<similar_steps, always, fetch_priority>>({.rows = 256}, {},
                                                                        {.window = 64}),
       .precisions = 2,
       .upgrades = true});
}
TEST(slot_cache_interleaving, lowest_precision) {
  run({.make = factory_of<pager<lru, always, fetch_lowest>>(), .precisions = 2});
}

}  // namespace
}  // namespace hotset::slot_cache_precisions_test
