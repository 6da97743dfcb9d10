// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/slot_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_steps.hpp"
#include "host_experts.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/transfer/host_backend.hpp"

namespace hotset::slot_cache_test {
namespace {

using support::scripted_backend;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

using support::slot_cache_steps;
using support::slot_cache_wide;

const auto& shape = support::cache_shape;

TEST_F(slot_cache_steps, resolve_copies_fences_and_pins) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  EXPECT_TRUE(visit.is_open());
  ASSERT_EQ(backend.batches.size(), 1U);
  const auto& [id, batch] = *backend.batches.begin();
  EXPECT_EQ(batch.fills.size(), 2U);
  EXPECT_EQ(batch.when, urgency::now);
  EXPECT_THAT(backend.fenced, ElementsAre(id));
  EXPECT_EQ(backend.poll(id), transfer_state::pending) << "the host did not wait";
  EXPECT_EQ(cache.pager().slot(locate(0, 0)).pins, 1);
  launch();
  cache.release(visit, stream);
  EXPECT_EQ(cache.pager().slot(locate(0, 0)).pins, 0);
  EXPECT_NE(cache.pager().slot(locate(0, 0)).last_reader, no_ticket);
  backend.run(stream);
  EXPECT_EQ(kernels, 2);
}

TEST_F(slot_cache_steps, a_visit_of_another_cache_keeps_its_slots_and_ends_no_pin_here) {
  cache_type other(pager<lru>({.layout = pool_layout::shared(shape, 3).value()}), backend);
  const std::vector<std::int32_t> ids{0, 1};
  auto theirs = other.make_visit();
  ASSERT_EQ(other.resolve({.layer = 0_layer, .experts = ids}, stream, theirs), status::ok);
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  cache.release(theirs, stream);
  cache.abandon(theirs, stream);
  EXPECT_EQ(pins_of(0, 0), 1U);
  EXPECT_TRUE(theirs.is_open());
  other.release(theirs, stream);
  EXPECT_FALSE(theirs.is_open());
  EXPECT_EQ(cache.resolve_next(stream, theirs), status::no_plan);
}

TEST_F(slot_cache_steps, a_visit_without_misses_submits_nothing) {
  whole(0, 0, {0, 1});
  whole(1, 0, {1, 0});
  EXPECT_EQ(backend.submits, 1U);
  EXPECT_EQ(backend.fenced.size(), 1U);
  backend.run(stream);
}

TEST_F(slot_cache_steps, an_open_visit_is_busy_and_a_second_release_is_ignored) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  EXPECT_EQ(resolve(1, 0, {2, 3}), status::busy);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::busy);
  cache.release(visit, stream);
  cache.release(visit, stream);
  EXPECT_EQ(cache.pager().slot(locate(0, 0)).pins, 0);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
}

// Hazard 2: the copy into a slot waits for a kernel that has not run yet.
TEST_F(slot_cache_steps, a_recycled_slot_is_filled_after_its_last_reader) {
  whole(0, 0, {0, 1});
  whole(1, 0, {2, 3});
  const auto second = backend.last() - 1;  // the last ticket is the reader's
  ASSERT_EQ(backend.batches.count(second), 1U);
  EXPECT_FALSE(backend.may_start(second)) << "a kernel still reads what it overwrites";
  backend.run(stream);
  EXPECT_EQ(kernels, 4);
}

TEST_F(slot_cache_steps, slots_of_an_open_visit_are_no_victims) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  auto other = cache.make_visit();
  const std::vector<std::int32_t> ids{2, 3};
  const routing_view view{.layer = 1_layer, .experts = ids};
  EXPECT_EQ(cache.resolve(view, stream, other), status::no_victim);
  EXPECT_FALSE(other.is_open());
  cache.release(visit, stream);
  EXPECT_EQ(cache.resolve(view, stream, other), status::ok);
}

