// SPDX-License-Identifier: Apache-2.0
// The C pager decides like the C++ pager and reports every mistake by a code and a message.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "hotset/core/platform/assert.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "random_source.hpp"

namespace hotset::pager_test {
namespace {

using support::open;
using support::refusal_of;
using support::view_of;
using testing::ElementsAre;
using testing::HasSubstr;

hotset_pager_options options(std::int64_t slots = 6) {
  auto out = support::options_of<hotset_pager_options>(3, 16, 2);
  out.max_tokens = 4;
  out.slots = slots;
  return out;
}
/// Experts of 1000 bytes and of 500, with a shared pool for each size.
hotset_pager_options two_precisions(const char* miss) {
  static const std::uint64_t full = 1000, half = 500;
  static const std::int64_t slots[] = {4, 3};
  auto how = options(0);
  how.scope = HOTSET_SCOPE_SHARED;
  how.expert_bytes = &full;
  how.expert_bytes_count = 1;
  how.lower_bytes = &half;
  how.lower_precisions = 1;
  how.slots_of_precision = slots;
  how.miss = miss;
  return how;
}
hotset_visit empty_visit() { return support::sized<hotset_visit>(); }
hotset_stats stats_of(hotset_pager* pager) {
  auto out = support::sized<hotset_stats>();
  EXPECT_EQ(hotset_get_stats(pager, &out), HOTSET_OK);
  return out;
}
hotset_status plan_layer(hotset_pager* pager, std::int32_t layer, std::uint64_t step,
                         const std::vector<std::int32_t>& ids, hotset_visit& visit) {
  const auto view = view_of(layer, step, ids);
  return hotset_plan(pager, &view, &visit);
}
/// Plans a visit and commits it.
hotset_status visit_layer(hotset_pager* pager, std::int32_t layer, std::uint64_t step,
                          const std::vector<std::int32_t>& ids, hotset_visit& visit) {
  const auto planned = plan_layer(pager, layer, step, ids, visit);
  return planned == HOTSET_OK ? hotset_commit(pager) : planned;
}
std::vector<std::int32_t> experts_of(const hotset_visit& v) {
  return {v.experts, v.experts + v.count};
}

// A hardened build refuses the visit; other builds hide the invalid id from the kernel.
TEST(c_pager, an_id_that_names_no_expert_is_refused_in_words_or_hidden) {
  const auto pager = open(options());
  auto visit = empty_visit();
  const auto code = plan_layer(pager.get(), 0, 1, {1, 16}, visit);
  if (HOTSET_CHECKS) {
    EXPECT_EQ(code, HOTSET_INVALID_VISIT);
    EXPECT_STREQ(hotset_last_error(), "experts[1] = 16, accepted: 0..15, or -1 for none");
  } else {
    EXPECT_EQ(code, HOTSET_OK);
    EXPECT_EQ(visit.routed[1], -1);
  }
}

TEST(c_pager, several_precisions_have_slots_of_their_own) {
  const auto pager = open(two_precisions("fetch_lowest"));
  std::vector<std::int32_t> of;
  for (std::int32_t slot = 0; slot < 7; ++slot) {
    std::int32_t precision = -1;
    ASSERT_EQ(hotset_precision(pager.get(), slot, &precision), HOTSET_OK);
    of.push_back(precision);
  }
  EXPECT_THAT(of, ElementsAre(0, 0, 0, 0, 1, 1, 1));
  std::int32_t none = 0;
  EXPECT_EQ(hotset_precision(pager.get(), 7, &none), HOTSET_INVALID_ARGUMENT);
  std::uint64_t filled = 0;
  for (std::uint64_t step = 0; step < 40; ++step) {
    const std::vector<std::int32_t> ids{static_cast<std::int32_t>(step * 5 % 16),
                                        static_cast<std::int32_t>((step * 3 + 1) % 16)};
    auto visit = empty_visit();
    ASSERT_EQ(visit_layer(pager.get(), static_cast<std::int32_t>(step % 3), step, ids, visit),
              HOTSET_OK);
    for (std::size_t f = 0; f < visit.fill_count; ++f) {
      EXPECT_EQ(visit.fills[f].precision, visit.fills[f].slot < 4 ? 0 : 1);
      filled += visit.fills[f].precision == 0 ? 1000 : 500;
    }
  }
  EXPECT_EQ(stats_of(pager.get()).bytes_filled, filled);
}

struct bad_options {
  hotset_pager_options how;
  std::function<void(hotset_pager_options&)> spoil;
  const char* words;
};
class c_pager_bad_options : public testing::TestWithParam<bad_options> {};

TEST_P(c_pager_bad_options, are_refused_in_words) {
  auto bad = GetParam().how;
  GetParam().spoil(bad);
  EXPECT_THAT(refusal_of(bad), HasSubstr(GetParam().words));
}
INSTANTIATE_TEST_SUITE_P(
    each, c_pager_bad_options,
    testing::ValuesIn(std::vector<bad_options>{
        {options(), [](auto& o) { o.layers = 0; }, "layers = 0, accepted: 1 or more"},
        {options(), [](auto& o) { o.slots = 0; },
         "slots = 0 and budget_bytes = 0, accepted: one of them"},
        {options(), [](auto& o) { o.budget_bytes = 1; }, "accepted: one of them"},
        {options(), [](auto& o) { o.slots = 1; }, "fewer than top_k"},
        {options(), [](auto& o) { o.eviction = "nope"; }, "'nope'"},
        {options(), [](auto& o) { o.eviction = "belady"; }, "belady future = none"},
        {options(), [](auto& o) { o.admission = "always:nope=1"; }, "nope"},
        {options(), [](auto& o) { o.miss = "teleport"; }, "'teleport'"},
        {options(), [](auto& o) { o.routing = "teleport"; }, "unknown routing policy 'teleport'"},
        {options(), [](auto& o) { o.routing = "cache_aware:lambda=-1"; },
         "cache_aware lambda = -1.000000, accepted: 0 or more"},
        {options(), [](auto& o) { o.routing = "budget_top_k"; },
         "budget_top_k does nothing without slots that were freed ahead, accepted: with "
         "pre_eviction active_evict, or another"},
        {options(), [](auto& o) { o.pre_eviction = "passive"; },
         "pre-eviction 'passive'; accepted: none, active_evict"},
        {options(), [](auto& o) { o.pre_eviction = "active_evict:tau=2"; },
         "active_evict tau = 2.000000, accepted: 0..1"},
        {options(), [](auto& o) { o.pre_eviction = "active_evict:release=end"; },
         "release=end, accepted: release=gate; hotset_expect frees slots when it is called"},
        {options(), [](auto& o) { o.scope = 2; }, "scope = 2, accepted: 0, 1"},
        {options(), [](auto& o) { o.split = 4; }, "split = 4, accepted: 0..3"},
        {options(), [](auto& o) { o.guard = -1; }, "guard = -1, accepted: 0..2"},
        {options(), [](auto& o) { o.guard = 3; }, "guard = 3, accepted: 0..2"},
        {options(), [](auto& o) { o.struct_size = 8; }, "options.struct_size = 8, accepted: "},
        // The C interface reads no traces.
        {options(), [](auto& o) { o.eviction = "popularity"; }, "popularity needs the profile '"},
        {options(), [](auto& o) { o.eviction = "popularity:profile=/nonexistent"; },
         "popularity needs the profile '"},
        {options(), [](auto& o) { o.eviction = "protect_hot+popularity:first=3"; },
         "popularity needs the profile '"},
        {two_precisions("fetch"), [](auto& o) { o.slots = 4; },
         "accepted: slots_of_precision, and neither"},
        {two_precisions("fetch"), [](auto& o) { o.lower_bytes = nullptr; },
         "1 lower precisions without lower_bytes, accepted: both or neither"},
        {two_precisions("fetch"), [](auto& o) { o.lower_bytes = o.expert_bytes; },
         "accepted: falling bytes"},
        {two_precisions("fetch"),
         [](auto& o) {
           o.lower_bytes = nullptr;
           o.lower_precisions = 0;
         },
         "slots_of_precision of one precision"},
    }));

// Array lengths are compared with the model before the arrays are read.
TEST(c_pager, counts_are_checked_before_their_arrays_are_read) {
  auto bad = two_precisions("fetch");
  bad.expert_bytes_count = std::size_t{1} << 30U;
  EXPECT_EQ(refusal_of(bad),
            "expert_bytes has 1073741824 entries, accepted: 1 or one per layer (3)");
  bad.layers = 1 << 30;
  EXPECT_THAT(refusal_of(bad), HasSubstr("layers x experts = 17179869184"));
  bad.layers = 3;
  bad.expert_bytes_count = 0;
  EXPECT_EQ(refusal_of(bad), "expert_bytes has 0 entries, accepted: 1 or one per layer (3)");
  const auto* const bytes = std::exchange(bad.expert_bytes, nullptr);
  bad.expert_bytes_count = 3;
  EXPECT_EQ(refusal_of(bad),
            "expert_bytes_count = 3 without expert_bytes, accepted: both or neither");
  bad.expert_bytes = bytes;
  bad.expert_bytes_count = 1;
  for (const auto count : {std::size_t{8}, std::size_t{1} << 26U, ~std::size_t{0}}) {
    bad.lower_precisions = count;
    EXPECT_EQ(refusal_of(bad), std::to_string(count) + " lower precisions, accepted: at most 7");
  }
  const auto pager = open(options());
  auto visit = empty_visit();
  const hotset_request request{{0, 1}, 0, 1.0F};
  std::size_t consumed = 0;
  EXPECT_EQ(
      hotset_prefetch(pager.get(), 0, 0, &request, std::size_t{1} << 30U, 1, &visit, &consumed),
      HOTSET_INVALID_ARGUMENT);
  const std::vector<std::int32_t> ids{1, 2};
  auto view = view_of(0, 0, ids);
  view.tokens = std::size_t{1} << 30U;
  EXPECT_EQ(hotset_plan(pager.get(), &view, &visit), HOTSET_VISIT_TOO_LARGE);
}

// A warm start with more keys than one plan holds needs several calls.
TEST(c_pager, a_warm_start_reads_as_many_keys_as_one_plan_takes) {
  auto how = options(6);
  how.max_tokens = 1;  // one plan holds top_k = 2 copies
  const auto pager = open(how);
  const std::vector<hotset_key> keys{{0, 1}, {0, 2}, {0, 99}};
  auto visit = empty_visit();
  std::size_t consumed = 0;
  ASSERT_EQ(hotset_plan_warm(pager.get(), keys.data(), keys.size(), &visit, &consumed), HOTSET_OK)
      << hotset_last_error();
  EXPECT_EQ(consumed, 2U);
  ASSERT_EQ(visit.fill_count, 2U);
  EXPECT_EQ(visit.fills[1].key.expert, 2);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  EXPECT_EQ(hotset_plan_warm(pager.get(), keys.data() + 2, 1, &visit, &consumed),
            HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "layer 0, expert 99, accepted: layers 0..2, experts 0..15");
}

TEST(c_pager, a_visit_without_its_policies_inputs_is_refused) {
  const std::vector<std::int32_t> ids{1, 2};
  const std::vector<float> weights{0.5F, 0.5F};
  const std::vector<float> logits(16, 1.0F);
  const auto told = [&](hotset_pager_options how, bool weighed, bool scored) {
    const auto pager = open(how);
    auto view = view_of(0, 0, ids);
    if (weighed) view.weights = weights.data();
    if (scored) view.logits = logits.data();
    auto visit = empty_visit();
    return hotset_plan(pager.get(), &view, &visit) == HOTSET_OK ? std::string()
                                                                : hotset_last_error();
  };
  const std::string no_weights =
      "a visit without weights, accepted: with the gate weights, which the policies need";
  auto how = options();
  EXPECT_EQ(told(how, false, false), "");
  for (const auto* eviction : {"gate_score", "protect_hot+gate_score"}) {
    how.eviction = eviction;
    EXPECT_EQ(told(how, false, true), no_weights) << eviction;
    EXPECT_EQ(told(how, true, false), "") << eviction;
  }
  how = options();
  how.miss = "substitute";
  EXPECT_EQ(told(how, true, false),
            "a visit without logits, accepted: with the router's logits, which the policies need");
  EXPECT_EQ(told(how, false, true), "");
  how = two_precisions("drop_cascade");
  EXPECT_EQ(told(how, false, true), no_weights);
  EXPECT_EQ(told(how, true, false), "");
}

TEST(c_pager, a_struct_of_a_later_version_is_accepted_if_new_fields_are_zero) {
  struct later {
    hotset_pager_options known;
    std::uint64_t more;
  } of{options(), 0};
  of.known.struct_size = sizeof of;
  hotset_pager* out = nullptr;
  ASSERT_EQ(hotset_pager_create(&of.known, &out), HOTSET_OK);
  hotset_pager_destroy(out);
  of.more = 1;
  EXPECT_EQ(hotset_pager_create(&of.known, &out), HOTSET_INVALID_ARGUMENT);
  EXPECT_THAT(hotset_last_error(), HasSubstr("a member that hotset"));
}

TEST(c_pager, a_budget_of_bytes_is_divided_into_slots) {
  auto how = options(0);
  const std::uint64_t each = 100;
  how.expert_bytes = &each;
  how.expert_bytes_count = 1;
  how.budget_bytes = 3 * 5 * 100 + 99;
  const auto pager = open(how);
  std::int32_t quota = 0;
  ASSERT_EQ(hotset_quota(pager.get(), 2, &quota), HOTSET_OK);
  EXPECT_EQ(quota, 5);
}

/// Random visits on both; equal hashes of all fills and evictions prove equal decisions.
void compare(const std::string& eviction, const std::string& admission, const std::string& miss,
             visit_split split) {
  auto how = options(5);
  how.eviction = eviction.c_str();
  how.admission = admission.c_str();
  how.miss = miss.c_str();
  how.split = static_cast<std::int32_t>(split);
  const auto pager = open(how);
  pager_request wanted{
      .eviction = eviction,
      .admission = admission,
      .layout = pool_layout::per_layer(
                    {.layers = 3, .experts = 16, .top_k = 2, .max_tokens_per_visit = 4}, 5)
                    .value(),
      .split = split};
  if (miss != "fetch") wanted.miss = policies().miss.make(miss).value();
  auto same = policies().make_erased_pager(wanted).value();
  auto plan = same.make_plan();
  support::random_source random(11);
  auto visit = empty_visit();
  for (std::uint64_t step = 0; step < 400; ++step)
    for (std::int32_t layer = 0; layer < 3; ++layer) {
      std::vector<std::int32_t> ids(2 * (1 + random.below(4)));
      std::vector<float> weights(ids.size());
      for (auto& id : ids) id = static_cast<std::int32_t>(random.below(16));
      for (auto& w : weights) w = static_cast<float>(random.below(100)) / 100;
      auto view = view_of(layer, step, ids);
      view.weights = weights.data();
      auto now = hotset_plan(pager.get(), &view, &visit);
      while (now == HOTSET_OK) {
        ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
        if (visit.more == 0) break;
        now = hotset_plan_next(pager.get(), &visit);
      }
      const auto theirs = same.serve(
          {.layer = static_cast<layer_id>(layer), .step = step, .experts = ids, .weights = weights},
          plan, [](const visit_group&) {});
      ASSERT_EQ(now, static_cast<hotset_status>(theirs));
    }
  std::uint64_t hash = 0;
  ASSERT_EQ(hotset_decision_hash(pager.get(), &hash), HOTSET_OK);
  EXPECT_EQ(hash, same.decision_hash()) << eviction;
  const auto stats = stats_of(pager.get());
  EXPECT_EQ(stats.misses, same.stats().misses);
  EXPECT_EQ(stats.fills, same.stats().fills);
  EXPECT_EQ(stats.bypasses, same.stats().bypasses);
  EXPECT_EQ(stats.split_visits, same.stats().split_visits);
}
TEST(c_pager, decides_as_the_pager_of_the_library) {
  for (const auto* eviction : {"lru", "lfu", "lfru", "least_stale", "gate_score", "similar_steps",
                               "two_rate", "protect_decode+lru"})
    compare(eviction, "always", "fetch", visit_split::by_token);
  compare("lru", "after_n_uses", "fetch", visit_split::by_token);
  compare("lru", "always", "compute_on_host", visit_split::by_token);
  compare("lfu", "after_n_uses", "compute_on_host:split=bandwidth_matched", visit_split::by_token);
  for (const auto split : {visit_split::by_expert, visit_split::refuse, visit_split::leave_rest})
    compare("lru", "always", "fetch", split);
}

TEST(c_pager, rows_that_lie_apart_are_the_same_visit) {
  const auto pager = open(options());
  const std::vector<std::int32_t> wide{1, 2, -7, -7, 3, 4, -7, -7};
  auto view = view_of(0, 0, wide);
  view.tokens = 2;
  view.experts_stride = 4;
  auto visit = empty_visit();
  ASSERT_EQ(hotset_plan(pager.get(), &view, &visit), HOTSET_OK);
  EXPECT_THAT(experts_of(visit), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  view.experts_stride = 1;
  EXPECT_EQ(hotset_plan(pager.get(), &view, &visit), HOTSET_INVALID_VISIT);
  EXPECT_STREQ(hotset_last_error(), "a stride of 1, accepted: 0 or top_k = 2 and more");
}

TEST(c_pager, a_visit_keeps_its_rows_until_the_next_plan) {
  const auto pager = open(options());
  const std::vector<std::int32_t> wide{1, 2, -7, -7, 3, 4, -7, -7};
  const std::vector<std::int32_t> other{5, 6, -7, -7, 7, 8, -7, -7};
  const auto apart = [](const std::vector<std::int32_t>& rows) {
    auto view = view_of(0, 0, rows);
    view.tokens = 2;
    view.experts_stride = 4;
    return view;
  };
  auto visit = empty_visit();
  const auto first = apart(wide);
  ASSERT_EQ(hotset_plan(pager.get(), &first, &visit), HOTSET_OK);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  const auto next = apart(other);
  std::vector<std::int32_t> routed(4);
  ASSERT_EQ(hotset_route(pager.get(), &next, routed.data()), HOTSET_OK);
  EXPECT_THAT(routed, ElementsAre(5, 6, 7, 8));
  const std::vector<std::int32_t> kept(visit.routed, visit.routed + visit.routed_count);
  EXPECT_THAT(kept, ElementsAre(1, 2, 3, 4));
}

TEST(c_pager, visits_that_cannot_be_are_refused_in_words) {
  const auto pager = open(options());
  const std::vector<std::int32_t> ids{1, 2};
  auto visit = empty_visit();
  const auto refused = [&](auto spoil) {
    auto view = view_of(0, 0, ids);
    spoil(view);
    EXPECT_NE(hotset_plan(pager.get(), &view, &visit), HOTSET_OK);
    return std::string(hotset_last_error());
  };
  EXPECT_EQ(refused([](auto& v) { v.layer = 3; }), "a visit of layer 3, accepted: 0..2");
  EXPECT_EQ(refused([](auto& v) { v.kind = 9; }), "a visit of kind 9, accepted: 0..2");
  EXPECT_EQ(refused([](auto& v) { v.tokens = 5; }),
            "a visit of 5 tokens, accepted: at most 4, max_tokens");
  EXPECT_EQ(refused([](auto& v) { v.experts = nullptr; }), "a visit of 1 tokens without experts");
  EXPECT_THAT(refused([](auto& v) { v.struct_size = 3; }), HasSubstr("view.struct_size = 3"));
  const auto view = view_of(0, 0, ids);
  EXPECT_EQ(hotset_plan(nullptr, &view, &visit), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "the handle is null");
}

TEST(c_pager, a_dropped_visit_is_reported_by_the_next) {
  const auto pager = open(options());
  auto visit = empty_visit();
  ASSERT_EQ(plan_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  EXPECT_EQ(plan_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_PLAN_OPEN);
  EXPECT_STREQ(hotset_last_error(), "a plan is open: commit or abort it first");
  const std::uint8_t begun[1] = {1};
  EXPECT_EQ(hotset_abort(pager.get(), begun, 1), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "begun has 1 entries, accepted: 2, the plan's fills");
  EXPECT_EQ(hotset_abort(pager.get(), nullptr, 0), HOTSET_OK);
}

TEST(c_pager, a_row_names_committed_experts) {
  const auto pager = open(options());
  auto visit = empty_visit();
  const std::int32_t* row = nullptr;
  std::size_t experts = 0;
  ASSERT_EQ(hotset_row(pager.get(), 1, &row, &experts), HOTSET_OK);
  ASSERT_EQ(experts, 16U);
  EXPECT_EQ(row[5], -1);
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  ASSERT_EQ(hotset_row_version(pager.get(), 1, &before), HOTSET_OK);
  ASSERT_EQ(plan_layer(pager.get(), 1, 0, {5, 9}, visit), HOTSET_OK);
  ASSERT_EQ(visit.fill_count, 2U);
  EXPECT_EQ(visit.fills[0].key.expert, 5);
  EXPECT_EQ(visit.fills[0].victim.expert, -1);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  EXPECT_EQ(row[5], visit.slots[0]);
  EXPECT_EQ(row[9], visit.slots[1]);
  ASSERT_EQ(hotset_row_version(pager.get(), 1, &after), HOTSET_OK);
  EXPECT_NE(before, after);
  std::int32_t slot = 0;
  ASSERT_EQ(hotset_locate(pager.get(), {1, 9}, &slot), HOTSET_OK);
  EXPECT_EQ(slot, row[9]);
  EXPECT_EQ(hotset_locate(pager.get(), {1, 16}, &slot), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "layer 1, expert 16, accepted: layers 0..2, experts 0..15");
  EXPECT_EQ(hotset_row(pager.get(), -1, &row, &experts), HOTSET_INVALID_ARGUMENT);
}

/// An engine that copies and computes; `fail_at` names the failing call.
struct engine {
  std::map<std::int32_t, hotset_key> in_slot;
  std::size_t copies = 0;
  std::size_t fail_at = ~std::size_t{0};
  std::size_t uses = 0;
  std::size_t stop_at = ~std::size_t{0};
  std::size_t tokens = 0;

  hotset_callbacks calls() {
    auto out = support::sized<hotset_callbacks>();
    out.user = this;
    out.copy = [](void* user, const hotset_fill* fills, std::size_t count) -> std::int32_t {
      auto& self = *static_cast<engine*>(user);
      if (self.copies++ == self.fail_at) return -1;
      for (std::size_t i = 0; i < count; ++i) self.in_slot[fills[i].slot] = fills[i].key;
      return 0;
    };
    out.use = [](void* user, const hotset_visit* visit) -> std::int32_t {
      auto& self = *static_cast<engine*>(user);
      if (self.uses++ == self.stop_at) return 1;
      for (std::size_t i = 0; i < visit->count; ++i)
        EXPECT_EQ(self.in_slot[visit->slots[i]].expert, visit->experts[i]);
      self.tokens += visit->token_count;
      return 0;
    };
    return out;
  }
};

TEST(c_pager, a_visit_is_served_through_callbacks_group_by_group) {
  const auto pager = open(options(3));
  engine e;
  const auto calls = e.calls();
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5, 1, 2};
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto view = view_of(static_cast<std::int32_t>(step % 3), step, ids);
    ASSERT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_OK);
  }
  EXPECT_EQ(e.tokens, 20U * 4);
  EXPECT_GT(e.uses, 20U) << "in groups";
}

TEST(c_pager, a_copy_that_fails_and_a_use_that_stops_end_the_visit_cleanly) {
  const auto pager = open(options(3));
  engine e;
  e.fail_at = 1;
  const std::vector<std::int32_t> ids{0, 1, 2, 3};
  const auto view = view_of(0, 0, ids);
  auto calls = e.calls();
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_FILL_FAILED);
  EXPECT_STREQ(hotset_last_error(), "a copy of layer 0 failed");
  EXPECT_EQ(e.tokens, 1U);
  e.fail_at = ~std::size_t{0};
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_OK) << hotset_last_error();
  e.stop_at = e.uses;
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_STOPPED);
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_OK) << hotset_last_error();
}

