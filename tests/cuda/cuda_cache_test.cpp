// SPDX-License-Identifier: Apache-2.0
// slot_cache over the CUDA backend and a device that runs its streams in any order that events permit: a kernel must
// read the experts that the plan promised.

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "busy_cache.hpp"
#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::cuda::cuda_cache_test {
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

using backend_type = cuda_backend<memory_expert_source>;
std::unique_ptr<backend_type> make_backend(runtime& api, const device_experts& experts,
                                           const path& how, std::size_t tickets) {
  return backend_type::create(api, experts.host.source, experts.bank, experts.pages,
                              {.mode = how.mode,
                               .tickets = tickets,
                               .chunk_bytes = 100,
                               .chunks_ahead = 2,
                               .staging_pieces = how.page_locked ? 0U : 3U,
                               .staging_piece_bytes = 100,
                               .staging_threads = 2})
      .value();
}

// Hazards 2 and 3: a slot is overwritten while a kernel still reads it; a row names a slot before its bytes have
// arrived.
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
      const auto copies = make_backend(api, experts, GetParam(), 512);
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
      const auto walked = support::walk(cache, visit, engine, random, {.visits = 180, .routed = 16},
                                        launch, [&] { support::expect_consistent(cache.pager()); });
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

/// A decode whose copies fail: experts disappear and return, and CUDA calls fail. Kernels of a step are checked at
/// its end, and only if no call reported it lost.
class failing_decode {
 public:
  failing_decode(const path& how, std::uint64_t seed)
      : random_(seed),
        api(how.pace, seed),
        layout_(seed % 2 == 0 ? pool_layout::per_layer(shape, 5).value()
                              : pool_layout::shared(shape, 7).value()),
        experts_(api, layout_, how.page_locked),
        engine_(stream::create(api, 0).value()),
        copies_(make_backend(api, experts_, how, 64)),
        cache_(pager<lru>({.layout = layout_}), *copies_),
        visit_(cache_.make_visit()) {}

  /// Removes an expert's host bytes, or restores them.
  void break_or_mend() {
    const expert_key key{layer_id{random_.id_below(shape.layers)},
                         expert_id{random_.id_below(shape.experts)}};
    if (random_.one_in(2))
      experts_.host.source.remove(key);
    else
      experts_.host.add(key, shape);
  }
  void mend_all() {
    for (std::size_t k = 0; k < shape.keys(); ++k) experts_.host.add(shape.key(k), shape);
  }
  void step() {
    bool lost = false;
    wrong_ = 0;
    for (layer_id layer{}; layer < shape.layers && !lost; ++layer) lost = !visit(layer);
    const bool drained = cache_.drain() == status::ok;
    api.run_all();
    support::expect_consistent(cache_.pager());
    ++step_;
    if (lost || !drained) {
      ++lost_steps;
      return;
    }
    ++whole_steps;
    EXPECT_EQ(wrong_, 0U) << "step " << step_ - 1;
  }
  std::size_t whole_steps = 0;
  std::size_t lost_steps = 0;
  [[nodiscard]] pager_stats stats() const { return cache_.stats(); }
  [[nodiscard]] const auto& backend() const { return *copies_; }
  [[nodiscard]] std::size_t kernels() const { return kernels_; }

 private:
  support::random_source random_;

 public:
  fake_cuda_runtime api;

 private:
  /// False: the step is lost.
  bool visit(layer_id layer) {
    std::vector<std::int32_t> ids(2 * (1 + random_.below(random_.one_in(4) ? 6 : 2)));
    for (auto& id : ids) id = random_.id_below(shape.experts);
    auto now = cache_.serve({.layer = layer, .step = step_, .experts = ids}, engine_, visit_,
                            [&](const visit_group&) { launch(layer); });
    if (now == status::ok) now = prefetch(layer);
    EXPECT_TRUE(now == status::ok || now == status::fill_failed) << describe(now);
    return now == status::ok;
  }
  status prefetch(layer_id layer) {
    std::vector<prefetch_request> wanted;
    for (int p = 0; p < 3; ++p)
      wanted.push_back({{layer_id{(number(layer) + 1) % shape.layers},
                         expert_id{random_.id_below(shape.experts)}},
                        layer + 1 == shape.layers ? step_ + 1 : step_});
    return cache_.prefetch({.layer = layer, .step = step_}, wanted, engine_);
  }
  void launch(layer_id layer) {
    const auto& plan = visit_.plan();
    for (std::size_t i = 0; i < plan.experts().size(); ++i)
      api.launch(engine_.handle(),
                 [this, slot = plan.slots()[i], key = expert_key{layer, plan.experts()[i]}] {
                   ++kernels_;
                   if (!experts_.holds(slot, key)) ++wrong_;
                 });
  }

