// SPDX-License-Identifier: Apache-2.0
// Slots that are freed ahead of a visit, on a clock whose victims are copied back.
#include <vector>

#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "lab/replay/clock_backend.hpp"

namespace hotset::slot_cache_pre_evict_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {100}};

/// A byte takes a nanosecond in, two back.
class pre_evicting : public testing::Test {
 protected:
  explicit pre_evicting(write_back_way way = write_back_way::duplex)
      : backend({.link = link_model({.bytes_per_second = 1'000'000'000}),
                 .shape = shape,
                 .write_back = way,
                 .back = link_model({.bytes_per_second = 500'000'000})}),
        cache(pager<lru>({.layout = pool_layout::per_layer(shape, 2).value()}), backend),
        visit(cache.make_visit()) {
    run(0, 0_layer, {0, 1});
    run(0, 1_layer, {0, 1});
  }
  clock_backend backend;
  clock_stream stream;
  slot_cache<pager<lru>, clock_backend> cache;
  cache_visit visit;

  /// Returns how long the arithmetic waited.
  ticks run(step_id step, layer_id layer, const std::vector<std::int32_t>& ids) {
    routing_view view;
    view.step = step;
    view.layer = layer;
    view.experts = ids;
    const auto before = stream.blocked();
    EXPECT_EQ(cache.serve(view, stream, visit, [&](const visit_group&) { stream.run(50); }),
              status::ok);
    stream.synchronise();
    return stream.blocked() - before;
  }
};
class pre_evicting_for_nothing : public pre_evicting {
 protected:
  pre_evicting_for_nothing() : pre_evicting(write_back_way::none) {}
};

TEST_F(pre_evicting, on_demand_a_victim_goes_before_its_slot_is_filled) {
  EXPECT_EQ(run(1, 0_layer, {0, 2}), 200U + 100);
  EXPECT_EQ(backend.bytes_moved_back(), 100U);
  EXPECT_EQ(backend.busy_back(), 200U);
}

TEST_F(pre_evicting, ahead_of_the_visit_only_the_copy_in_is_waited_for) {
  EXPECT_EQ(cache.pre_evict({.layer = 1_layer, .step = 1}, 1, {}, stream), 1U);
  EXPECT_EQ(run(1, 0_layer, {0, 2}), 200U + 100) << "its own victim goes first on the way back";
  stream.run(50);  // the other one is back at 400
  EXPECT_EQ(run(1, 1_layer, {1, 2}), 100U);
  EXPECT_EQ(backend.bytes_moved_back(), 200U);
  EXPECT_EQ(cache.stats().pre_evictions, 1U);
}

TEST_F(pre_evicting, a_slot_that_is_not_yet_free_is_waited_for) {
  EXPECT_EQ(cache.pre_evict({.layer = 1_layer, .step = 1}, 1, {}, stream), 1U);
  EXPECT_EQ(run(1, 1_layer, {1, 2}), 200U + 100);
}

TEST_F(pre_evicting_for_nothing, the_slots_last_reader_is_still_waited_for) {
  routing_view view;
  const std::vector<std::int32_t> ids{0, 1};
  view.step = 1;
  view.layer = 1_layer;
  view.experts = ids;
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  stream.run(1000);  // the kernel that reads the slots
  const auto until = stream.now();
  cache.release(visit, stream);
  EXPECT_EQ(cache.pre_evict({.layer = 1_layer, .step = 2}, 1, {}, stream), 1U);
  const std::vector<std::int32_t> next{1, 2};
  view.step = 2;
  view.experts = next;
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  EXPECT_EQ(stream.now(), until + 100);
  cache.release(visit, stream);
}

}  // namespace
}  // namespace hotset::slot_cache_pre_evict_test
