// SPDX-License-Identifier: Apache-2.0
// Real copies on one thread, kernels on another: a kernel must read the experts that the plan promised.

#include <atomic>
#include <deque>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"
#include "watched_source.hpp"

namespace hotset::slot_cache_stress_test {
namespace {

using support::gate;
using support::host_experts;
using support::watched_source;

const geometry shape{.layers = 3, .experts = 16, .top_k = 2, .max_tokens_per_visit = 6};
constexpr auto broken = 15_expert;  ///< missing in the source, in every layer

struct kernel {
  const host_experts* experts = nullptr;
  std::atomic<int>* wrong = nullptr;
  layer_id layer{};
  std::vector<expert_id> ids;
  std::vector<slot_id> slots;
  static void run(void* self) noexcept {
    const auto& k = *static_cast<const kernel*>(self);
    for (std::size_t i = 0; i < k.ids.size(); ++i)
      if (!k.experts->holds(k.slots[i], {k.layer, k.ids[i]})) ++*k.wrong;
  }
};

class slot_cache_stress : public testing::TestWithParam<host_stream::mode> {};

/// Has no bytes for one expert of every layer; other experts fail at random.
class failing_source {
 public:
  explicit failing_source(const memory_expert_source& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key,
                                                      precision_id precision) const noexcept {
    if (key.expert == broken || asked_.fetch_add(1) % 61 == 60) return {};
    return inner_.tensors(key, precision);
  }

 private:
  const memory_expert_source& inner_;
  mutable std::atomic<unsigned> asked_{0};
};

/// Steps of an engine that repeats a step if a call reports it lost.
class steps_with_losses {
 public:
  steps_with_losses(host_stream::mode how, std::uint64_t seed)
      : random_(seed),
        layout_(seed % 2 == 0 ? pool_layout::per_layer(shape, 5).value()
                              : pool_layout::shared(shape, 7).value()),
        experts_(layout_),
        source_(experts_.source),
        backend_(source_, experts_.bank),
        stream_(how, 64),
        cache_(pager<lru>({.layout = layout_}), backend_),
        visit_(cache_.make_visit()) {}

  void run(step_id steps) {
    for (step_id step = 0; step < steps; ++step) {
      const auto before = wrong_.load();
      const bool whole = visit_layers(step);
      stream_.drain();
      const auto end = random_.one_in(2) ? cache_.settle() : cache_.drain();
      ASSERT_TRUE(end == status::ok || end == status::fill_failed) << describe(end);
      if (whole && end == status::ok) {
        ASSERT_EQ(wrong_.load(), before) << "step " << step << " ended well";
        ++ended_well;
      } else {
        ++lost;
      }
      support::expect_consistent(cache_.pager());
    }
  }
  int ended_well = 0, lost = 0, broken_routed = 0;

 private:
  /// False if the step is lost.
  bool visit_layers(step_id step) {
    for (const auto layer : each<layer_id>(shape.layers)) {
      std::vector<expert_id> ids(2 * (1 + random_.below(6)));
      for (auto& id : ids) id = expert_id{random_.id_below(number(broken))};
      if (random_.one_in(30)) {
        ids.back() = broken;
        ++broken_routed;
      }
      const routing_view view{.layer = layer, .step = step, .experts = ids};
      const auto now = cache_.serve(view, stream_, visit_, [&](const visit_group& group) {
        launch(layer);
        return group.is_last() || random_.one_in(2) || prefetch(step, layer) ? status::ok
                                                                             : status::fill_failed;
      });
      EXPECT_TRUE(now == status::ok || now == status::fill_failed) << describe(now);
      if (now != status::ok || !prefetch(step, layer)) return false;
    }
    return true;
  }
  bool prefetch(step_id step, layer_id layer) {
    std::vector<prefetch_request> wanted;
    for (int p = 0; p < 3; ++p)
      wanted.push_back({{layer_id{(number(layer) + 1) % shape.layers},
                         expert_id{random_.id_below(shape.experts)}},
                        layer + 1 < shape.layers ? step : step + 1});
    const auto got = cache_.prefetch(visit_.plan().context(), wanted, stream_);
    EXPECT_TRUE(got == status::ok || got == status::fill_failed) << describe(got);
    return got == status::ok;
  }
  void launch(layer_id layer) {
    const auto& plan = visit_.plan();
    auto& k = kernels_.emplace_back(kernel{&experts_, &wrong_, layer, {}, {}});
    k.ids.assign(plan.experts().begin(), plan.experts().end());
    k.slots.assign(plan.slots().begin(), plan.slots().end());
    stream_.run(kernel::run, &k);
  }

