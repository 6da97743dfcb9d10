// SPDX-License-Identifier: Apache-2.0
// A policy of the program's own decides like the library's if its rule is the same. A wrong answer is refused in words
// and changes nothing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "random_source.hpp"

namespace hotset::policy_test {
namespace {

using support::open;
using support::refusal_of;
using support::view_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// LRU as a program writes it, and a place to spoil it.
struct own_lru {
  std::vector<std::uint64_t> last{};
  std::uint64_t clock = 0;
  std::vector<std::string> heard{};
  std::function<std::int32_t(const hotset_choice&, std::int32_t*)> instead{};
  std::int32_t answer_of_reset = 0;
  std::int32_t answer_of_visit = 0;
  std::int32_t answer_of_prefetch = 0;

  static own_lru& of(void* user) { return *static_cast<own_lru*>(user); }
  static std::int32_t reset(void* user, const hotset_policy_layout* layout) {
    auto& self = of(user);
    self.last.assign(layout->slots, 0);
    self.clock = 0;
    self.heard.push_back("reset " + std::to_string(layout->pools) + " x " +
                         std::to_string(layout->pool_slots[0]));
    return self.answer_of_reset;
  }
  static std::int32_t on_visit(void* user, const hotset_visit_event* event) {
    auto& self = of(user);
    for (std::size_t i = 0; i < event->count; ++i) self.last[index(event->slots[i])] = ++self.clock;
    return self.answer_of_visit;
  }
  static std::int32_t on_prefetch(void* user, hotset_key key, std::int32_t slot, std::int32_t,
                                  std::uint64_t step) {
    auto& self = of(user);
    self.last[index(slot)] = ++self.clock;
    self.heard.push_back("prefetch " + words(key) + " for " + std::to_string(step));
    return self.answer_of_prefetch;
  }
  static std::int32_t on_evict(void* user, hotset_key key, std::int32_t, std::int32_t) {
    of(user).heard.push_back("evict " + words(key));
    return 0;
  }
  static std::int32_t select(void* user, const hotset_choice* choice, std::int32_t* victims) {
    auto& self = of(user);
    if (self.instead) return self.instead(*choice, victims);
    std::vector<std::int32_t> all(choice->candidates, choice->candidates + choice->candidate_count);
    std::ranges::sort(all, {}, [&](std::int32_t slot) { return self.last[index(slot)]; });
    std::copy_n(all.begin(), choice->count, victims);
    return static_cast<std::int32_t>(choice->count);
  }
  static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }
  static std::string words(hotset_key key) {
    return std::to_string(key.layer) + "/" + std::to_string(key.expert);
  }

  hotset_eviction_policy calls() {
    auto out = support::sized<hotset_eviction_policy>();
    out.name = "mine";
    out.user = this;
    out.reset = reset;
    out.on_visit = on_visit;
    out.on_prefetch = on_prefetch;
    out.on_evict = on_evict;
    out.select_victims = select;
    return out;
  }
};

class c_policy : public testing::Test {
 protected:
  hotset_pager_options options(std::int64_t slots = 4) {
    calls_ = mine.calls();
    auto out = support::options_of<hotset_pager_options>(2, 8, 2);
    out.max_tokens = 4;
    out.slots = slots;
    out.policy = &calls_;
    return out;
  }
  static hotset_status visit(hotset_pager* pager, std::int32_t layer, std::uint64_t step,
                             const std::vector<std::int32_t>& ids) {
    auto planned = support::sized<hotset_visit>();
    const auto view = view_of(layer, step, ids);
    auto code = hotset_plan(pager, &view, &planned);
    while (code == HOTSET_OK) {
      code = hotset_commit(pager);
      if (code != HOTSET_OK || planned.more == 0) break;
      code = hotset_plan_next(pager, &planned);
    }
    return code;
  }
  static std::uint64_t hash_of(hotset_pager* pager) {
    std::uint64_t out = 0;
    EXPECT_EQ(hotset_decision_hash(pager, &out), HOTSET_OK);
    return out;
  }
  /// A pager whose layer 0 is full with experts 0..3.
  auto full() {
    auto pager = open(options());
    EXPECT_EQ(visit(pager.get(), 0, 1, {0, 1, 2, 3}), HOTSET_OK);
    return pager;
  }
  own_lru mine;