// Hazard 19: a failed or refused copy leaves a slot half-published.
TEST_F(slot_cache_steps, a_refused_copy_gives_its_victim_back_and_nothing_is_half_published) {
  whole(0, 0, {0, 1});
  whole(0, 1, {6, 6});
  backend.run(stream);
  backend.accept = 1;
  EXPECT_EQ(resolve(1, 0, {4, 5}), status::fill_failed);
  EXPECT_FALSE(visit.is_open());
  support::expect_consistent(cache.pager());
  EXPECT_EQ(locate(0, 4), no_slot);
  EXPECT_EQ(locate(0, 5), no_slot);
  EXPECT_EQ(locate(0, 0), no_slot) << "its bytes are gone";
  EXPECT_NE(locate(0, 1), no_slot) << "its copy was refused";
  for (const auto s : each<slot_id>(3)) EXPECT_EQ(cache.pager().slot(s).pins, 0);
  // The accepted copy may still write: the next copy into its slot waits for it.
  const auto given_up = backend.batches.rbegin()->first;
  backend.accept = scripted_backend::all;
  whole(2, 0, {4, 1});
  const auto& again = backend.batches.rbegin()->second;
  ASSERT_EQ(again.fills.size(), 1U);
  EXPECT_EQ(again.fills[0].after, given_up);
  backend.run(stream);
}

TEST_F(slot_cache_steps, a_full_backend_changes_nothing) {
  whole(0, 0, {0, 1});
  backend.accept = 0;
  EXPECT_EQ(resolve(1, 0, {2, 3}), status::fill_failed);
  EXPECT_NE(locate(0, 0), no_slot);
  EXPECT_NE(locate(0, 1), no_slot);
  EXPECT_EQ(prefetch({{{0_layer, 7_expert}, 3}}), status::ok);
  EXPECT_EQ(cache.queue().size(), 1U) << "the link had no room: the request waits";
  EXPECT_NE(locate(0, 0), no_slot);
  EXPECT_EQ(locate(0, 7), no_slot);
  backend.accept = scripted_backend::all;
  whole(2, 0, {2, 3});
  backend.run(stream);
}

TEST_F(slot_cache_steps, a_failure_on_a_blocking_stream_is_reported_at_once) {
  backend.blocking = true;
  backend.failing = {2};
  whole(0, 0, {0, 1});
  EXPECT_EQ(resolve(1, 0, {2, 3}), status::fill_failed);
  support::expect_consistent(cache.pager());
  EXPECT_EQ(locate(0, 2), no_slot);
  EXPECT_EQ(locate(0, 3), no_slot);
  EXPECT_EQ(cache.stats().failed_fills, 2U);
  whole(2, 0, {2, 3});
}

TEST_F(slot_cache_steps, a_failure_that_a_kernel_may_have_read_is_reported_once) {
  backend.failing = {1};
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  finish();
  EXPECT_EQ(resolve(1, 0, {4, 5}), status::fill_failed);
  EXPECT_FALSE(visit.is_open());
  EXPECT_EQ(locate(0, 0), no_slot);
  EXPECT_EQ(locate(0, 1), no_slot);
  EXPECT_EQ(locate(0, 4), no_slot) << "nothing was planned";
  whole(1, 0, {4, 5});
  backend.run(stream);
}

TEST_F(slot_cache_steps, a_failure_is_reported_after_the_slots_eviction) {
  backend.failing = {1};
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  cache.release(visit, stream);
  ASSERT_EQ(cache.pager().trim({}, 0, {}), 2U);
  backend.run(stream);
  EXPECT_EQ(cache.settle(), status::fill_failed) << "a kernel read what never arrived";
  EXPECT_EQ(cache.settle(), status::ok);
}