  support::random_source random_;
  pool_layout layout_;
  host_experts experts_;
  failing_source source_;
  host_backend<failing_source> backend_;
  std::atomic<int> wrong_{0};
  std::deque<kernel> kernels_;
  host_stream stream_;
  slot_cache<pager<lru>, host_backend<failing_source>> cache_;
  cache_visit visit_;
};

TEST_P(slot_cache_stress, only_steps_with_failed_copies_are_lost) {
  int ended_well = 0, lost = 0, broken_routed = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    steps_with_losses steps(GetParam(), seed);
    ASSERT_NO_FATAL_FAILURE(steps.run(150));
    ended_well += steps.ended_well;
    lost += steps.lost;
    broken_routed += steps.broken_routed;
  }
  EXPECT_GT(ended_well, 100);
  EXPECT_GT(lost, broken_routed / 2);
  EXPECT_GT(broken_routed, 20);
}
INSTANTIATE_TEST_SUITE_P(streams, slot_cache_stress,
                         testing::Values(host_stream::mode::caller, host_stream::mode::worker),
                         [](const auto& stream) {
                           return stream.param == host_stream::mode::caller ? "caller" : "worker";
                         });

// The visit has more groups than a board remembers tickets, and so many slots of another layer that no call checks
// the copies before the end. The loss of the first copy is still reported.
TEST(slot_cache_groups, a_visit_of_4210_groups_does_not_forget_that_its_first_copy_failed) {
  constexpr int groups = 4210;
  static_assert(groups > static_cast<int>(ticket_board::default_ring));
  const geometry model{.layers = 2, .experts = groups, .top_k = 1, .max_tokens_per_visit = groups};
  const auto layout = pool_layout::per_layer(model, std::vector<std::int64_t>{1, groups}).value();
  host_experts experts(layout, {8});
  experts.source.remove({0_layer, 0_expert});
  gate first_group;
  watched_source source(experts.source);
  source.on_ask = [&](std::size_t asked) {
    if (asked == 1) gate::pass(&first_group);
  };
  host_backend<watched_source> backend(source, experts.bank);
  host_stream stream(host_stream::mode::worker);
  slot_cache cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  std::vector<std::int32_t> ids(groups);
  std::iota(ids.begin(), ids.end(), 0);
  const routing_view view{.experts = ids};
  auto now = cache.resolve(view, stream, visit);
  ASSERT_EQ(now, status::ok) << "its copy has not failed yet";
  first_group.open();
  ASSERT_EQ(visit.plan().groups(), groups);
  while (now == status::ok) {
    cache.release(visit, stream);
    if (!visit.more()) break;
    now = cache.resolve_next(stream, visit);
  }
  stream.drain();
  if (now == status::ok) now = cache.drain();
  EXPECT_EQ(now, status::fill_failed);
  EXPECT_EQ(cache.drain(), status::ok);
  support::expect_consistent(cache.pager());
}

// Hazard 2 with real bytes: the kernel is blocked at a gate while its slot already belongs to another expert.
TEST(slot_cache_fences, a_recycled_slot_is_not_overwritten_while_a_kernel_still_reads_it) {
  const auto layout = pool_layout::shared(shape, 2).value();
  host_experts experts(layout);
  host_backend<memory_expert_source> backend(experts.source, experts.bank);
  std::atomic<int> wrong{0};
  gate held;
  kernel first{&experts, &wrong, 0_layer, {}, {}};
  kernel second{&experts, &wrong, 1_layer, {}, {}};
  host_stream stream(host_stream::mode::worker);
  slot_cache cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  const std::vector<expert_id> ids{3_expert, 4_expert};
  routing_view view{.experts = ids};
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  first.ids = ids;
  first.slots.assign(visit.plan().slots().begin(), visit.plan().slots().end());
  stream.run(gate::pass, &held);
  stream.run(kernel::run, &first);
  cache.release(visit, stream);
  const auto before = 2 * (96U + 33 + 257);
  view.layer = 1_layer;
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
}  // namespace hotset::slot_cache_stress_test