TEST(c_pager, a_pinned_slot_stays_and_its_reader_is_named) {
  const auto pager = open(options(2));
  auto visit = empty_visit();
  const auto serve = [&](std::uint64_t step, const std::vector<std::int32_t>& ids) {
    return visit_layer(pager.get(), 0, step, ids, visit);
  };
  ASSERT_EQ(serve(0, {1, 2}), HOTSET_OK);
  std::int32_t slot = -1;
  ASSERT_EQ(hotset_locate(pager.get(), {0, 1}, &slot), HOTSET_OK);
  std::uint64_t pin = 0;
  ASSERT_EQ(hotset_pin(pager.get(), slot, &pin), HOTSET_OK);
  EXPECT_EQ(serve(1, {3, 4}), HOTSET_NO_VICTIM);
  EXPECT_EQ(hotset_invalidate(pager.get(), {0, 1}), HOTSET_BUSY);
  ASSERT_EQ(hotset_unpin(pager.get(), pin, 42), HOTSET_OK);
  EXPECT_EQ(hotset_unpin(pager.get(), pin, 42), HOTSET_INVALID_ARGUMENT);
  EXPECT_THAT(hotset_last_error(), HasSubstr("is not pinned"));
  ASSERT_EQ(serve(2, {3, 4}), HOTSET_OK);
  const auto named = [&](const hotset_fill& fill) { return fill.slot == slot && fill.after == 42; };
  EXPECT_TRUE(std::any_of(visit.fills, visit.fills + visit.fill_count, named));
}

