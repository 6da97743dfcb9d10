// SPDX-License-Identifier: Apache-2.0
// Visits that cannot be misused: an engine's omissions are made up for, or reported.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_steps.hpp"

namespace hotset::visit_serving_test {
namespace {

using support::pager_walk;
using support::scripted_backend;
using support::slot_cache_steps;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

const std::vector<std::int32_t> four_tokens{0, 1, 2, 3, 0, 4, 5, 6};  ///< too many for three slots

/// Three slots, tokens with two experts.
struct visit_serving : slot_cache_steps {
  static routing_view view_of(const std::vector<std::int32_t>& ids, layer_id layer = 0_layer) {
    const routing_view view{.layer = layer, .step = 7, .experts = ids};
    return view;
  }
  /// Enqueues a kernel for every token of the group; it looks up its experts in the group's row.
  void enqueue(const visit_group& group) {
    for (const auto token : group.tokens()) {
      served.push_back(token);
      for (std::size_t k = 0; k < 2; ++k) {
        const auto e = group.routed()[token * 2 + k];
        const auto slot = group.row()[index_of(e)];
        ASSERT_NE(slot, no_slot);
        backend.launch(stream, [this, key = expert_key{group.layer(), e}, slot] {
          ++kernels;
          EXPECT_EQ(backend.content[index_of(slot)], key);
        });
      }
    }
  }
  status serve(const std::vector<std::int32_t>& ids, layer_id layer = 0_layer) {
    return cache.serve(view_of(ids, layer), stream, visit,
                       [this](const visit_group& group) { enqueue(group); });
  }
  /// Expects that all slots are available.
  void expect_nothing_is_kept() {
    EXPECT_FALSE(visit.is_open());
    EXPECT_EQ(resolve(8, 1, {4, 5}), status::ok);
    cache.release(visit, stream);
    EXPECT_EQ(resolve(8, 1, {6, 7}), status::ok);
    cache.release(visit, stream);
    backend.run(stream);
    EXPECT_EQ(cache.drain(), status::ok);
    for (std::size_t s = 0; s < cache.pager().layout().slots(); ++s)
      EXPECT_EQ(cache.pager().slot(static_cast<slot_id>(s)).pins, 0U);
    support::expect_consistent(cache.pager());
  }
  std::vector<std::uint32_t> served;
};

// --- serve ---

TEST_F(visit_serving, every_token_is_served_once_with_its_experts) {
  ASSERT_EQ(serve(four_tokens), status::ok);
  std::ranges::sort(served);
  EXPECT_THAT(served, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(serve({4, 5}, 1_layer), status::ok);
  backend.run(stream);
  EXPECT_EQ(kernels, 10);
  expect_nothing_is_kept();
}

TEST_F(visit_serving, groups_come_in_order_and_the_last_one_is_marked) {
  std::vector<std::pair<std::size_t, bool>> groups;
  ASSERT_EQ(cache.serve(view_of(four_tokens), stream, visit,
                        [&](const visit_group& group) {
                          groups.emplace_back(group.number(), group.is_last());
                          EXPECT_EQ(group.plan().group(), group.number());
                          EXPECT_EQ(group.experts().size(), group.slots().size());
                        }),
            status::ok);
  ASSERT_GT(groups.size(), 1U);
  for (std::size_t g = 0; g < groups.size(); ++g)
    EXPECT_EQ(groups[g], (std::pair{g, g + 1 == groups.size()}));
}

TEST_F(visit_serving, it_may_prefetch_beside_the_last_groups_kernels) {
  status prefetched = status::busy;
  ASSERT_EQ(cache.serve(view_of({0, 1}), stream, visit,
                        [&](const visit_group& group) {
                          const std::vector<prefetch_request> wanted{{{1_layer, 2_expert}, 7}};
                          prefetched = cache.prefetch(group.context(), wanted, stream);
                        }),
            status::ok);
  EXPECT_EQ(prefetched, status::ok);
  EXPECT_EQ(cache.stats().speculative_fills, 1U);
}

TEST_F(visit_serving, an_engines_error_status_ends_it) {
  int groups = 0;
  EXPECT_EQ(cache.serve(view_of(four_tokens), stream, visit,
                        [&](const visit_group&) {
                          ++groups;
                          return status::invalid_argument;
                        }),
            status::invalid_argument);
  EXPECT_EQ(groups, 1);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan) << "the rest was abandoned";
  expect_nothing_is_kept();
}

TEST_F(visit_serving, an_engines_exception_ends_it) {
  EXPECT_THROW((void)cache.serve(view_of(four_tokens), stream, visit,
                                 [](const visit_group&) { throw std::runtime_error("a kernel"); }),
               std::runtime_error);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
  expect_nothing_is_kept();
}

TEST_F(visit_serving, a_group_whose_copies_fail_ends_it) {
  const auto served_then_full = [this](const visit_group& group) {
    enqueue(group);
    backend.accept = 0;
  };
  EXPECT_EQ(cache.serve(view_of(four_tokens), stream, visit, served_then_full),
            status::fill_failed);
  EXPECT_LT(served.size(), 4U);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
  backend.accept = scripted_backend::all;
  expect_nothing_is_kept();
}

TEST(visit_serving_again, a_group_is_retried_the_requested_number_of_times) {
  for (const std::int32_t attempts : {1, 2, 3}) {
    scripted_backend backend(3);
    scripted_backend::stream_type stream;
    slot_cache cache(pager<lru>({.layout = pool_layout::shared(support::cache_shape, 3).value()}),
                     backend, {.attempts = attempts});
    auto visit = cache.make_visit();
    backend.refuse_fences = 2;
    const std::vector<std::int32_t> ids{0, 1};
    EXPECT_EQ(cache.serve({.experts = ids}, stream, visit, [](const visit_group&) {}),
              attempts == 3 ? status::ok : status::fill_failed);
  }
  EXPECT_EQ(slot_cache_config{.attempts = 0}.validate()->message,
            "attempts = 0, accepted: 1 or more");
}

TEST_F(visit_serving, an_open_or_unfinished_visit_is_not_changed) {
  ASSERT_EQ(resolve(0, 0, four_tokens), status::ok);
  EXPECT_EQ(serve({4, 5}, 1_layer), status::busy);
  EXPECT_TRUE(visit.is_open());
  cache.release(visit, stream);
  EXPECT_EQ(serve({4, 5}, 1_layer), status::visit_unfinished);
  EXPECT_THAT(served, IsEmpty());
  EXPECT_EQ(cache.resolve_next(stream, visit), status::ok);
}

TEST(visit_serving_again, an_earlier_loss_is_reported_and_not_retried) {
  scripted_backend backend(3);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(support::cache_shape, 3).value()}),
                   backend, {.attempts = 3});
  auto visit = cache.make_visit();
  backend.failing = {1};
  const std::vector<std::int32_t> ids{0, 1};
  const auto nothing = [](const visit_group&) {};
  ticket first = no_ticket;
  ASSERT_EQ(cache.serve({.experts = ids}, stream, visit,
                        [&](const visit_group&) { first = backend.last(); }),
            status::ok);
  backend.finish(first);
  EXPECT_EQ(cache.serve({.experts = ids}, stream, visit, nothing), status::fill_failed);
  EXPECT_EQ(cache.serve({.experts = ids}, stream, visit, nothing), status::ok);
}