 private:
  hotset_eviction_policy calls_{};
};

TEST_F(c_policy, lru_of_callbacks_decides_as_lru_by_name) {
  for (const auto scope : {HOTSET_SCOPE_PER_LAYER, HOTSET_SCOPE_SHARED}) {
    auto how = options(scope == HOTSET_SCOPE_SHARED ? 7 : 4);
    how.scope = scope;
    const auto own = open(how);
    how.policy = nullptr;
    how.eviction = "lru";
    const auto named = open(how);
    support::random_source random(7);
    for (std::uint64_t step = 0; step < 300; ++step)
      for (std::int32_t layer = 0; layer < 2; ++layer) {
        std::vector<std::int32_t> ids;
        for (auto tokens = 1 + random.below(4); tokens-- > 0;) {
          const auto first = random.id_below(8);
          ids.insert(ids.end(), {first, (first + 1 + random.id_below(7)) % 8});
        }
        ASSERT_EQ(visit(own.get(), layer, step, ids), HOTSET_OK) << hotset_last_error();
        ASSERT_EQ(visit(named.get(), layer, step, ids), HOTSET_OK);
      }
    EXPECT_EQ(hash_of(own.get()), hash_of(named.get()));
  }
  EXPECT_THAT(mine.heard, ElementsAre("reset 2 x 4", "reset 1 x 7"));
}

struct wrong_answer {
  const char* what;
  std::function<std::int32_t(const hotset_choice&, std::int32_t*)> instead;
  const char* words;
};
class c_policy_wrong_answer : public c_policy, public testing::WithParamInterface<wrong_answer> {};

TEST_P(c_policy_wrong_answer, is_refused_in_words_and_changes_nothing) {
  const auto pager = full();
  const auto before = hash_of(pager.get());
  mine.instead = GetParam().instead;
  EXPECT_EQ(visit(pager.get(), 0, 2, {0, 5}), HOTSET_POLICY_FAILED) << GetParam().what;
  EXPECT_THAT(hotset_last_error(), HasSubstr(GetParam().words));
  EXPECT_EQ(hash_of(pager.get()), before);
  EXPECT_EQ(hotset_commit(pager.get()), HOTSET_NO_PLAN);
  mine.instead = {};
  EXPECT_EQ(visit(pager.get(), 0, 2, {0, 5}), HOTSET_OK) << hotset_last_error();
  std::int32_t slot = -1;
  ASSERT_EQ(hotset_locate(pager.get(), {0, 1}, &slot), HOTSET_OK);
  EXPECT_EQ(slot, -1) << "the least recently used";
}
INSTANTIATE_TEST_SUITE_P(
    each, c_policy_wrong_answer,
    testing::ValuesIn(std::vector<wrong_answer>{
        {"a slot of the visit",
         [](const hotset_choice& c, std::int32_t* victims) {
           // Slots 0..3 are the pool's; the visit's own is no candidate.
           std::int32_t own = 0;
           while (std::find(c.candidates, c.candidates + c.candidate_count, own) !=
                  c.candidates + c.candidate_count)
             ++own;
           victims[0] = own;
           return 1;
         },
         "(expert 0 of layer 0) for layer 0, which the visit uses"},
        {"a slot of another pool",
         [](const hotset_choice&, std::int32_t* victims) {
           victims[0] = 5;
           return 1;
         },
         "policy mine: select_victims named slot 5, which is free, accepted: candidates"},
        {"no slot",
         [](const hotset_choice&, std::int32_t* victims) {
           victims[0] = 99;
           return 1;
         },
         "policy mine: select_victims named slot 99, accepted: 0..7"},
        {"a negative slot",
         [](const hotset_choice&, std::int32_t* victims) {
           victims[0] = -1;
           return 1;
         },
         "policy mine: select_victims named slot -1, accepted: 0..7"},
        {"too few", [](const hotset_choice&, std::int32_t*) { return 0; },
         "policy mine: select_victims named 0 victims, accepted: 1, the choice's count"},
        {"too many", [](const hotset_choice&, std::int32_t*) { return 2; },
         "policy mine: select_victims named 2 victims, accepted: 1"},
        {"a failure", [](const hotset_choice&, std::int32_t*) { return -3; },
         "policy mine: select_victims failed with -3"}}));

TEST_F(c_policy, a_victim_named_twice_is_refused) {
  const auto pager = full();
  mine.instead = [](const hotset_choice& c, std::int32_t* victims) {
    victims[0] = victims[1] = c.candidates[0];
    return 2;
  };
  EXPECT_EQ(visit(pager.get(), 0, 2, {6, 7}), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(),
              HasSubstr("for layer 0, twice, accepted: candidates, each once"));
}

TEST_F(c_policy, a_resident_of_another_pool_is_refused) {
  const auto pager = full();
  ASSERT_EQ(visit(pager.get(), 1, 1, {4, 5}), HOTSET_OK);
  std::int32_t other = -1;
  ASSERT_EQ(hotset_locate(pager.get(), {1, 4}, &other), HOTSET_OK);
  mine.instead = [other](const hotset_choice&, std::int32_t* victims) {
    victims[0] = other;
    return 1;
  };
  EXPECT_EQ(visit(pager.get(), 0, 2, {0, 5}), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(),
              HasSubstr("(expert 4 of layer 1) for layer 0, which is in another pool"));
}

TEST_F(c_policy, a_failed_on_visit_is_reported_once_and_the_commit_has_taken_place) {
  const auto pager = open(options());
  mine.answer_of_visit = 7;
  EXPECT_EQ(visit(pager.get(), 0, 1, {0, 1}), HOTSET_POLICY_FAILED);
  EXPECT_STREQ(hotset_last_error(), "policy mine: on_visit returned 7, accepted: 0");
  std::int32_t slot = -1;
  ASSERT_EQ(hotset_locate(pager.get(), {0, 1}, &slot), HOTSET_OK);
  EXPECT_GE(slot, 0);
  EXPECT_EQ(hotset_commit(pager.get()), HOTSET_NO_PLAN);
  mine.answer_of_visit = 0;
  EXPECT_EQ(visit(pager.get(), 0, 2, {0, 1}), HOTSET_OK);
}

TEST_F(c_policy, a_failed_reset_makes_no_pager) {
  mine.answer_of_reset = 1;
  EXPECT_EQ(refusal_of(options()), "policy mine: reset returned 1, accepted: 0");
}

TEST_F(c_policy, options_that_contradict_or_lack_a_function_are_refused) {
  auto how = options();
  how.eviction = "lru";
  EXPECT_EQ(refusal_of(how), "eviction = lru and a policy of your own, accepted: one of them");
  how.eviction = nullptr;
  auto calls = mine.calls();
  how.policy = &calls;
  calls.on_visit = nullptr;
  EXPECT_EQ(refusal_of(how), "policy mine: on_visit is null, accepted: a function");
  calls = mine.calls();
  calls.select_victims = nullptr;
  EXPECT_EQ(refusal_of(how), "policy mine: select_victims is null, accepted: a function");
  calls = mine.calls();
  calls.struct_size = 8;
  EXPECT_THAT(refusal_of(how), HasSubstr("policy.struct_size = 8, accepted: "));
}

TEST_F(c_policy, a_visit_that_leaves_its_rest_on_the_host_fails_too) {
  auto how = options();
  how.split = HOTSET_SPLIT_LEAVE_REST;
  const auto pager = open(how);
  ASSERT_EQ(visit(pager.get(), 0, 1, {0, 1, 2, 3}), HOTSET_OK);
  const auto before = hash_of(pager.get());
  mine.instead = [](const hotset_choice&, std::int32_t*) { return -1; };
  EXPECT_EQ(visit(pager.get(), 0, 2, {0, 5}), HOTSET_POLICY_FAILED);
  EXPECT_EQ(hotset_commit(pager.get()), HOTSET_NO_PLAN);
  EXPECT_EQ(hash_of(pager.get()), before);
}

TEST_F(c_policy, a_served_visit_ends_with_the_failure) {
  const auto pager = full();
  mine.answer_of_visit = 1;
  auto calls = support::sized<hotset_callbacks>();
  int used = 0;
  calls.user = &used;
  calls.use = [](void* user, const hotset_visit*) {
    ++*static_cast<int*>(user);
    return 0;
  };
  const std::vector<std::int32_t> ids{0, 5, 6, 7, 1, 2};  // in groups
  const auto view = view_of(0, 2, ids);
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_POLICY_FAILED);
  EXPECT_EQ(used, 0);
  mine.answer_of_visit = 0;
  EXPECT_EQ(hotset_serve(pager.get(), &view, &calls), HOTSET_OK) << hotset_last_error();
  EXPECT_GT(used, 1);
}