// Hazard 3: a row names a slot before its bytes have arrived.
TEST_F(slot_cache_wide, prefetched_experts_are_readable_when_they_have_arrived_in_whatever_order) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  const auto first = backend.last();
  ASSERT_EQ(prefetch({{{0_layer, 7_expert}, 0}}), status::ok);
  const auto second = backend.last();
  EXPECT_EQ(backend.batches[first].when, urgency::soon);
  EXPECT_THAT(backend.fenced, IsEmpty());
  EXPECT_EQ(cache.row(0_layer)[6], -1);
  backend.finish(second);
  whole(0, 1, {0, 1});
  EXPECT_EQ(cache.row(0_layer)[6], -1);
  EXPECT_NE(cache.row(0_layer)[7], -1);
  backend.finish(first);
  whole(1, 1, {0, 1});
  EXPECT_NE(cache.row(0_layer)[6], -1);
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_late_hit_is_promoted_and_fenced) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  const auto late = backend.last();
  whole(0, 0, {6, 1});
  EXPECT_TRUE(backend.batches[late].promoted);
  EXPECT_THAT(backend.fenced, Contains(late));
  EXPECT_EQ(cache.stats().prefetch_hits, 1U);
  backend.run(stream);
  EXPECT_EQ(kernels, 2);
}

TEST_F(slot_cache_wide, late_hits_of_later_groups_are_fenced_too) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  const auto late = backend.last();
  ASSERT_EQ(resolve(0, 0, {0, 1, 0, 2, 1, 3, 6, 4}), status::ok);
  ASSERT_TRUE(visit.more());
  ASSERT_THAT(visit.plan().experts(), testing::Not(Contains(6)));
  EXPECT_THAT(backend.fenced, testing::Not(Contains(late)));
  launch();
  cache.release(visit, stream);
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
  ASSERT_THAT(visit.plan().experts(), Contains(6));
  EXPECT_THAT(backend.fenced, Contains(late));
  launch();
  finish();
  EXPECT_EQ(kernels, 6);
}

TEST_F(slot_cache_wide, a_late_hit_whose_copy_fails_is_fetched_again) {
  backend.blocking = true;
  backend.failing = {1};
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  whole(0, 0, {6, 1});
  EXPECT_EQ(backend.content[static_cast<std::size_t>(locate(0, 6))],
            (expert_key{0_layer, 6_expert}));
  EXPECT_EQ(cache.stats().failed_fills, 1U);
  EXPECT_EQ(resolve(1, 0, {6, 1}), status::ok)
      << "no kernel read the failed copy: nothing is reported";
  EXPECT_NE(locate(0, 6), no_slot);
}

// A backend may refuse a fence (during a capture, for example) while the copy continues. The next fill of the slot
// waits for it.
TEST_F(slot_cache_wide, a_slot_with_a_failed_fence_is_refilled_after_its_copy) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  const auto late = backend.last();
  const auto slot = locate(0, 6);
  backend.refuse_fences = 1;
  ASSERT_EQ(resolve(0, 0, {6, 1}), status::ok);
  const auto& fills = backend.batches[backend.last()].fills;
  const auto again = std::ranges::find(fills, slot, &fill::slot);
  ASSERT_NE(again, fills.end()) << "the free slot is used first";
  EXPECT_EQ(again->after, late);
  launch();
  finish();
}

TEST_F(slot_cache_wide, a_speculative_copy_that_fails_unread_is_forgotten_in_silence) {
  backend.failing = {1};
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  backend.finish(backend.last());
  whole(0, 0, {0, 1});
  EXPECT_EQ(locate(0, 6), no_slot);
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_prefetch_that_the_backend_refuses_is_tried_again) {
  backend.accept = 0;
  EXPECT_EQ(prefetch({{{0_layer, 6_expert}, 1}, {{0_layer, 7_expert}, 1}}), status::ok);
  EXPECT_EQ(locate(0, 6), no_slot);
  support::expect_consistent(cache.pager());
  backend.accept = scripted_backend::all;
  whole(0, 1, {0, 1});
  EXPECT_NE(locate(0, 6), no_slot);
  EXPECT_NE(locate(0, 7), no_slot);
  EXPECT_TRUE(cache.queue().empty());
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_full_backend_gives_the_victims_of_refused_prefetches_back) {
  whole(0, 0, {0, 1, 2, 3});
  whole(0, 1, {0, 1});
  backend.run(stream);
  ASSERT_EQ(cache.settle(), status::ok);
  const auto before = cache.pager().residents();
  backend.accept = 0;
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 1}, {{0_layer, 7_expert}, 1}}), status::ok);
  EXPECT_EQ(cache.pager().residents(), before);
  EXPECT_EQ(cache.stats().speculative_fills, 0U);
}