  pool_layout layout_;
  device_experts experts_;
  stream engine_;
  std::unique_ptr<backend_type> copies_;
  slot_cache<pager<lru>, backend_type> cache_;
  cache_visit visit_;
  step_id step_ = 0;
  std::size_t wrong_ = 0;
  std::size_t kernels_ = 0;
};

// Hazard 17: a failed call or copy counts as a success.
TEST_P(cuda_cache, a_step_not_reported_lost_read_the_right_experts) {
  std::size_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    failing_decode decode(GetParam(), seed);
    for (int n = 0; n < 120; ++n) {
      if (random.one_in(2)) decode.break_or_mend();
      decode.step();
    }
    failed += decode.stats().failed_fills;
    EXPECT_GT(decode.lost_steps, 10U);
    EXPECT_GT(decode.whole_steps, 10U);
    EXPECT_FALSE(decode.backend().trouble()) << "an expert that is not there is no failed call";
    decode.mend_all();
    const auto lost = decode.lost_steps;
    for (int n = 0; n < 20; ++n) decode.step();
    EXPECT_LE(decode.lost_steps, lost + 1) << "what was on its way may still fail, once";
    EXPECT_GT(decode.kernels(), 300U);
    EXPECT_THAT(decode.api.violations(), testing::IsEmpty());
  }
  EXPECT_GT(failed, 100U);
}

// The first failed call ends all copying: residents are still read correctly, and missing experts are reported.
TEST_P(cuda_cache, a_failing_device_loses_steps_and_serves_no_wrong_bytes) {
  std::size_t failed = 0;
  std::size_t whole = 0;
  const std::vector<std::string> calls{"cudaMemcpyAsync",      "cudaMemcpyBatchAsync",
                                       "cudaEventRecord",      "cudaEventQuery",
                                       "cudaEventSynchronize", "cudaStreamWaitEvent"};
  for (std::uint64_t seed = 1; seed <= 18; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    failing_decode decode(GetParam(), seed);
    for (int n = 0; n < 10; ++n) decode.step();
    EXPECT_EQ(decode.lost_steps, 0U);
    if (seed % 3 == 0)
      decode.api.lose_device_at_copy(1 + seed);
    else
      decode.api.fail(calls[seed % calls.size()], 1 + seed);
    for (int n = 0; n < 40; ++n) decode.step();
    failed += decode.backend().trouble() ? 1U : 0U;
    whole += decode.whole_steps;
    EXPECT_EQ(decode.lost_steps != 0, decode.backend().trouble().has_value());
    EXPECT_THAT(decode.api.violations(), testing::IsEmpty());
  }
  EXPECT_GT(failed, 6U);
  EXPECT_GT(whole, 180U);
}

// Hazard 2: a copy that is refused at once has waited for no reader of its slot.
TEST(cuda_cache_readers, outlive_a_refused_copy_into_their_slot) {
  const geometry one{.layers = 1, .experts = 4, .top_k = 1};
  const auto layout = pool_layout::per_layer(one, 1).value();
  fake_cuda_runtime api(fake_cuda_runtime::pace::late, 1);
  device_experts experts(api, layout);
  auto engine = stream::create(api, 0).value();
  {
    const path how{"side", copy_mode::side_stream, true, fake_cuda_runtime::pace::late};
    const auto copies = make_backend(api, experts, how, 64);
    slot_cache cache(pager<lru>({.layout = layout}), *copies);
    auto visit = cache.make_visit();
    bool may_run = false;
    bool is_right = false;
    const auto serve = [&](std::int32_t e) {
      const std::vector<std::int32_t> ids{e};
      const step_id step = static_cast<step_id>(e);
      const auto now =
          cache.resolve({.layer = 0_layer, .step = step, .experts = ids}, engine, visit);
      if (e == 0) {
        api.hold(engine.handle(), [&] { return may_run; });
        api.launch(engine.handle(), [&] { is_right = experts.holds(0_slot, {0_layer, 0_expert}); });
      }
      cache.release(visit, engine);
      return now;
    };
    ASSERT_EQ(serve(0), status::ok);
    experts.host.source.remove({0_layer, 1_expert});
    EXPECT_EQ(serve(1), status::fill_failed);
    EXPECT_EQ(serve(2), status::ok);
    api.run_all();  // all that need not wait for the kernel
    may_run = true;
    api.run_all();
    EXPECT_TRUE(is_right);
    EXPECT_EQ(cache.drain(), status::ok);
    api.release_holds();
  }
  EXPECT_THAT(api.violations(), testing::IsEmpty());
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
}  // namespace hotset::cuda::cuda_cache_test
