// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/least_valuable.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/two_rate.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_admission_policy.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::least_valuable_test {
namespace {

constexpr geometry shape{.layers = 1, .experts = 8, .top_k = 2};

/// One layer with `slots` slots and usage rates only: an expert's value follows from how often it was used.
template <class Admission = least_valuable>
class cache {
 public:
  cache(std::int32_t slots, const typename Admission::config& options)
      : pages_({.layout = pool_layout::shared(shape, slots).value(), .admission = options}),
        plan_(pages_.make_plan()) {}
  void use(std::vector<std::int32_t> ids) {
    routing_view view;
    view.step = step_++;
    view.experts = ids;
    ASSERT_EQ(pages_.serve(view, plan_, [](const visit_group&) {}), status::ok);
  }
  [[nodiscard]] bool holds(support::written_expert e) const {
    return pages_.row(0_layer)[index_of(e.id)] != no_slot;
  }
  [[nodiscard]] pager_stats stats() const { return pages_.stats(); }
  [[nodiscard]] auto& pages() { return pages_; }
  [[nodiscard]] auto& plan() { return plan_; }

 private:
  pager<two_rate, Admission> pages_;
  visit_plan plan_;
  step_id step_ = 0;
};

TEST(least_valuable, an_unknown_expert_is_refused_if_residents_are_worth_more) {
  cache<> c(4, {.rows = 0});
  for (int n = 0; n < 40; ++n) {
    c.use({0, 1});
    c.use({2, 3});
  }
  c.use({0, 7});
  EXPECT_FALSE(c.holds(7));
  for (const auto e : each<expert_id>(4)) EXPECT_TRUE(c.holds(e));
  for (int n = 0; n < 3; ++n) c.use({0, 7});
  EXPECT_TRUE(c.holds(7)) << "used again and again it is worth more than the others";
}

TEST(least_valuable, at_most_as_many_as_may_stream) {
  for (const std::int32_t streams : {1, 2}) {
    cache<> c(4, {.streams = streams, .rows = 0});
    for (int n = 0; n < 40; ++n) {
      c.use({0, 1});
      c.use({2, 3});
    }
    const auto before = c.stats().fills;
    c.use({6, 7});
    EXPECT_EQ(c.stats().fills - before, static_cast<std::uint64_t>(2 - streams));
    EXPECT_FALSE(c.holds(7)) << "of equals the last one routed";
  }
}

TEST(least_valuable, nothing_is_refused_while_slots_are_free) {
  cache<> c(7, {.streams = 2, .rows = 0});
  for (int n = 0; n < 40; ++n) {
    c.use({0, 1});
    c.use({2, 3});
  }
  c.use({4, 5});  // worth less than all others
  for (const auto e : each<expert_id>(6)) EXPECT_TRUE(c.holds(e));
}

TEST(least_valuable, an_aborted_plan_has_no_effect) {
  const geometry many{.layers = 3, .experts = 24, .top_k = 3};
  const auto layout = pool_layout::per_layer(many, 6).value();
  pager<two_rate, least_valuable> one({.layout = layout, .admission = {.streams = 2, .rows = 256}});
  pager<two_rate, any_admission_policy> other(
      {.layout = layout,
       .admission = any_admission_policy::holding<least_valuable>({.streams = 2, .rows = 256})});
  auto plan = one.make_plan();
  auto plan_of_other = other.make_plan();
  support::random_source random(4);
  std::uint64_t refused = 0;
  for (step_id step = 0; step < 400; ++step)
    for (const auto l : each<layer_id>(3)) {
      std::vector<expert_id> ids;
      for (int k = 0; k < 3; ++k)
        ids.push_back(static_cast<expert_id>(random.below(24) * random.below(24) / 24));
      routing_view view;
      view.layer = l;
      view.step = step;
      view.experts = ids;
      auto elsewhere = view;
      elsewhere.layer = static_cast<layer_id>((number(l) + 2) % 3);
      for (const auto& tried : {elsewhere, view}) {
        ASSERT_EQ(one.plan(tried, plan), status::ok);
        ASSERT_EQ(one.abort(plan), status::ok);
      }
      ASSERT_EQ(one.serve(view, plan, [](const visit_group&) {}), status::ok);
      ASSERT_EQ(other.serve(view, plan_of_other, [](const visit_group&) {}), status::ok);
      refused += plan.host_count();
      ASSERT_EQ(std::vector<slot_id>(one.row(l).begin(), one.row(l).end()),
                std::vector<slot_id>(other.row(l).begin(), other.row(l).end()))
          << "step " << step;
    }
  EXPECT_GT(refused, 100U);
  EXPECT_EQ(one.stats().misses, other.stats().misses);
}

TEST(least_valuable, evicts_for_a_prefetch_and_continues) {
  cache<> c(4, {.rows = 0});
  for (int n = 0; n < 10; ++n) {
    c.use({0, 1});
    c.use({2, 3});
  }
  visit_context context;
  context.step = 100;
  const std::vector<prefetch_request> wanted{{{0_layer, 6_expert}, 101, 1.0F}};
  ASSERT_EQ(c.pages().plan_prefetch(context, wanted, c.plan()), status::ok);
  ASSERT_EQ(c.plan().fills().size(), 1U);
  const auto f = c.plan().fills()[0];
  ASSERT_EQ(c.pages().commit(c.plan()), status::ok);
  c.pages().arrived(f.slot, f.generation);
  c.use({6, 0});  // its first use
  c.use({1, 2});
  EXPECT_EQ(c.stats().misses + c.stats().hits, 44U);
}

}  // namespace
}  // namespace hotset::least_valuable_test