// The number of pending speculative copies is bounded; later requests keep their victims until their turn.
TEST(slot_cache_prefetch, requests_beyond_the_bound_wait_for_copies_to_arrive) {
  scripted_backend backend(8);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(shape, 8).value()}), backend,
                   {.most_under_way = 2});
  auto visit = cache.make_visit();
  const std::vector<prefetch_request> wanted{
      {{0_layer, 4_expert}, 1}, {{0_layer, 5_expert}, 1}, {{0_layer, 6_expert}, 1}};
  ASSERT_EQ(cache.prefetch({}, wanted, stream), status::ok);
  EXPECT_EQ(cache.stats().speculative_fills, 2U);
  EXPECT_EQ(cache.queue().size(), 1U);
  backend.finish(backend.last());
  const std::vector<std::int32_t> ids{0, 1};
  ASSERT_EQ(cache.resolve({.layer = 1_layer, .step = 0, .experts = ids}, stream, visit),
            status::ok);
  cache.release(visit, stream);
  EXPECT_EQ(cache.stats().speculative_fills, 3U);
  EXPECT_NE(cache.pager().locate({0_layer, 6_expert}), no_slot);
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_prefetch_that_its_visit_does_not_use_is_cancelled) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}, {{0_layer, 7_expert}, 1}}), status::ok);
  const auto stale = cache.pager().locate({0_layer, 6_expert});
  ASSERT_NE(stale, no_slot);
  whole(0, 0, {0, 1});
  EXPECT_EQ(locate(0, 6), no_slot);
  EXPECT_NE(locate(0, 7), no_slot) << "it is meant for the next step";
  const auto stats = cache.stats();
  EXPECT_EQ(stats.cancelled_prefetches, 1U);
  EXPECT_EQ(stats.bytes_prefetch_cancelled, 1U);
  EXPECT_EQ(stats.bytes_prefetch_wasted, 0U);
  EXPECT_EQ(stats.bytes_prefetch_pending(), 1U);
  support::expect_consistent(cache.pager());
  whole(0, 1, {0, 1, 2, 2});
  backend.run(stream);
}

// The visit of the request's own step was skipped.
TEST_F(slot_cache_wide, a_prefetch_for_a_past_step_is_cancelled) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  whole(0, 1, {0, 1});
  ASSERT_NE(locate(0, 6), no_slot);
  whole(1, 0, {0, 1});
  EXPECT_EQ(locate(0, 6), no_slot);
  EXPECT_EQ(cache.stats().cancelled_prefetches, 1U);
  support::expect_consistent(cache.pager());
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_prefetch_for_the_largest_step_number_ends_with_it) {
  constexpr step_id last = ~step_id{0};
  whole(0, 0, {0, 1});
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(prefetch({{{0_layer, 0_expert}, last}, {{0_layer, 6_expert}, last}}), status::ok);
  whole(last, 0, {2, 3});
  backend.run(stream);
  ASSERT_EQ(cache.settle(), status::ok);
  EXPECT_EQ(locate(0, 6), no_slot);
  whole(last, 1, {0, 1});
  ASSERT_EQ(prefetch({{{1_layer, 2_expert}, last}, {{1_layer, 3_expert}, last}}), status::ok);
  EXPECT_EQ(locate(0, 0), no_slot) << "it is no longer requested";
  backend.run(stream);
}

TEST_F(slot_cache_wide, a_waiting_request_ends_with_its_visit) {
  backend.accept = 0;
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  backend.accept = scripted_backend::all;
  whole(0, 0, {0, 1});
  EXPECT_TRUE(cache.queue().empty());
  EXPECT_EQ(cache.queue().stats().expired, 1U);
  EXPECT_EQ(locate(0, 6), no_slot);
  backend.run(stream);
}

