// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/learn_history.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/similar_steps.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace learn_history_test {
namespace {

using namespace hotset;
using testing::HasSubstr;

routing_trace phrases() {
  auto trace = support::empty_trace(2, 8, 2);
  // Four tokens in an order that repeats.
  for (std::int32_t n = 0; n < 60; ++n) {
    const auto e = n * 3 % 4;
    support::add_step(trace, {{2 * e, 2 * e + 1, (2 * e + 3) % 8, 2 * e}});
  }
  return trace;
}

std::uint64_t misses(const routing_trace& trace, const similar_steps::config& options) {
  const visit_sequence visits(trace);
  pager<similar_steps> pages(
      {.layout = pool_layout::per_layer(visits.shape(), 3).value(), .eviction = options});
  auto plan = pages.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i)
    EXPECT_EQ(pages.serve(visits[i], plan, [](const visit_group&) {}), status::ok);
  return pages.stats().misses;
}

TEST(learn_history, equals_the_policys_history_after_the_trace) {
  const auto trace = phrases();
  const auto learned = lab::learn_history(trace, 256, 9);
  EXPECT_EQ(learned.rows(), 59U) << "the last step is not whole";
  EXPECT_EQ(learned.model, 9U);
  const visit_sequence visits(trace);
  pager<similar_steps> pages({.layout = pool_layout::per_layer(visits.shape(), 3).value()});
  auto plan = pages.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i)
    EXPECT_EQ(pages.serve(visits[i], plan, [](const visit_group&) {}), status::ok);
  EXPECT_EQ(pages.eviction().save(visits.shape(), 9), learned);
}

TEST(learn_history, a_policy_that_starts_from_it_is_warm) {
  const auto trace = phrases();
  similar_steps::config warm;
  warm.from.saved = std::make_shared<const saved_history>(lab::learn_history(trace, 1024));
  EXPECT_LT(misses(trace, warm), misses(trace, {}));
}

TEST(learn_history, refuses_traces_that_it_cannot_learn_from) {
  EXPECT_THROW((void)lab::learn_history(phrases(), 100), lab::usage_error);
  EXPECT_THROW((void)lab::learn_history(routing_trace{}, 256), trace_error);
}

}  // namespace
}  // namespace learn_history_test