// --- forgotten calls ---

TEST_F(visit_serving, a_forgotten_group_is_reported_by_the_next_visit) {
  ASSERT_EQ(resolve(0, 0, four_tokens), status::ok);
  cache.release(visit, stream);
  const auto before = cache.pager().decision_hash();
  EXPECT_EQ(resolve(0, 1, {4, 5}), status::visit_unfinished);
  auto other = cache.make_visit();
  EXPECT_EQ(resolve(other, 0, 1, {4, 5}), status::visit_unfinished) << "for any visit";
  EXPECT_EQ(cache.pager().decision_hash(), before) << "nothing has changed";
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok) << "and the groups go on";
  cache.release(visit, stream);
}

TEST_F(visit_serving, an_abandoned_visit_is_out_of_the_way) {
  ASSERT_EQ(resolve(0, 0, four_tokens), status::ok);
  cache.abandon(visit, stream);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
  cache.abandon(visit, stream);  // has no effect
  expect_nothing_is_kept();
}

TEST_F(visit_serving, abandoning_an_ended_visit_does_not_affect_another) {
  auto other = cache.make_visit();
  ASSERT_EQ(resolve(other, 0, 0, {0, 1}), status::ok);
  cache.release(other, stream);
  ASSERT_EQ(resolve(0, 0, four_tokens), status::ok);
  cache.release(visit, stream);
  cache.abandon(other, stream);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::ok);
}