TEST_F(slot_cache_wide, invalidate_drops_requests_for_its_experts) {
  backend.accept = 0;
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 1}, {{1_layer, 6_expert}, 1}}), status::ok);
  ASSERT_EQ(cache.invalidate(expert_key{0_layer, 6_expert}), status::ok);
  ASSERT_EQ(cache.invalidate(1_layer), status::ok);
  EXPECT_TRUE(cache.queue().empty());
}

// Hazard 12: a prefetch must not evict experts that the running step still uses.
TEST_F(slot_cache_steps, a_prefetch_never_evicts_an_open_visits_experts) {
  whole(0, 1, {7, 7});
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  ASSERT_EQ(prefetch({{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 0}}), status::ok);
  EXPECT_NE(locate(0, 0), no_slot);
  EXPECT_NE(locate(0, 1), no_slot);
  launch();
  finish();
}

// Least-Stale treats a request for a resident as a use, so it must see the request before it chooses a victim.
TEST(slot_cache_prefetch, requested_residents_are_notified_before_victims_are_chosen) {
  scripted_backend backend(4);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<least_stale>({.layout = pool_layout::shared(shape, 4).value(),
                                       .eviction = {.order = stale_order::layer},
                                       .guard = prefetch_guard::none}),
                   backend);
  auto visit = cache.make_visit();
  const std::vector<std::int32_t> old{0, 1}, now{2, 3};
  ASSERT_EQ(cache.resolve({.layer = 1_layer, .step = 0, .experts = old}, stream, visit),
            status::ok);
  cache.release(visit, stream);
  ASSERT_EQ(cache.resolve({.layer = 0_layer, .step = 1, .experts = now}, stream, visit),
            status::ok);
  cache.release(visit, stream);
  backend.run(stream);
  // Both stale keys are candidates; the second request names one of them.
  const std::vector<prefetch_request> wanted{{{1_layer, 7_expert}, 1}, {{1_layer, 0_expert}, 1}};
  ASSERT_EQ(cache.prefetch(visit.plan().context(), wanted, stream), status::ok);
  EXPECT_NE(cache.pager().locate({1_layer, 7_expert}), no_slot);
  EXPECT_NE(cache.pager().locate({1_layer, 0_expert}), no_slot);
  EXPECT_EQ(cache.pager().locate({1_layer, 1_expert}), no_slot);
}

// Hazard 9, under prefetch: a prompt evicts the experts of running decodes.
TEST(slot_cache_prefetch, prefetches_of_a_prompt_spare_the_decode_working_set) {
  const auto kept = [](request_class kind) {
    scripted_backend backend(4);
    scripted_backend::stream_type stream;
    slot_cache cache(pager<protect_decode<lru>>({.layout = pool_layout::shared(shape, 4).value()}),
                     backend);
    auto visit = cache.make_visit();
    const std::vector<std::int32_t> answer{0, 1}, prompt{2, 3};
    EXPECT_EQ(cache.resolve({.layer = 0_layer, .step = 0, .experts = answer}, stream, visit),
              status::ok);
    cache.release(visit, stream);
    EXPECT_EQ(cache.resolve({.layer = 0_layer, .step = 1, .kind = kind, .experts = prompt}, stream,
                            visit),
              status::ok);
    cache.release(visit, stream);
    backend.run(stream);
    const std::vector<prefetch_request> wanted{{{1_layer, 4_expert}, 1}};
    EXPECT_EQ(cache.prefetch(visit.plan().context(), wanted, stream), status::ok);
    EXPECT_NE(cache.pager().locate({1_layer, 4_expert}), no_slot);
    return cache.pager().locate({0_layer, 0_expert}) != no_slot;
  };
  EXPECT_TRUE(kept(request_class::prefill));
  EXPECT_FALSE(kept(request_class::decode)) << "least recent, and nothing speaks for it";
}

