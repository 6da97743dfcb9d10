// SPDX-License-Identifier: Apache-2.0
// Slots that are freed ahead of a visit.
#include <vector>

#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "lab/replay/clock_backend.hpp"

namespace hotset::slot_cache_pre_evict_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {100}};

TEST(slot_cache_pre_evict, the_slots_last_reader_is_still_waited_for) {
  // One byte takes one nanosecond.
  clock_backend backend({.link = link_model({.bytes_per_second = 1'000'000'000}), .shape = shape});
  clock_stream stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::per_layer(shape, 2).value()}), backend);
  auto visit = cache.make_visit();
  const auto resolve = [&](step_id step, const std::vector<std::int32_t>& ids) {
    const routing_view view{.layer = 1_layer, .step = step, .experts = ids};
    ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  };
  resolve(0, {0, 1});
  stream.run(1000);  // the kernel that reads the slots
  const auto until = stream.now();
  cache.release(visit, stream);
  EXPECT_EQ(cache.pre_evict({.layer = 1_layer, .step = 1}, 1, {}), 1U);
  resolve(1, {1, 2});
  EXPECT_EQ(stream.now(), until + 100);
  cache.release(visit, stream);
}

}  // namespace
}  // namespace hotset::slot_cache_pre_evict_test
