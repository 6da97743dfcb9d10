// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a real device: promises of the transfer conformance suite, and a cache under load.
#include "hotset/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "busy_cache.hpp"
#include "fills.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/eviction/lru.hpp"
#include "paged_model.hpp"
#include "random_source.hpp"
#include "test_support.hpp"

namespace hotset::gpu::cuda_backend_test {
namespace {

using cuda::copy_mode;
using support::fill_of;
using backend = cuda::cuda_backend<memory_expert_source>;

const geometry shape{.layers = 3, .experts = 16, .top_k = 2, .max_tokens_per_visit = 6};
const std::vector<std::uint64_t> tensors{1 << 16, 33, 70'001, 1 << 16};

struct way {
  const char* name;
  copy_mode mode;
  bool page_locked;
};
constexpr way ways[] = {{"side stream, page-locked", copy_mode::side_stream, true},
                        {"side stream, pageable", copy_mode::side_stream, false},
                        {"same stream, page-locked", copy_mode::same_stream, true},
                        {"same stream, pageable", copy_mode::same_stream, false}};

std::unique_ptr<backend> make(const paged_model& model, const way& w) {
  return backend::create(cuda::system_runtime(), model.source, model.bank, model.pages,
                         {.mode = w.mode,
                          .chunk_bytes = 20'000,
                          .chunks_ahead = 2,
                          .staging_pieces = w.page_locked ? 0U : 4U,
                          .staging_piece_bytes = 30'000,
                          .staging_threads = 2})
      .value();
}

// Hazards 2 and 3: a visit's reader finds the planned experts in its slots, however far the host is ahead.
TEST(cuda_backend, every_reader_of_a_busy_cache_finds_its_experts) {
  HOTSET_NEEDS_A_DEVICE();
  auto& api = cuda::system_runtime();
  const auto visits = std::max<long long>(60, setting("HOTSET_GPU_VISITS", 3000) / 10);
  for (const auto& w : ways) {
    const auto layout = pool_layout::shared(shape, 7).value();
    const paged_model model(layout, tensors, w.page_locked);
    const auto copies = make(model, w);
    auto engine = cuda::stream::create(api, 0).value();
    cuda::sticky_failure failures;
    auto rows = cuda::map_rows::create(api, shape, {.ring_rows = 5}, failures).value();
    slot_cache cache(pager<lru>({.layout = layout}), *copies);
    auto visit = cache.make_visit();
    support::random_source random(7);

    struct reading {
      expert_key key;
      slot_id slot;
      const std::byte* bytes;
      const slot_id* device_slot;
    };
    constexpr std::size_t room = 256;  // read out, compared, and used again
    auto log = cuda::pinned_buffer::allocate(api, room * model.expert_bytes()).value();
    auto slots = cuda::pinned_buffer::allocate(api, room * sizeof(slot_id)).value();
    std::vector<reading> readings;
    std::size_t wrong = 0;
    const auto compare_all = [&] {
      HOTSET_REQUIRE(api.synchronize_stream(engine.handle()));
      for (const auto& r : readings)
        wrong += !model.is_expert(r.bytes, r.key) || *r.device_slot != r.slot ? 1U : 0U;
      readings.clear();
    };
    const auto read = [&](layer_id layer) {
      HOTSET_REQUIRE(rows.update(cache, layer, engine));
      for (std::size_t i = 0; i < visit.plan().experts().size(); ++i) {
        if (readings.size() == room) compare_all();
        const auto at = readings.size();
        auto* const bytes = log.bytes().data() + at * model.expert_bytes();
        auto* const slot = reinterpret_cast<slot_id*>(slots.bytes().data()) + at;
        const expert_key key{layer, visit.plan().experts()[i]};
        model.read(visit.plan().slots()[i], bytes, engine.handle());
        HOTSET_REQUIRE(cudaMemcpyAsync(slot, rows.row(layer) + index_of(key.expert),
                                       sizeof(slot_id), cudaMemcpyDeviceToHost, engine.handle()));
        readings.push_back({key, visit.plan().slots()[i], bytes, slot});
      }
    };
    const auto walked =
        support::walk(cache, visit, engine, random, {.visits = visits, .routed = 16}, read, [] {});
    ASSERT_EQ(walked, status::ok) << w.name;
    compare_all();
    EXPECT_EQ(wrong, 0U) << w.name;
    EXPECT_FALSE(copies->trouble().has_value()) << w.name;
    EXPECT_FALSE(failures.happened()) << w.name;
    EXPECT_GT(cache.stats().split_visits, 0U) << w.name;
    EXPECT_EQ(cache.stats().failed_fills, 0U) << w.name;
  }
}

// Hazard 13: a captured graph keeps what it saw.
TEST(cuda_backend, nothing_of_it_enters_a_capture) {
  HOTSET_NEEDS_A_DEVICE();
  const paged_model model(pool_layout::shared(shape, 4).value(), tensors, true);
  const auto copies = make(model, ways[0]);
  const test_stream stream;
  auto engine = cuda::stream::borrow(cuda::system_runtime(), stream.handle());
  const std::vector<fill> fills{fill_of({0_layer, 1_expert}, 2_slot)};
  captured_graph::begin(stream);
  EXPECT_EQ(copies->submit(fills, engine, urgency::now).accepted, 0U);
  const captured_graph graph(stream);  // throws if the capture was invalidated
  graph.replay(stream);
  EXPECT_EQ(copies->wait(copies->submit(fills, engine, urgency::now).id), transfer_state::arrived);
}

}  // namespace
}  // namespace hotset::gpu::cuda_backend_test