// A pin of a reserved slot would be its victim's, and end at the commit.
TEST(c_pager, a_slot_that_the_open_plan_reserves_is_pinned_after_the_commit) {
  const auto pager = open(options(2));
  auto visit = empty_visit();
  ASSERT_EQ(visit_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  ASSERT_EQ(plan_layer(pager.get(), 0, 1, {3, 1}, visit), HOTSET_OK);
  const auto filled = visit.fills[0].slot;
  std::uint64_t pin = 0;
  EXPECT_EQ(hotset_pin(pager.get(), filled, &pin), HOTSET_PLAN_OPEN);
  EXPECT_THAT(hotset_last_error(), HasSubstr("accepted: a pin after hotset_commit"));
  ASSERT_EQ(hotset_pin(pager.get(), visit.slots[1], &pin), HOTSET_OK) << "a hit";
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  ASSERT_EQ(hotset_pin(pager.get(), filled, &pin), HOTSET_OK);
  EXPECT_EQ(visit_layer(pager.get(), 0, 2, {5, 6}, visit), HOTSET_NO_VICTIM);
}

TEST(c_pager, prefetches_are_planned_and_their_outcome_is_recorded) {
  const auto pager = open(options(4));
  auto visit = empty_visit();
  ASSERT_EQ(visit_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  const hotset_request wanted[3] = {{{0, 5}, 1, 0.9F}, {{0, 6}, 1, 0.8F}, {{1, 1}, 0, 0.7F}};
  std::size_t consumed = 0;
  ASSERT_EQ(hotset_prefetch(pager.get(), 0, 0, wanted, 3, 2, &visit, &consumed), HOTSET_OK);
  EXPECT_EQ(consumed, 3U);
  ASSERT_EQ(visit.fill_count, 2U);
  EXPECT_EQ(visit.fills[0].speculative, 1);
  const auto first = visit.fills[0];
  const auto second = visit.fills[1];
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  ASSERT_EQ(hotset_arrived(pager.get(), first.slot, first.generation), HOTSET_OK);
  ASSERT_EQ(hotset_failed(pager.get(), second.slot, second.generation), HOTSET_OK);
  std::int32_t slot = 0;
  ASSERT_EQ(hotset_locate(pager.get(), {0, 6}, &slot), HOTSET_OK);
  EXPECT_EQ(slot, -1);
  const auto stats = stats_of(pager.get());
  EXPECT_EQ(stats.speculative_fills, 2U);
  EXPECT_EQ(stats.failed_fills, 1U);
}

TEST(c_pager, requests_beyond_one_plan_are_left_to_the_next_call) {
  const auto pager = open(options(4));
  auto visit = empty_visit();
  ASSERT_EQ(visit_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  // Residents, again and again: eight are as many as a visit of four tokens has experts.
  std::vector<hotset_request> wanted(8, {{0, 1}, 1, 0.9F});
  wanted.push_back({{0, 5}, 1, 0.5F});
  std::size_t consumed = 0;
  ASSERT_EQ(hotset_prefetch(pager.get(), 0, 0, wanted.data(), 9, 2, &visit, &consumed), HOTSET_OK);
  EXPECT_EQ(consumed, 8U);
  EXPECT_EQ(visit.fill_count, 0U);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  ASSERT_EQ(hotset_prefetch(pager.get(), 0, 0, &wanted[8], 1, 2, &visit, &consumed), HOTSET_OK);
  EXPECT_EQ(consumed, 1U);
  EXPECT_EQ(visit.fill_count, 1U);
}

TEST(c_pager, a_plan_names_hits_whose_copy_is_outstanding) {
  const auto pager = open(options(4));
  auto visit = empty_visit();
  ASSERT_EQ(visit_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  const auto prefetch = [&] {
    const hotset_request wanted{{0, 5}, 1, 0.9F};
    std::size_t consumed = 0;
    EXPECT_EQ(hotset_prefetch(pager.get(), 0, 0, &wanted, 1, 1, &visit, &consumed), HOTSET_OK);
    EXPECT_EQ(visit.fill_count, 1U);
    const auto made = visit.fills[0];
    EXPECT_EQ(hotset_commit(pager.get()), HOTSET_OK);
    return made;
  };
  const auto copy = prefetch();
  ASSERT_EQ(plan_layer(pager.get(), 0, 1, {5, 1}, visit), HOTSET_OK);
  EXPECT_EQ(visit.services[0], HOTSET_HIT);
  ASSERT_EQ(visit.late_count, 1U);
  EXPECT_EQ(visit.late[0], copy.slot);
  // The copy does not arrive: the expert is not taken for a resident.
  ASSERT_EQ(hotset_abort(pager.get(), nullptr, 0), HOTSET_OK);
  ASSERT_EQ(hotset_cancelled(pager.get(), copy.slot, copy.generation), HOTSET_OK);
  ASSERT_EQ(plan_layer(pager.get(), 0, 1, {5, 1}, visit), HOTSET_OK);
  EXPECT_EQ(visit.services[0], HOTSET_FILL);
  EXPECT_EQ(visit.late_count, 0U);
  ASSERT_EQ(hotset_abort(pager.get(), nullptr, 0), HOTSET_OK);
  const auto again = prefetch();
  ASSERT_EQ(hotset_arrived(pager.get(), again.slot, again.generation), HOTSET_OK);
  ASSERT_EQ(plan_layer(pager.get(), 0, 1, {5, 1}, visit), HOTSET_OK);
  EXPECT_EQ(visit.services[0], HOTSET_HIT);
  EXPECT_EQ(visit.late_count, 0U);
}

// Hazard 17: the visit would read a slot whose key is lost, and the policy a slot that is free.
TEST(c_pager, a_copy_that_the_open_plan_reads_ends_after_an_abort) {
  for (const char* const policy : {"lru", "lfu", "gate_score"}) {
    SCOPED_TRACE(policy);
    auto how = options(2);
    how.eviction = policy;
    const auto pager = open(how);
    const std::vector<float> weights{0.5F, 0.5F};
    const auto plan = [&](std::uint64_t step, const std::vector<std::int32_t>& ids,
                          hotset_visit& visit) {
      auto view = view_of(0, step, ids);
      view.weights = weights.data();
      return hotset_plan(pager.get(), &view, &visit);
    };
    auto visit = empty_visit();
    ASSERT_EQ(plan(0, {1, 2}, visit), HOTSET_OK);
    const auto copy = visit.fills[0];
    ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
    ASSERT_EQ(plan(1, {1, 2}, visit), HOTSET_OK);
    EXPECT_EQ(hotset_failed(pager.get(), copy.slot, copy.generation), HOTSET_PLAN_OPEN);
    EXPECT_EQ(hotset_cancelled(pager.get(), copy.slot, copy.generation), HOTSET_PLAN_OPEN);
    EXPECT_THAT(hotset_last_error(), HasSubstr("accepted: hotset_abort first"));
    ASSERT_EQ(hotset_abort(pager.get(), nullptr, 0), HOTSET_OK);
    ASSERT_EQ(hotset_failed(pager.get(), copy.slot, copy.generation), HOTSET_OK);
    ASSERT_EQ(plan(1, {1, 2}, visit), HOTSET_OK);
    EXPECT_EQ(visit.services[0], HOTSET_FILL);
    ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
    ASSERT_EQ(plan(2, {3, 2}, visit), HOTSET_OK);
    const auto victim = visit.fills[0];
    EXPECT_EQ(victim.victim.expert, 1);
    std::uint32_t generation = copy.generation + 1;
    EXPECT_EQ(hotset_failed(pager.get(), victim.slot, generation), HOTSET_OK) << "a victim's copy";
    EXPECT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  }
}

TEST(c_pager, a_copy_that_is_cancelled_after_the_commit_is_lost) {
  const auto pager = open(options(4));
  auto visit = empty_visit();
  ASSERT_EQ(visit_layer(pager.get(), 0, 0, {1, 2}, visit), HOTSET_OK);
  const hotset_request wanted{{0, 5}, 1, 0.9F};
  std::size_t consumed = 0;
  ASSERT_EQ(hotset_prefetch(pager.get(), 0, 0, &wanted, 1, 1, &visit, &consumed), HOTSET_OK);
  const auto copy = visit.fills[0];
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  ASSERT_EQ(visit_layer(pager.get(), 0, 1, {5, 1}, visit), HOTSET_OK);
  ASSERT_EQ(hotset_cancelled(pager.get(), copy.slot, copy.generation), HOTSET_OK);
  ASSERT_EQ(plan_layer(pager.get(), 0, 2, {5, 1}, visit), HOTSET_OK);
  EXPECT_EQ(visit.services[0], HOTSET_FILL) << "its bytes never came";
}

/// Fills the four slots of layer 0 with experts 1 to 4, in this order.
void fill_layer_0(hotset_pager* pager) {
  auto visit = empty_visit();
  for (const std::int32_t first : {1, 3})
    ASSERT_EQ(visit_layer(pager, 0, static_cast<std::uint64_t>(first), {first, first + 1}, visit),
              HOTSET_OK);
}
/// Before the first layer of `step`, forecasts these experts for layer 0.
hotset_status expect_in_layer_0(hotset_pager* pager, std::uint64_t step,
                                const std::vector<std::int32_t>& experts) {
  std::vector<float> probabilities(16, 0.0F);
  for (const auto e : experts) probabilities[static_cast<std::size_t>(e)] = 0.9F;
  return hotset_expect(pager, -1, step, probabilities.data(), 1, 1);
}
std::vector<std::int32_t> victims_of(const hotset_visit& v) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < v.fill_count; ++i) out.push_back(v.fills[i].victim.expert);
  return out;
}

TEST(c_pager, a_forecast_keeps_the_experts_that_it_names) {
  for (const auto* eviction : {"importance:alpha=0", "protect_hot+expert_map_priority"}) {
    for (const bool told : {false, true}) {
      auto how = options(4);
      how.eviction = eviction;
      const auto pager = open(how);
      fill_layer_0(pager.get());
      if (told) {
        ASSERT_EQ(expect_in_layer_0(pager.get(), 9, {1, 2}), HOTSET_OK);
      }
      auto visit = empty_visit();
      ASSERT_EQ(plan_layer(pager.get(), 0, 9, {5, 6}, visit), HOTSET_OK) << hotset_last_error();
      const auto expected = told ? std::vector{3, 4} : std::vector{1, 2};
      EXPECT_EQ(victims_of(visit), expected) << eviction << ", told: " << told;
    }
  }
}

TEST(c_pager, a_prefetch_does_not_evict_forecast_experts) {
  for (const auto guard : {HOTSET_GUARD_NAMED, HOTSET_GUARD_PREDICTED}) {
    auto how = options(4);
    how.guard = guard;
    const auto pager = open(how);
    fill_layer_0(pager.get());
    ASSERT_EQ(expect_in_layer_0(pager.get(), 9, {1, 2}), HOTSET_OK);
    const hotset_request wanted{{0, 5}, 9, 0.5F};
    auto visit = empty_visit();
    std::size_t consumed = 0;
    ASSERT_EQ(hotset_prefetch(pager.get(), 2, 8, &wanted, 1, 1, &visit, &consumed), HOTSET_OK);
    EXPECT_THAT(victims_of(visit), ElementsAre(guard == HOTSET_GUARD_NAMED ? 1 : 3));
  }
}

TEST(c_pager, a_forecast_that_cannot_be_is_refused_in_words) {
  const auto pager = open(options());
  std::vector<float> probabilities(std::size_t{4} * 3 * 16, 0.5F);
  const auto refused = [&](std::int32_t layer, std::size_t tokens, std::int32_t depth) {
    EXPECT_EQ(hotset_expect(pager.get(), layer, 1, probabilities.data(), tokens, depth),
              HOTSET_INVALID_ARGUMENT);
    return std::string(hotset_last_error());
  };
  ASSERT_EQ(hotset_expect(pager.get(), 2, 1, probabilities.data(), 4, 3), HOTSET_OK);
  EXPECT_EQ(refused(3, 1, 1), "layer 3, accepted: 0..2");
  EXPECT_EQ(refused(0, 5, 1), "5 tokens, accepted: at most 4, max_tokens");
  EXPECT_EQ(refused(0, 1, 0), "depth = 0, accepted: 1..3, layers");
  EXPECT_EQ(refused(0, 1, 4), "depth = 4, accepted: 1..3, layers");
  for (const float bad : {-0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    probabilities[17] = bad;
    EXPECT_THAT(refused(0, 2, 1), testing::StartsWith("probability 17 is "));
  }
}

TEST(c_pager, quotas_invalidation_and_a_restart) {
  std::vector<hotset_key> removed;
  auto how = options(4);
  how.user = &removed;
  how.removed = [](void* user, const hotset_removal* of) {
    static_cast<std::vector<hotset_key>*>(user)->push_back(of->key);
  };
  const auto pager = open(how);
  fill_layer_0(pager.get());
  EXPECT_EQ(hotset_set_quota(pager.get(), 0, 1), HOTSET_INVALID_ARGUMENT);
  EXPECT_THAT(hotset_last_error(), HasSubstr("a quota of 1 slots, accepted: 2 or more"));
  ASSERT_EQ(hotset_set_quota(pager.get(), 0, 3), HOTSET_OK);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].expert, 1);
  ASSERT_EQ(hotset_invalidate(pager.get(), {0, 4}), HOTSET_OK);
  EXPECT_EQ(removed.back().expert, 4);
  hotset_key keys[8];
  std::size_t count = 0;
  ASSERT_EQ(hotset_residents(pager.get(), keys, 8, &count), HOTSET_OK);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(keys[0].expert, 2);
  EXPECT_EQ(keys[1].expert, 3);
  const auto other = open(options(4));
  auto visit = empty_visit();
  std::size_t consumed = 0;
  ASSERT_EQ(hotset_plan_warm(other.get(), keys, count, &visit, &consumed), HOTSET_OK);
  EXPECT_EQ(consumed, 2U);
  EXPECT_EQ(visit.fill_count, 2U);
  ASSERT_EQ(hotset_commit(other.get()), HOTSET_OK);
  ASSERT_EQ(hotset_invalidate(pager.get(), {0, -1}), HOTSET_OK);
  EXPECT_EQ(removed.size(), 4U);
}

/// Calls the pager from inside one of its callbacks.
struct intruder {
  hotset_pager* pager = nullptr;
  bool from_a_thread = false;
  hotset_status answer = HOTSET_OK;
  std::string words{};
};
TEST(c_pager, a_call_beside_another_is_refused) {
  const auto pager = open(options());
  const std::vector<std::int32_t> ids{1, 2};
  const auto view = view_of(0, 0, ids);
  for (const bool from_a_thread : {false, true}) {
    intruder it{.pager = pager.get(), .from_a_thread = from_a_thread};
    auto calls = support::sized<hotset_callbacks>();
    calls.user = &it;
    calls.use = [](void* user, const hotset_visit*) -> std::int32_t {
      auto& self = *static_cast<intruder*>(user);
      const auto call = [&self] {
        std::uint64_t hash = 0;
        self.answer = hotset_decision_hash(self.pager, &hash);
        self.words = hotset_last_error();
      };
      if (self.from_a_thread)
        std::thread(call).join();
      else
        call();
      return 0;
    };
    EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_OK);
    EXPECT_EQ(it.answer, HOTSET_WRONG_THREAD);
    EXPECT_EQ(it.words, from_a_thread
                            ? "another thread is in a call with the handle, accepted: one at a time"
                            : "a callback calls with the handle that its own call holds, accepted: "
                              "another handle, or a call after that one");
  }
}

