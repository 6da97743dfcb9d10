// SPDX-License-Identifier: Apache-2.0
// slot_cache over the CUDA backend and a device that runs its streams in any order that events allow: whatever a
// kernel reads must be what the plan promised.

#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "busy_cache.hpp"
#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/slot_cache.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::cuda {
namespace {

using support::device_experts;
using support::fake_cuda_runtime;

const geometry shape{.layers = 3, .experts = 16, .top_k = 2, .max_tokens_per_visit = 6};

struct path {
  std::string name;
  copy_mode mode;
  bool page_locked;
  fake_cuda_runtime::pace pace;
  friend void PrintTo(const path& p, std::ostream* out) { *out << p.name; }
};

class cuda_cache : public testing::TestWithParam<path> {};

// Hazards 2 and 3.
TEST_P(cuda_cache, every_kernel_reads_the_experts_of_its_visit) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    fake_cuda_runtime api(GetParam().pace, seed);
    const auto layout = seed % 2 == 0 ? pool_layout::per_layer(shape, 5).value()
                                      : pool_layout::shared(shape, 7).value();
    device_experts experts(api, layout, GetParam().page_locked);
    auto engine = stream::create(api, 0).value();
    {
      const auto copies = cuda_backend<memory_expert_source>::create(
                              api, experts.host.source, experts.bank, experts.pages,
                              {.mode = GetParam().mode,
                               .tickets = 512,
                               .chunk_bytes = 100,
                               .chunks_ahead = 2,
                               .staging_pieces = GetParam().page_locked ? 0U : 3U,
                               .staging_piece_bytes = 100,
                               .staging_threads = 2})
                              .value();
      slot_cache cache(pager<lru>({.layout = layout}), *copies);
      auto visit = cache.make_visit();
      std::size_t wrong = 0;
      std::size_t kernels = 0;
      const auto launch = [&](layer_id layer) {
        const auto& plan = visit.plan();
        for (std::size_t i = 0; i < plan.experts().size(); ++i)
          api.launch(engine.handle(),
                     [&, slot = plan.slots()[i], key = expert_key{layer, plan.experts()[i]}] {
                       ++kernels;
                       if (!experts.holds(slot, key)) ++wrong;
                     });
      };
      const auto walked =
          support::walk(cache, visit, engine, random, {.visits = 180, .routed = 16}, launch,
                        [&] { support::expect_consistent(cache.decisions()); });
      ASSERT_EQ(walked, status::ok);
      EXPECT_EQ(api.synchronize_stream(engine.handle()), error_code::success);
      EXPECT_EQ(wrong, 0U);
      EXPECT_GT(kernels, 500U);
      EXPECT_GT(cache.stats().split_visits, 0U);
      EXPECT_GT(cache.stats().prefetch_hits, 0U);
      EXPECT_EQ(cache.stats().failed_fills, 0U);
      EXPECT_FALSE(copies->trouble());
      const auto moved = copies->counts();
      EXPECT_EQ(GetParam().page_locked ? moved.bytes_staged : moved.bytes_direct, 0U);
      EXPECT_GT(moved.bytes_direct + moved.bytes_staged, 10'000U);
    }
    EXPECT_THAT(api.violations(), testing::IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    paths, cuda_cache,
    testing::Values(
        path{"side_late", copy_mode::side_stream, true, fake_cuda_runtime::pace::late},
        path{"side_random", copy_mode::side_stream, true, fake_cuda_runtime::pace::random},
        path{"same_random", copy_mode::same_stream, true, fake_cuda_runtime::pace::random},
        path{"staged_late", copy_mode::side_stream, false, fake_cuda_runtime::pace::late},
        path{"staged_random", copy_mode::side_stream, false, fake_cuda_runtime::pace::random},
        path{"staged_same", copy_mode::same_stream, false, fake_cuda_runtime::pace::random}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace hotset::cuda