TEST_F(visit_serving, a_destroyed_visit_is_released) {
  {
    auto dropped = cache.make_visit();
    ASSERT_EQ(resolve(dropped, 0, 0, {0, 1}), status::ok);
    backend.launch(stream, [this] {
      EXPECT_EQ(backend.content[static_cast<std::size_t>(0)], (expert_key{0_layer, 0_expert}));
      ++kernels;
    });
  }
  expect_nothing_is_kept();
  EXPECT_EQ(kernels, 1) << "what came into its slots waited for its kernel";
}

TEST_F(visit_serving, a_destroyed_visit_abandons_its_groups) {
  std::optional<cache_visit> dropped(cache.make_visit());
  ASSERT_EQ(resolve(*dropped, 0, 0, four_tokens), status::ok);
  cache.release(*dropped, stream);
  EXPECT_EQ(resolve(0, 1, {4, 5}), status::visit_unfinished);
  dropped.reset();
  expect_nothing_is_kept();
}

TEST_F(visit_serving, a_failed_group_ends_with_the_visit) {
  std::optional<cache_visit> dropped(cache.make_visit());
  ASSERT_EQ(resolve(*dropped, 0, 0, four_tokens), status::ok);
  cache.release(*dropped, stream);
  backend.accept = 0;
  while (dropped->more())
    if (cache.resolve_next(stream, *dropped) != status::ok) break;
  backend.accept = scripted_backend::all;
  dropped.reset();
  expect_nothing_is_kept();
}

TEST_F(visit_serving, a_moved_visit_is_ended_by_its_new_owner) {
  std::optional<cache_visit> first(cache.make_visit());
  ASSERT_EQ(resolve(*first, 0, 0, {0, 1}), status::ok);
  std::optional<cache_visit> second(std::move(*first));
  first.reset();
  EXPECT_EQ(pins_of(0, 0), 1U);
  *second = cache.make_visit();
  EXPECT_EQ(pins_of(0, 0), 0U) << "an assignment ends what was open";
  second.reset();
  expect_nothing_is_kept();
}

TEST_F(visit_serving, a_visit_that_has_ended_may_outlive_its_cache) {
  std::optional<cache_visit> late;
  {
    scripted_backend own(3);
    slot_cache brief(pager<lru>({.layout = pool_layout::shared(support::cache_shape, 3).value()}),
                     own);
    late.emplace(brief.make_visit());
    const std::vector<std::int32_t> ids{0, 1};
    ASSERT_EQ(brief.serve(view_of(ids), stream, *late, [](const visit_group&) {}), status::ok);
  }
  late.reset();
}

// --- an empty span never means "all" ---