// Hazard 2, under prefetch: the speculative copy waits for the last reader of its slot.
TEST_F(slot_cache_wide, a_speculative_copy_waits_for_the_last_reader_of_its_slot) {
  whole(0, 0, {0, 1, 2, 3});
  whole(0, 1, {0, 0});
  const auto slot = locate(0, 0);
  const auto reader = cache.pager().slot(slot).last_reader;
  ASSERT_NE(reader, no_ticket);
  ASSERT_EQ(prefetch({{{1_layer, 5_expert}, 0}}), status::ok);
  const auto copy = backend.last();
  ASSERT_EQ(locate(1, 5), slot);
  EXPECT_EQ(backend.batches[copy].fills[0].after, reader);
  EXPECT_FALSE(backend.may_start(copy));
  backend.run(stream);
  EXPECT_TRUE(backend.may_start(copy));
}

// Hazard 19, under prefetch: a failed copy leaves a slot half-published.
TEST_F(slot_cache_wide, a_failed_speculative_copy_frees_its_slot_and_is_in_no_row) {
  whole(0, 0, {0, 1, 2, 3});
  whole(0, 1, {0, 0});
  backend.run(stream);
  backend.failing = {backend.submits + 1};
  ASSERT_EQ(prefetch({{{1_layer, 5_expert}, 1}}), status::ok);
  const auto slot = locate(1, 5);
  backend.finish(backend.last());
  ASSERT_EQ(cache.settle(), status::ok) << "no kernel read it";
  EXPECT_EQ(cache.pager().slot(slot).state, slot_state::free);
  EXPECT_EQ(cache.row(1_layer)[5], -1);
  EXPECT_EQ(cache.row(0_layer)[0], -1) << "its victim's bytes are gone";
  EXPECT_EQ(cache.stats().bytes_prefetch_wasted, 1U);
  support::expect_consistent(cache.pager());
}

TEST(slot_cache_prefetch, passes_its_warnings_to_a_callback) {
  scripted_backend backend(3);
  std::vector<std::string> told;
  const log_sink log{[](void* context, log_level, std::string_view text) noexcept {
                       static_cast<std::vector<std::string>*>(context)->emplace_back(text);
                     },
                     &told};
  scripted_backend::stream_type stream;
  const geometry deep{.layers = 4, .experts = 8, .top_k = 2};
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(deep, 3).value()}), backend,
                   {.queue = {.most_waiting = 1}, .log = log});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], testing::HasSubstr("3 slots"));
  backend.accept = 0;
  const std::vector<prefetch_request> wanted{
      {{1_layer, 4_expert}, 1}, {{2_layer, 5_expert}, 1}, {{3_layer, 6_expert}, 1}};
  ASSERT_EQ(cache.prefetch({}, wanted, stream), status::ok);
  ASSERT_EQ(told.size(), 2U) << "told once";
  EXPECT_THAT(told[1], testing::HasSubstr("prefetch queue is full"));
}

TEST(slot_cache_config, refuses_invalid_configurations) {
  slot_cache_config setup;
  EXPECT_FALSE(setup.validate());
  setup.most_under_way = 0;
  EXPECT_EQ(setup.validate()->message, "most_under_way = 0, accepted: 1 or more");
  setup.queue.most_waiting = 0;
  EXPECT_EQ(setup.validate()->message, "most_waiting = 0, accepted: 1..1048576");
}

/// A scripted backend that reports the layout of its slots.
struct choosy_backend : scripted_backend {
  using scripted_backend::scripted_backend;
  [[nodiscard]] validation check(const pool_layout& layout) const {
    if (layout.slots() == content.size()) return std::nullopt;
    return error{"slots of another cache"};
  }
};