TEST_F(c_policy, prefetches_and_quotas_are_reported) {
  const auto pager = full();
  mine.heard.clear();
  const hotset_request wanted{{0, 6}, 2, 1.0F};
  std::size_t consumed = 0;
  auto plan = support::sized<hotset_visit>();
  ASSERT_EQ(hotset_prefetch(pager.get(), 1, 1, &wanted, 1, 1, &plan, &consumed), HOTSET_OK);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK) << hotset_last_error();
  EXPECT_THAT(mine.heard, ElementsAre("evict 0/0", "prefetch 0/6 for 2"));
  ASSERT_EQ(hotset_arrived(pager.get(), plan.fills[0].slot, plan.fills[0].generation), HOTSET_OK);
  ASSERT_EQ(hotset_set_quota(pager.get(), 0, 3), HOTSET_OK);
  EXPECT_EQ(mine.heard.back(), "evict 0/1");
}

TEST_F(c_policy, a_failed_choice_for_a_prefetch_plans_nothing) {
  const auto pager = full();
  mine.heard.clear();
  mine.instead = [](const hotset_choice& c, std::int32_t*) { return c.speculative == 1 ? -1 : 0; };
  const hotset_request wanted{{0, 6}, 2, 1.0F};
  std::size_t consumed = 0;
  auto plan = support::sized<hotset_visit>();
  EXPECT_EQ(hotset_prefetch(pager.get(), 1, 1, &wanted, 1, 1, &plan, &consumed),
            HOTSET_POLICY_FAILED);
  EXPECT_EQ(hotset_commit(pager.get()), HOTSET_NO_PLAN);
  EXPECT_EQ(hotset_set_quota(pager.get(), 0, 3), HOTSET_POLICY_FAILED);
  std::int32_t quota = 0;
  ASSERT_EQ(hotset_quota(pager.get(), 0, &quota), HOTSET_OK);
  EXPECT_EQ(quota, 4);
  std::size_t count = 77;
  EXPECT_EQ(hotset_residents(pager.get(), nullptr, 0, &count), HOTSET_POLICY_FAILED);
  EXPECT_EQ(count, 77U);
  EXPECT_THAT(mine.heard, IsEmpty());
}