TEST(c_pager, a_handle_of_the_process_that_forked_is_refused) {
  const auto pager = open(options());
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::uint64_t hash = 0;
    const bool refused = hotset_decision_hash(pager.get(), &hash) == HOTSET_FORKED;
    hotset_pager* own = nullptr;
    const auto how = options();
    const bool made = hotset_pager_create(&how, &own) == HOTSET_OK &&
                      hotset_decision_hash(own, &hash) == HOTSET_OK;
    ::_exit(refused && made ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::uint64_t hash = 0;
  EXPECT_EQ(hotset_decision_hash(pager.get(), &hash), HOTSET_OK) << "the parent goes on";
}

TEST(c_pager, every_code_has_words) {
  for (hotset_status s = HOTSET_OK; s <= HOTSET_DOES_NOT_FIT; ++s)
    EXPECT_STRNE(hotset_describe(s), "unknown status");
  for (hotset_status s = HOTSET_INVALID_CONFIG; s <= HOTSET_STOPPED; ++s)
    EXPECT_STRNE(hotset_describe(s), "unknown status");
  EXPECT_STREQ(hotset_describe(-1), "unknown status");
  EXPECT_STREQ(hotset_describe(50), "unknown status");
  EXPECT_EQ(hotset_abi_version(), HOTSET_ABI_VERSION);
}

}  // namespace
}  // namespace hotset::pager_test
