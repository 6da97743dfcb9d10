// SPDX-License-Identifier: Apache-2.0
// A slot cache whose victims are written back; clock_backend_test tests the clock alone.
#include "lab/replay/write_back_clock.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"

namespace hotset::write_back_clock_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {100}};
/// One byte takes one nanosecond in, two out.
const link_model in({.bytes_per_second = 1'000'000'000});
const write_back_config back{.way = write_back_way::duplex,
                             .link = link_model({.bytes_per_second = 500'000'000})};

class write_back_cache : public testing::Test {
 protected:
  write_back_cache()
      : clock({.link = in, .shape = shape}, back),
        cache(pager<lru>({.layout = pool_layout::per_layer(shape, 2).value()}), clock),
        visit(cache.make_visit()) {
    run(0, 0_layer, {0, 1});
    run(0, 1_layer, {0, 1});
  }
  write_back_clock clock;
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
  std::size_t free_one_of_the_second_layer() {
    const auto pool = cache.pager().layout().pool_of_layer(1_layer);
    return pre_evict_back(cache.pager(), clock, {.layer = 1_layer, .pool = pool, .step = 1}, 1, {},
                          stream);
  }
};

TEST_F(write_back_cache, on_demand_a_victim_is_written_back_before_the_fill) {
  EXPECT_EQ(run(1, 0_layer, {0, 2}), 200U + 100);
  EXPECT_EQ(clock.bytes_moved_back(), 100U);
  EXPECT_EQ(clock.busy_back(), 200U);
}

TEST_F(write_back_cache, ahead_of_the_visit_only_the_copy_in_is_waited_for) {
  EXPECT_EQ(free_one_of_the_second_layer(), 1U);
  EXPECT_EQ(run(1, 0_layer, {0, 2}), 200U + 100) << "its own victim goes first on the way back";
  stream.run(50);  // the other one is written back at 400
  EXPECT_EQ(run(1, 1_layer, {1, 2}), 100U);
  EXPECT_EQ(clock.bytes_moved_back(), 200U);
  EXPECT_EQ(cache.stats().pre_evictions, 1U);
}

TEST_F(write_back_cache, a_slot_that_is_not_yet_free_is_waited_for) {
  EXPECT_EQ(free_one_of_the_second_layer(), 1U);
  EXPECT_EQ(run(1, 1_layer, {1, 2}), 200U + 100);
}

TEST(write_back_clock, needs_a_bandwidth_both_ways) {
  const clock_backend::config timed{.link = in, .shape = shape};
  const auto refused = [](const clock_backend::config& setup, const write_back_config& way) {
    try {
      const write_back_clock made(setup, way);
    } catch (const invalid_config& bad) {
      return std::string(bad.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(timed, back), "");
  EXPECT_THAT(refused({.shape = shape}, back), testing::HasSubstr("a bandwidth both ways"));
  EXPECT_THAT(refused(timed, {.way = write_back_way::serial}),
              testing::HasSubstr("a bandwidth both ways"));
  EXPECT_EQ(refused({.link = in}, back), "layers = 0, accepted: 1 or more");
}

}  // namespace
}  // namespace hotset::write_back_clock_test