TEST_F(visit_serving, a_visit_in_one_group_names_all_of_its_tokens_and_ids) {
  const std::vector<std::int32_t> ids{0, 1, 1, 0, 0, -1};
  ASSERT_EQ(cache.serve(view_of(ids), stream, visit,
                        [&](const visit_group& group) {
                          EXPECT_THAT(group.tokens(), ElementsAre(0, 1, 2));
                          EXPECT_THAT(group.routed(), ElementsAreArray(ids));
                          EXPECT_FALSE(group.edited());
                          EXPECT_THAT(group.experts(), ElementsAre(0, 1));
                        }),
            status::ok);
}

TEST(visit_serving_by_expert, every_group_names_all_tokens) {
  pager_walk w({.layout = pool_layout::shared(support::cache_shape, 3).value(),
                .split = visit_split::by_expert});
  std::size_t groups = 0;
  ASSERT_EQ(w.decisions.serve(w.view(0, 0, four_tokens), w.plan,
                              [&](const visit_group& group) {
                                ++groups;
                                EXPECT_TRUE(group.expert_wise());
                                EXPECT_THAT(group.tokens(), ElementsAre(0, 1, 2, 3));
                                EXPECT_THAT(group.routed(), ElementsAreArray(four_tokens));
                              }),
            status::ok);
  EXPECT_EQ(groups, 3U);
}

// --- without bytes ---

TEST(pager_serve, plans_and_commits_every_group) {
  pager_walk by_hand({.layout = pool_layout::shared(support::cache_shape, 3).value()});
  pager_walk served({.layout = pool_layout::shared(support::cache_shape, 3).value()});
  std::vector<std::vector<expert_id>> groups;
  ASSERT_EQ(by_hand.try_plan(0, 0, four_tokens), status::ok);
  do {
    groups.emplace_back(by_hand.plan.experts().begin(), by_hand.plan.experts().end());
  } while (by_hand.next_group());
  std::size_t n = 0;
  ASSERT_EQ(served.decisions.serve(served.view(0, 0, four_tokens), served.plan,
                                   [&](const visit_group& group) {
                                     ASSERT_LT(n, groups.size());
                                     EXPECT_THAT(group.experts(), ElementsAreArray(groups[n++]));
                                     for (const auto e : group.experts())
                                       EXPECT_NE(group.row()[index_of(e)], no_slot);
                                   }),
            status::ok);
  EXPECT_EQ(n, groups.size());
  EXPECT_EQ(served.decisions.decision_hash(), by_hand.decisions.decision_hash());
}

TEST(pager_serve, leaves_no_group_behind) {
  pager_walk w({.layout = pool_layout::shared(support::cache_shape, 3).value()});
  EXPECT_EQ(w.decisions.serve(w.view(0, 0, four_tokens), w.plan,
                              [](const visit_group&) { return status::busy; }),
            status::busy);
  EXPECT_FALSE(w.decisions.is_unfinished(w.plan));
  EXPECT_THROW((void)w.decisions.serve(w.view(0, 0, four_tokens), w.plan,
                                       [](const visit_group&) { throw std::runtime_error(""); }),
               std::runtime_error);
  EXPECT_EQ(w.try_plan(1, 0, {0, 1}), status::ok);
}

TEST(pager_serve, a_visit_opened_by_hand_is_not_changed) {
  pager_walk w({.layout = pool_layout::shared(support::cache_shape, 3).value()});
  ASSERT_EQ(w.try_plan(0, 0, four_tokens), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  const auto refuse = [](const visit_group&) { ADD_FAILURE() << "nothing is served"; };
  EXPECT_EQ(w.decisions.serve(w.view(1, 1, {}), w.plan, refuse), status::visit_unfinished);
  auto other = w.decisions.make_plan();
  EXPECT_EQ(w.decisions.serve(w.view(1, 1, {}), other, refuse), status::visit_unfinished);
  EXPECT_TRUE(w.decisions.is_unfinished(w.plan));
  w.decisions.abandon();
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
}

}  // namespace
}  // namespace hotset::visit_serving_test
