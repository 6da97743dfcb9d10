// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/inline_backend.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

namespace hotset::inline_backend_test {
namespace {

using support::fill_of;
using support::host_experts;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};

class inline_copies : public testing::Test {
 protected:
  const pool_layout layout = pool_layout::shared(shape, 4).value();
  host_experts experts{layout};
  inline_backend<memory_expert_source> backend{experts.source, experts.bank};
  inline_stream stream;
};

TEST_F(inline_copies, the_bytes_are_there_when_submit_returns) {
  const auto sent = backend.submit(
      std::array{fill_of({0_layer, 3_expert}, 1_slot), fill_of({1_layer, 4_expert}, 2_slot)},
      stream, urgency::now);
  EXPECT_EQ(sent.accepted, 2U);
  EXPECT_TRUE(experts.holds(1_slot, {0_layer, 3_expert}));
  EXPECT_TRUE(experts.holds(2_slot, {1_layer, 4_expert}));
  EXPECT_EQ(backend.poll(sent.id), transfer_state::arrived);
  EXPECT_EQ(backend.bytes_moved(), 2U * (96 + 33 + 257));
}

TEST_F(inline_copies, failures_are_kept_and_never_count_as_arrivals) {
  experts.source.remove({0_layer, 5_expert});
  const auto bad =
      backend.submit(std::array{fill_of({0_layer, 5_expert}, 0_slot)}, stream, urgency::now);
  for (int n = 0; n < 3000; ++n) {
    const auto other = n % 2 == 0 ? 5_expert : 4_expert;
    const auto sent =
        backend.submit(std::array{fill_of({0_layer, other}, 1_slot)}, stream, urgency::soon);
    ASSERT_EQ(backend.fence(stream, sent.id), n % 2 == 0 ? status::fill_failed : status::ok);
  }
  EXPECT_EQ(backend.poll(bad.id), transfer_state::failed);
}

TEST_F(inline_copies, a_cache_serves_visits_over_it) {
  slot_cache<pager<lru>, inline_backend<memory_expert_source>> cache(pager<lru>({.layout = layout}),
                                                                     backend);
  auto visit = cache.make_visit();
  const std::vector<std::int32_t> ids{3, 5};
  experts.source.remove({1_layer, 5_expert});
  const auto serve = [&](step_id step, layer_id layer) {
    return cache.serve({.layer = layer, .step = step, .experts = ids}, stream, visit,
                       [&](const visit_group& group) {
                         for (const auto e : {3_expert, 5_expert})
                           EXPECT_TRUE(experts.holds(group.row()[index_of(e)], {layer, e}));
                       });
  };
  EXPECT_EQ(serve(0, 0_layer), status::ok);
  EXPECT_EQ(serve(1, 1_layer), status::fill_failed);
  EXPECT_EQ(cache.pager().locate({1_layer, 5_expert}), no_slot);
  EXPECT_EQ(serve(2, 0_layer), status::ok);
  const prefetch_request wanted{.key = {1_layer, 2_expert}};
  EXPECT_EQ(cache.prefetch({.layer = 0_layer, .pool = 0_pool, .step = 2}, {&wanted, 1}, stream),
            status::ok);
  EXPECT_EQ(cache.drain(), status::ok);
  EXPECT_TRUE(experts.holds(cache.pager().locate({1_layer, 2_expert}), {1_layer, 2_expert}));
}

}  // namespace
}  // namespace hotset::inline_backend_test