// With a bank of three slots, a cache of six slots would write past its end.
TEST(slot_cache_config, a_bank_of_another_layout_is_refused_when_the_cache_is_built) {
  const auto small = pool_layout::shared(shape, 3).value();
  const auto large = pool_layout::shared(shape, 6).value();
  const support::host_experts experts(small);
  host_backend<memory_expert_source> host(experts.source, experts.bank);
  const auto* const why = "the bank has 3 slots, accepted: 6, as in the cache";
  EXPECT_THAT([&] { slot_cache cache(pager<lru>({.layout = large}), host); },
              testing::ThrowsMessage<invalid_config>(testing::HasSubstr(why)));
  using host_cache = slot_cache<pager<lru>, host_backend<memory_expert_source>>;
  EXPECT_EQ(host_cache::create(pager<lru>({.layout = large}), host).error().message, why);
  EXPECT_TRUE(host_cache::create(pager<lru>({.layout = small}), host));

  choosy_backend choosy(6);
  EXPECT_THROW(slot_cache cache(pager<lru>({.layout = small}), choosy), invalid_config);
  slot_cache cache(pager<lru>({.layout = large}), choosy);
  scripted_backend unknown(6);  // reports no layout
  using scripted_cache = slot_cache<pager<lru>, scripted_backend>;
  EXPECT_TRUE(scripted_cache::create(pager<lru>({.layout = small}), unknown));
}
TEST(slot_cache_config, is_checked_when_the_cache_is_built) {
  scripted_backend backend(3);
  const auto layout = pool_layout::shared(shape, 3).value();
  using cache_type = slot_cache<pager<lru>, scripted_backend>;
  const auto made =
      cache_type::create(pager<lru>({.layout = layout}), backend, {.most_under_way = 0});
  EXPECT_EQ(made.error().message, "most_under_way = 0, accepted: 1 or more");
  EXPECT_THROW(slot_cache cache(pager<lru>({.layout = layout}), backend, {.most_under_way = 0}),
               invalid_config);
}

// Hazard 20: host bytes change while copies read them.
TEST_F(slot_cache_wide, invalidate_waits_for_the_copies_that_read_the_host_bytes) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  const auto speculative = backend.last();
  ASSERT_EQ(resolve(0, 1, {0, 1}), status::ok);
  EXPECT_EQ(cache.invalidate(expert_key{1_layer, 0_expert}), status::busy)
      << "an open visit reads it";
  cache.release(visit, stream);
  EXPECT_EQ(cache.invalidate(0_layer), status::ok);
  EXPECT_EQ(backend.poll(speculative), transfer_state::arrived);
  EXPECT_EQ(locate(0, 6), no_slot);
  EXPECT_EQ(cache.invalidate(expert_key{1_layer, 0_expert}), status::ok);
  EXPECT_EQ(cache.invalidate(expert_key{9_layer, 0_expert}), status::invalid_argument);
}

TEST_F(slot_cache_steps, invalidate_waits_for_abandoned_copies) {
  backend.accept = 1;
  EXPECT_EQ(resolve(0, 0, {0, 1}), status::fill_failed);
  const auto given_up = backend.last();
  ASSERT_EQ(backend.poll(given_up), transfer_state::pending);
  EXPECT_EQ(cache.invalidate(expert_key{0_layer, 0_expert}), status::ok);
  EXPECT_NE(backend.poll(given_up), transfer_state::pending) << "it still reads the host bytes";
  backend.accept = scripted_backend::all;
  EXPECT_EQ(resolve(1, 0, {0, 1}), status::ok);
}

TEST_F(slot_cache_steps, failures_of_abandoned_copies_are_not_reported_twice) {
  backend.accept = 1;
  backend.failing = {1};
  EXPECT_EQ(resolve(0, 0, {0, 1}), status::fill_failed);
  backend.accept = scripted_backend::all;
  whole(1, 0, {0, 1});
  backend.run(stream);
  whole(2, 0, {0, 1});
  backend.run(stream);
}

TEST_F(slot_cache_wide, warm_fills_and_waits) {
  const std::vector<expert_key> keys{{0_layer, 1_expert}, {0_layer, 2_expert}, {1_layer, 3_expert},
                                     {1_layer, 4_expert}, {1_layer, 5_expert}, {1_layer, 6_expert}};
  EXPECT_EQ(cache.warm(keys, stream), status::ok);
  EXPECT_EQ(cache.pager().residents(), (std::vector<expert_key>{{0_layer, 1_expert},
                                                                {0_layer, 2_expert},
                                                                {1_layer, 3_expert},
                                                                {1_layer, 4_expert},
                                                                {1_layer, 5_expert}}));
  EXPECT_EQ(backend.content[static_cast<std::size_t>(locate(1, 5))],
            (expert_key{1_layer, 5_expert}));
}

