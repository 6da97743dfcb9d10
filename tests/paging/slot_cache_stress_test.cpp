// SPDX-License-Identifier: Apache-2.0
// Real copies on a thread, kernels on another: whatever a kernel reads must be what the plan promised.

#include <atomic>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "busy_cache.hpp"
#include "host_experts.hpp"
#include "hotset/paging/slot_cache.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset {
namespace {

using support::gate;
using support::host_experts;

const geometry shape{.layers = 3, .experts = 16, .top_k = 2, .max_tokens_per_visit = 6};
constexpr expert_id broken = 15;  ///< of every layer: the source does not have it, nobody routes it

struct kernel {
  const host_experts* experts = nullptr;
  std::atomic<int>* wrong = nullptr;
  layer_id layer = 0;
  std::vector<expert_id> ids;
  std::vector<slot_id> slots;
  static void run(void* self) noexcept {
    const auto& k = *static_cast<const kernel*>(self);
    for (std::size_t i = 0; i < k.ids.size(); ++i)
      if (!k.experts->holds(k.slots[i], {k.layer, k.ids[i]})) ++*k.wrong;
  }
};

class slot_cache_stress : public testing::TestWithParam<host_stream::mode> {};

TEST_P(slot_cache_stress, every_kernel_reads_the_experts_of_its_visit) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto layout = seed % 2 == 0 ? pool_layout::per_layer(shape, 5).value()
                                      : pool_layout::shared(shape, 7).value();
    host_experts experts(layout);
    for (layer_id l = 0; l < 3; ++l) experts.source.remove({l, broken});
    host_backend<memory_expert_source> backend(experts.source, experts.bank);
    std::atomic<int> wrong{0};
    std::deque<kernel> kernels;
    host_stream stream(GetParam(), 64);
    slot_cache cache(pager<lru>({.layout = layout}), backend);
    auto visit = cache.make_visit();
    const auto launch = [&](layer_id layer) {
      const auto& plan = visit.plan();
      auto& k = kernels.emplace_back(kernel{&experts, &wrong, layer, {}, {}});
      k.ids.assign(plan.experts().begin(), plan.experts().end());
      k.slots.assign(plan.slots().begin(), plan.slots().end());
      for (const auto s : k.slots) ASSERT_NE(s, no_slot);
      for (std::size_t i = 0; i < k.ids.size(); ++i)
        ASSERT_EQ(cache.row(layer)[static_cast<std::size_t>(k.ids[i])], k.slots[i]);
      stream.run(kernel::run, &k);
    };
    const auto walked =
        support::walk(cache, visit, stream, random, {.visits = 450, .routed = broken}, launch,
                      [&] { support::expect_consistent(cache.decisions()); });
    ASSERT_EQ(walked, status::ok);
    stream.drain();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_GT(cache.stats().split_visits, 0U);
    EXPECT_GT(cache.stats().prefetch_hits, 0U);
    EXPECT_GT(cache.stats().failed_fills, 0U);
  }
}
INSTANTIATE_TEST_SUITE_P(streams, slot_cache_stress,
                         testing::Values(host_stream::mode::caller, host_stream::mode::worker),
                         [](const auto& stream) {
                           return stream.param == host_stream::mode::caller ? "caller" : "worker";
                         });

// Hazard 2, with real bytes: the kernel is held at a gate, and its slot is already someone else's.
TEST(slot_cache_fences, a_recycled_slot_is_not_overwritten_while_a_kernel_still_reads_it) {
  const auto layout = pool_layout::shared(shape, 2).value();
  host_experts experts(layout);
  host_backend<memory_expert_source> backend(experts.source, experts.bank);
  std::atomic<int> wrong{0};
  gate held;
  kernel first{&experts, &wrong, 0, {}, {}};
  kernel second{&experts, &wrong, 1, {}, {}};
  host_stream stream(host_stream::mode::worker);
  slot_cache cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  const std::vector<expert_id> ids{3, 4};
  routing_view view;
  view.experts = ids;
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  first.ids = ids;
  first.slots.assign(visit.plan().slots().begin(), visit.plan().slots().end());
  stream.run(gate::pass, &held);
  stream.run(kernel::run, &first);
  cache.release(visit, stream);
  const auto before = 2 * (96U + 33 + 257);
  view.layer = 1;
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  second.ids = ids;
  second.slots.assign(visit.plan().slots().begin(), visit.plan().slots().end());
  EXPECT_EQ(std::vector<slot_id>(first.slots), second.slots);
  stream.run(kernel::run, &second);
  cache.release(visit, stream);
  EXPECT_LE(backend.bytes_moved(), before) << "the kernel has not run";
  held.open();
  stream.drain();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(backend.bytes_moved(), 2 * before);
}

}  // namespace
}  // namespace hotset
