// SPDX-License-Identifier: Apache-2.0
// Copies that fail after a visit relied on them: their bytes are not read again, and the loss is reported once.

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_steps.hpp"

namespace hotset::slot_cache_loss_test {
namespace {

using support::scripted_backend;
using support::slot_cache_steps;
using support::slot_cache_wide;
using testing::SizeIs;

/// The first visit's copies are pending and will fail; its kernel is enqueued.
struct slot_cache_loss : slot_cache_wide {
  slot_cache_loss() {
    backend.failing = {1};
    EXPECT_EQ(resolve(0, 0, {0, 1}), status::ok);
    first = backend.last();
    cache.release(visit, stream);
  }
  void fail_first() { backend.finish(first); }
  /// The loss is reported once, no row names the missing experts, and the repeated step copies them.
  void expect_told_and_copied_again() {
    EXPECT_EQ(cache.settle(), status::fill_failed);
    EXPECT_EQ(cache.settle(), status::ok);
    expect_absent();
    whole(5, 0, {0, 1});
    backend.run(stream);
    EXPECT_EQ(kernels, 2);
  }
  void expect_absent() {
    for (const auto e : {0_expert, 1_expert}) {
      EXPECT_EQ(locate(0, e), no_slot) << "expert " << e << " never came";
      EXPECT_EQ(cache.row(0_layer)[index_of(e)], -1);
    }
    support::expect_consistent(cache.pager());
  }
  ticket first = no_ticket;
};

// --- a cancelled reservation leaves the victim unchanged ---

TEST_F(slot_cache_loss, of_victims_of_a_visit_that_the_backend_refused) {
  backend.accept = 0;
  for (step_id step = 1; step < 4; ++step)
    ASSERT_EQ(resolve(step, 1, {2, 3, 4, 5}), status::fill_failed);
  backend.accept = scripted_backend::all;
  ASSERT_NE(locate(0, 0), no_slot) << "its copy was not touched";
  fail_first();
  expect_told_and_copied_again();
}

TEST_F(slot_cache_loss, of_victims_of_refused_prefetches) {
  whole(0, 1, {6, 7});
  whole(0, 1, {5, 5});
  backend.accept = 0;
  ASSERT_EQ(prefetch({{{1_layer, 2_expert}, 1},
                      {{1_layer, 3_expert}, 1},
                      {{1_layer, 4_expert}, 1},
                      {{1_layer, 5_expert}, 1}}),
            status::ok);
  ASSERT_NE(locate(0, 0), no_slot);
  fail_first();
  EXPECT_EQ(cache.settle(), status::fill_failed);
  expect_absent();
}

TEST_F(slot_cache_loss, of_victims_of_a_plan_that_a_late_hit_undid) {
  ASSERT_EQ(prefetch({{{1_layer, 2_expert}, 1}}), status::ok);
  backend.refuse_fences = 1;
  backend.before_fence = [&] { backend.accept = 0; };
  ASSERT_EQ(resolve(1, 1, {2, 3, 4, 5}), status::fill_failed);
  backend.before_fence = nullptr;
  backend.accept = scripted_backend::all;
  ASSERT_NE(locate(0, 0), no_slot);
  fail_first();
  expect_told_and_copied_again();
}

TEST_F(slot_cache_loss, of_victims_of_partly_accepted_fills) {
  whole(0, 1, {6, 7});
  whole(0, 1, {5, 5});
  backend.accept = 1;
  ASSERT_EQ(resolve(1, 1, {2, 3}), status::fill_failed);
  backend.accept = scripted_backend::all;
  EXPECT_EQ(locate(0, 0), no_slot) << "its bytes are gone";
  ASSERT_NE(locate(0, 1), no_slot);
  fail_first();
  EXPECT_EQ(cache.settle(), status::fill_failed);
  EXPECT_EQ(cache.settle(), status::ok);
  expect_absent();
}

// --- a loss is reported once, by a call that returns it ---

TEST_F(slot_cache_loss, is_reported_by_the_call_after_a_refused_invalidation) {
  ASSERT_EQ(cache.settle(), status::ok);
  ASSERT_EQ(resolve(1, 1, {2, 3}), status::ok);
  EXPECT_EQ(cache.invalidate(expert_key{1_layer, 2_expert}), status::busy)
      << "an open visit reads it";
  EXPECT_EQ(cache.settle(), status::fill_failed);
  EXPECT_EQ(cache.drain(), status::ok);
  expect_absent();
}

TEST_F(slot_cache_loss, is_reported_by_a_successful_invalidation) {
  whole(0, 1, {2, 3});
  EXPECT_EQ(cache.invalidate(expert_key{1_layer, 2_expert}), status::fill_failed);
  EXPECT_EQ(locate(1, 2), no_slot) << "forgotten all the same";
  EXPECT_EQ(cache.drain(), status::ok);
}

TEST_F(slot_cache_loss, is_reported_by_a_quota_change_and_by_compaction) {
  for (const bool quota : {true, false}) {
    backend.failing = {backend.submits + 1};
    ASSERT_EQ(resolve(1, 1, {2, 3}), status::ok);
    cache.release(visit, stream);
    const auto change = [&] {
      return quota ? cache.set_quota(0_layer, 3) : cache.compact([](slot_id, slot_id) {});
    };
    EXPECT_EQ(change(), status::fill_failed);
    EXPECT_EQ(cache.pager().quota(0_layer), quota ? 5 : 3) << "nothing else was done";
    EXPECT_EQ(change(), status::ok);
    EXPECT_EQ(cache.drain(), status::ok);
  }
}

TEST_F(slot_cache_loss, is_reported_by_warm_and_by_prefetch) {
  const std::vector<expert_key> keys{{1_layer, 6_expert}};
  EXPECT_EQ(cache.warm(keys, stream), status::fill_failed);
  EXPECT_EQ(cache.warm(keys, stream), status::ok);
  EXPECT_NE(locate(1, 6), no_slot);
  backend.failing = {backend.submits + 1};
  ASSERT_EQ(resolve(1, 1, {2, 3}), status::ok);
  cache.release(visit, stream);
  backend.finish(backend.batches.rbegin()->first);
  EXPECT_EQ(prefetch({}), status::fill_failed);
  EXPECT_EQ(prefetch({}), status::ok);
}

TEST_F(slot_cache_loss, is_reported_although_the_slot_is_being_refilled) {
  ASSERT_EQ(cache.pager().trim({}, 0, {}), 2U);
  ASSERT_EQ(
      prefetch({{{1_layer, 2_expert}, 1}, {{1_layer, 3_expert}, 1}, {{1_layer, 4_expert}, 1}}),
      status::ok);
  bool reused = false;
  for (const auto& f : backend.batches.at(first).fills)
    reused = reused || cache.pager().slot(f.slot).state == slot_state::filling;
  ASSERT_TRUE(reused);
  fail_first();
  EXPECT_EQ(cache.settle(), status::fill_failed);
  EXPECT_EQ(cache.settle(), status::ok);
}

TEST(slot_cache_end, logs_an_unreported_loss) {
  std::vector<std::string> told;
  const log_sink log{[](void* context, log_level, std::string_view text) noexcept {
                       static_cast<std::vector<std::string>*>(context)->emplace_back(text);
                     },
                     &told};
  scripted_backend backend(5);
  scripted_backend::stream_type stream;
  backend.failing = {1};
  {
    slot_cache cache(pager<lru>({.layout = pool_layout::shared(support::cache_shape, 5).value()}),
                     backend, {.log = log});
    auto visit = cache.make_visit();
    const std::vector<std::int32_t> ids{0, 1};
    told.clear();
    ASSERT_EQ(cache.resolve({.experts = ids}, stream, visit), status::ok);
    cache.release(visit, stream);
  }
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(told[0], testing::HasSubstr("the step is lost"));
}

// A fence on a stream of its own does not report a copy that failed before.
TEST_F(slot_cache_wide, a_copy_that_had_failed_by_its_fence_is_not_committed) {
  backend.failing = {1};
  backend.before_fence = [&] { backend.finish(backend.last()); };
  EXPECT_EQ(resolve(0, 0, {0, 1}), status::fill_failed);
  EXPECT_FALSE(visit.is_open());
  EXPECT_EQ(locate(0, 0), no_slot);
  EXPECT_EQ(cache.settle(), status::ok) << "told already";
  backend.before_fence = nullptr;
  whole(0, 0, {0, 1});
  backend.run(stream);
}

// --- a pin belongs to the slot's content ---

TEST_F(slot_cache_steps, a_failed_visit_does_not_release_the_next_visits_pin) {
  backend.failing = {1};
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  backend.finish(backend.last());
  auto second = cache.make_visit();
  ASSERT_EQ(resolve(second, 0, 1, {4, 5}), status::fill_failed) << "told once";
  ASSERT_EQ(resolve(second, 0, 1, {4, 5}), status::ok);
  ASSERT_EQ(pins_of(1, 4), 1U);
  cache.release(visit, stream);
  EXPECT_EQ(pins_of(1, 4), 1U);
  EXPECT_EQ(pins_of(1, 5), 1U);
  auto third = cache.make_visit();
  EXPECT_EQ(resolve(third, 1, 0, {2, 3}), status::no_victim) << "two of three slots are read";
  EXPECT_NE(locate(1, 4), no_slot);
  cache.release(second, stream);
  EXPECT_EQ(pins_of(1, 4), 0U);
  EXPECT_EQ(resolve(third, 1, 0, {2, 3}), status::ok);
}

// The kernel reads wrong bytes, but the next copy must not write while it reads.
TEST_F(slot_cache_steps, a_failed_slot_is_refilled_after_the_kernel_that_reads_it) {
  backend.failing = {1};
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  const auto slot = locate(0, 0);
  backend.finish(backend.last());
  ASSERT_EQ(cache.settle(), status::fill_failed);
  backend.launch(stream, [] {});
  cache.release(visit, stream);
  const auto reader = cache.pager().slot(slot).last_reader;
  EXPECT_EQ(reader, backend.last());
  ASSERT_EQ(resolve(1, 0, {4, 5}), status::ok);
  const auto& fills = backend.batches.rbegin()->second.fills;
  const auto next = std::ranges::find(fills, slot, &fill::slot);
  ASSERT_NE(next, fills.end());
  EXPECT_EQ(next->after, reader);
}

// So many copies are pending that the cache waits for one before it prefetches. Meanwhile the visit's own copies
// fail.
TEST_F(slot_cache_steps, prefetch_does_not_reuse_failed_slots_of_an_open_visit) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  backend.finish(backend.last());
  backend.launch(stream, [this] { backend.finish(backend.batches.rbegin()->first); });
  cache.release(visit, stream);
  backend.before_fence = [this] { backend.accept = 0; };  // no prefetches yet
  backend.accept = 0;
  ASSERT_EQ(prefetch({{{1_layer, 6_expert}, 10}, {{1_layer, 7_expert}, 10}}), status::ok);
  for (const std::int32_t e : {2, 4, 6}) {
    backend.accept = scripted_backend::all;
    ASSERT_EQ(resolve(1, 0, {e, e + 1}), status::ok);
    cache.release(visit, stream);
  }
  ASSERT_EQ(cache.queue().size(), 2U);
  backend.accept = scripted_backend::all;
  backend.before_fence = nullptr;
  backend.failing = {backend.submits + 1};
  ASSERT_EQ(resolve(1, 1, {0, 1}), status::ok);
  ASSERT_EQ(locate(1, 0), no_slot) << "lost while the cache waited";
  EXPECT_EQ(backend.batches.rbegin()->second.when, urgency::now) << "nothing was prefetched";
  backend.launch(stream, [] {});
  cache.release(visit, stream);
  const auto reader = backend.last();
  EXPECT_EQ(cache.settle(), status::fill_failed);
  ASSERT_EQ(prefetch({}), status::ok);
  const auto& prefetched = backend.batches.rbegin()->second;
  ASSERT_EQ(prefetched.when, urgency::soon);
  EXPECT_EQ(prefetched.fills[0].after, reader);
}

// --- moved-from visits ---

TEST_F(slot_cache_steps, a_visit_that_was_moved_from_is_closed_and_refused_by_every_call) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  cache_visit moved(std::move(visit));
  EXPECT_TRUE(moved.is_open());
  EXPECT_FALSE(visit.is_open());
  EXPECT_FALSE(visit.more());
  EXPECT_TRUE(visit.plan().experts().empty());
  cache.release(visit, stream);
  EXPECT_EQ(pins_of(0, 0), 1U);
  EXPECT_EQ(resolve(1, 0, {0, 1}), status::invalid_argument);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
  cache.release(moved, stream);
  EXPECT_EQ(pins_of(0, 0), 0U);
  visit = std::move(moved);
  EXPECT_EQ(resolve(1, 0, {0, 1}), status::ok);
  cache.release(visit, stream);
}

}  // namespace
}  // namespace hotset::slot_cache_loss_test