TEST_F(c_policy, weights_come_if_they_are_needed) {
  auto calls = mine.calls();
  calls.needs_weights = 1;
  static double sum;
  sum = 0;
  calls.on_visit = [](void* user, const hotset_visit_event* event) {
    for (std::size_t i = 0; i < event->count; ++i) sum += event->weights[i];
    return own_lru::on_visit(user, event);
  };
  auto how = options();
  how.policy = &calls;
  const auto pager = open(how);
  EXPECT_EQ(visit(pager.get(), 0, 1, {0, 1}), HOTSET_INVALID_VISIT) << "without weights";
  const std::vector<std::int32_t> ids{0, 1, 1, 2};
  const std::vector<float> weights{0.5F, 0.25F, 1.0F, 2.0F};
  auto view = view_of(0, 1, ids);
  view.weights = weights.data();
  auto planned = support::sized<hotset_visit>();
  ASSERT_EQ(hotset_plan(pager.get(), &view, &planned), HOTSET_OK);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  EXPECT_DOUBLE_EQ(sum, 3.75);
}

TEST_F(c_policy, the_suite_accepts_lru_and_names_what_another_breaks) {
  auto calls = mine.calls();
  EXPECT_EQ(hotset_check_eviction(&calls), HOTSET_OK) << hotset_last_error();
  EXPECT_GT(mine.heard.size(), 100U) << "prefetches and evictions are part of it";
  // Names the victims in another order each time.
  mine.instead = [this](const hotset_choice& c, std::int32_t* victims) {
    const auto first = ++mine.clock % c.candidate_count;
    for (std::size_t i = 0; i < c.count; ++i)
      victims[i] = c.candidates[(first + i) % c.candidate_count];
    return static_cast<std::int32_t>(c.count);
  };
  EXPECT_EQ(hotset_check_eviction(&calls), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(), HasSubstr("a repeated request names the same victims"));
  // Breaks its promise only for several victims.
  mine.instead = [](const hotset_choice& c, std::int32_t* victims) {
    for (std::size_t i = 0; i < c.count; ++i) victims[i] = c.candidates[c.count - 1 - i];
    return static_cast<std::int32_t>(c.count);
  };
  EXPECT_EQ(hotset_check_eviction(&calls), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(), HasSubstr("a smaller one the first of them, after"));
  EXPECT_EQ(hotset_check_eviction(nullptr), HOTSET_INVALID_ARGUMENT);
}

TEST_F(c_policy, the_suite_stops_at_a_failed_callback) {
  auto calls = mine.calls();
  mine.answer_of_prefetch = 5;
  EXPECT_EQ(hotset_check_eviction(&calls), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(), HasSubstr("policy mine: on_prefetch returned 5, accepted: 0"));
  mine.answer_of_prefetch = 0;
  mine.answer_of_visit = 5;
  EXPECT_EQ(hotset_check_eviction(&calls), HOTSET_POLICY_FAILED);
  EXPECT_THAT(hotset_last_error(),
              HasSubstr("on_visit returned 5, accepted: 0, after a visit of layer"));
}

}  // namespace
}  // namespace hotset::policy_test
