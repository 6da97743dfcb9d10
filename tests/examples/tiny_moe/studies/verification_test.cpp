// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/verification.hpp"

#include <set>

#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "lab/errors.hpp"
#include "paging_samples.hpp"

namespace verification_test {
namespace {

using namespace paging_samples;

const verification& full() {
  static const verification made(
      weights(), {{"ledger", std::string(text)}, {"sum", "Q: what is 12 + 30? A:"}}, 6);
  return made;
}
constexpr std::size_t all_rows = text.size() + 22 + 2 * 5;

TEST(tiny_moe_verification, every_exact_case_is_byte_identical) {
  const auto cases = exact_cases();
  const auto outcomes = full().compare_all(cases);
  ASSERT_EQ(outcomes.size(), cases.size());
  std::set<std::string> policies;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_FALSE(outcomes[i].difference) << cases[i].text();
    EXPECT_EQ(outcomes[i].rows, all_rows) << cases[i].text();
    EXPECT_EQ(outcomes[i].largest, 0.0);
    if (cases[i].budget == "4" && cases[i].admission == "always") {
      EXPECT_GE(outcomes[i].split_visits, 24U) << cases[i].text();
    }
    if (cases[i].budget == "50%") {
      EXPECT_GT(outcomes[i].hits, 0U) << cases[i].text();
    }
    policies.insert(cases[i].eviction);
    // A cache per layer holds the layer's last experts without prefetch too.
    if (cases[i].prefetch != "no_prefetch" &&
        (cases[i].prefetch != "previous_step" || cases[i].scope == cache_scope::shared)) {
      EXPECT_GT(outcomes[i].prefetch_hits, 0U) << cases[i].text();
    }
  }
  EXPECT_EQ(policies.size(), 16U);
}

TEST(tiny_moe_verification, the_first_row_that_differs_is_named) {
  // Loses one rank of one token in one layer: its row and later ones may differ.
  class forgetful final : public expert_provider {
   public:
    void run(const visit_inputs& visit, visit_compute& compute) override {
      if (visit.layer == 11 && visit.kind == request_kind::prefill && visit.tokens == 22) {
        visit.ids[7 * 4 + 1] = -1;
      }
      inner_.run(visit, compute);
    }

   private:
    resident_experts inner_{weights()};
  };
  forgetful experts;
  const auto outcome = full().compare(experts);
  ASSERT_TRUE(outcome.difference);
  EXPECT_EQ(outcome.difference->prompt, "sum");
  EXPECT_EQ(outcome.difference->position, 7U);
  EXPECT_GT(outcome.largest, 0.0);
  EXPECT_EQ(outcome.rows, all_rows);
}

TEST(tiny_moe_verification, a_case_that_cannot_work_is_refused) {
  EXPECT_THROW((void)full().compare({.budget = "3"}), hotset::lab::infeasible_error);
  const verification_case bad{.eviction = "unknown"};
  EXPECT_THROW((void)full().compare_all({&bad, 1}), hotset::lab::usage_error);
  EXPECT_THROW(verification(weights(), {{"long", std::string(2049, 'x')}}, 1), hotset::trace_error);
  EXPECT_THROW((void)read_texts({}, "/nowhere"), hotset::trace_error);
}

}  // namespace
}  // namespace verification_test