// Pending copies are bounded by their reserved slots.
TEST(slot_cache_warm, makes_room_for_its_copies_beside_those_of_visits) {
  const geometry narrow{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 2};
  scripted_backend backend(4);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(narrow, 4).value()}), backend);
  auto visit = cache.make_visit();
  for (step_id step = 0; step < 3; ++step) {
    const std::int32_t first = step % 2 == 0 ? 0 : 4;
    const std::vector<std::int32_t> ids{first, first + 1, first + 2, first + 3};
    ASSERT_EQ(cache.resolve({.step = step, .experts = ids}, stream, visit), status::ok);
    cache.release(visit, stream);
  }
  ASSERT_EQ(cache.pager().trim({}, 0, {}), 4U);
  const std::vector<expert_key> keys{
      {1_layer, 0_expert}, {1_layer, 1_expert}, {1_layer, 2_expert}, {1_layer, 3_expert}};
  EXPECT_EQ(cache.warm(keys, stream), status::ok);
  EXPECT_EQ(cache.pager().residents(), keys);
  backend.run(stream);
}

// Hazard 22: a resize loses experts.
TEST_F(slot_cache_wide, a_quota_changes_at_a_drained_point) {
  ASSERT_EQ(prefetch({{{0_layer, 6_expert}, 0}}), status::ok);
  whole(0, 1, {0, 1});
  EXPECT_EQ(cache.set_quota(0_layer, 2), status::ok) << "the copy was waited for";
  EXPECT_EQ(cache.pager().quota(0_layer), 2);
  support::expect_consistent(cache.pager());
  ASSERT_EQ(resolve(1, 0, {4, 5}), status::ok);
  EXPECT_EQ(cache.set_quota(0_layer, 5), status::ok);
  EXPECT_EQ(cache.set_quota(0_layer, 2), status::ok);
  finish();
}

TEST_F(slot_cache_wide, the_end_of_a_cache_waits_for_its_copies) {
  scripted_backend other(5);
  {
    cache_type brief(pager<lru>({.layout = pool_layout::shared(shape, 5).value()}), other);
    ASSERT_EQ(brief.prefetch({}, std::vector<prefetch_request>{{{0_layer, 6_expert}, 0}}, stream),
              status::ok);
    EXPECT_EQ(other.poll(other.last()), transfer_state::pending);
  }
  EXPECT_EQ(other.poll(other.last()), transfer_state::arrived);
}

// Hazard 21: two instances share state.
TEST_F(slot_cache_steps, two_caches_side_by_side_do_not_influence_each_other) {
  scripted_backend alone_backend(3);
  scripted_backend other_backend(3);
  scripted_backend::stream_type alone_stream;
  scripted_backend::stream_type other_stream;
  cache_type alone(pager<lru>({.layout = pool_layout::shared(shape, 3).value()}), alone_backend);
  cache_type other(pager<lru>({.layout = pool_layout::shared(shape, 3).value()}), other_backend);
  auto alone_visit = alone.make_visit();
  auto other_visit = other.make_visit();
  for (std::int32_t e = 0; e < 30; ++e) {
    const std::vector<std::int32_t> ids{e % 5, (e * 3 + 1) % 8};
    const std::vector<std::int32_t> others{e % 7, (e + 4) % 8};
    routing_view view{.step = static_cast<step_id>(e), .experts = ids};
    ASSERT_EQ(alone.resolve(view, alone_stream, alone_visit), status::ok);
    alone.release(alone_visit, alone_stream);
    whole(view.step, 0, ids);
    view.layer = 1_layer;
    view.experts = others;
    ASSERT_EQ(other.resolve(view, other_stream, other_visit), status::ok);
    other.release(other_visit, other_stream);
  }
  EXPECT_EQ(cache.pager().decision_hash(), alone.pager().decision_hash());
  EXPECT_EQ(cache.stats(), alone.stats());
  backend.run(stream);
}

}  // namespace
}  // namespace hotset::slot_cache_test
