// SPDX-License-Identifier: Apache-2.0
#include "hotset/routing/budget_top_k.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::budget_top_k_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using ids = std::vector<expert_id>;

const geometry shape{.layers = 1, .experts = 6, .top_k = 4, .max_tokens_per_visit = 3};
/// 0 and 3 are resident.
const std::vector<slot_id> row{7_slot, no_slot, no_slot, 9_slot, no_slot, no_slot};

struct answer {
  ids experts;
  std::vector<float> weights;
};
answer route(const support::routed_ids& experts, const std::vector<float>& weights,
             std::int32_t free, bool keep_hits = false) {
  budget_top_k policy(shape, {.keep_hits = keep_hits});
  routing_view view;
  view.experts = experts.ids;
  view.weights = weights;
  answer out{ids(experts.ids.size()), std::vector<float>(weights.size())};
  EXPECT_EQ(policy.route(view, {row, free}, out.experts, out.weights), status::ok);
  return out;
}

// Ranked 3 (resident), 1, 0 (resident), 5.
const ids ranked = support::expert_ids({3, 1, 0, 5});
const std::vector<float> weights{0.4F, 0.3F, 0.2F, 0.1F};

TEST(budget_top_k, keeps_the_prefix_that_fits) {
  EXPECT_THAT(route(ranked, weights, 0).experts, ElementsAre(3, -1, -1, -1));
  EXPECT_THAT(route(ranked, weights, 1).experts, ElementsAre(3, 1, 0, -1));
  EXPECT_THAT(route(ranked, weights, 2).experts, ElementsAre(3, 1, 0, 5));
  EXPECT_THAT(route(ranked, weights, 9).experts, ElementsAre(3, 1, 0, 5));
}

TEST(budget_top_k, kept_weights_sum_to_the_original_sum) {
  EXPECT_THAT(route(ranked, weights, 1).weights,
              ElementsAre(FloatEq(0.4F / 0.9F), FloatEq(0.3F / 0.9F), FloatEq(0.2F / 0.9F), 0.0F));
  EXPECT_THAT(route(ranked, weights, 2).weights, testing::ElementsAreArray(weights));
  // A router that does not normalise: half of the total mass.
  const std::vector<float> half{0.2F, 0.15F, 0.1F, 0.05F};
  EXPECT_THAT(route(ranked, half, 0).weights, ElementsAre(FloatEq(0.5F), 0.0F, 0.0F, 0.0F));
}

TEST(budget_top_k, the_best_expert_stays_if_no_slot_is_free) {
  EXPECT_THAT(route({5, 3, 1, 0}, weights, 0).experts, ElementsAre(5, 3, -1, -1));
}

TEST(budget_top_k, may_keep_hits_behind_a_refused_miss) {
  EXPECT_THAT(route(ranked, weights, 0, true).experts, ElementsAre(3, 0, -1, -1));
  EXPECT_THAT(route(ranked, weights, 0, true).weights,
              ElementsAre(FloatEq(0.4F / 0.6F), FloatEq(0.2F / 0.6F), 0.0F, 0.0F));
  EXPECT_THAT(route({1, 3, 0, 5}, weights, 1, true).experts, ElementsAre(1, 3, 0, -1));
}

TEST(budget_top_k, tokens_share_the_free_slots_in_their_order) {
  const ids two = support::expert_ids({3, 1, 0, 5, 1, 5, 3, 2});
  const std::vector<float> w{0.4F, 0.3F, 0.2F, 0.1F, 0.4F, 0.3F, 0.2F, 0.1F};
  // The first token takes the slot for 1, which the second token then uses for free; 5 and 2 get none.
  EXPECT_THAT(route(two, w, 1).experts, ElementsAre(3, 1, 0, -1, 1, -1, -1, -1));
  EXPECT_THAT(route(two, w, 2).experts, ElementsAre(3, 1, 0, 5, 1, 5, 3, -1));
  EXPECT_THAT(route(two, w, 3).experts, ElementsAre(3, 1, 0, 5, 1, 5, 3, 2));
}

TEST(budget_top_k, a_visit_without_freed_slots_is_unchanged) {
  EXPECT_THAT(route(ranked, weights, -1).experts, testing::ElementsAreArray(ranked));
  EXPECT_THAT(route(ranked, weights, -1).weights, testing::ElementsAreArray(weights));
}

TEST(budget_top_k, needs_at_most_the_free_slots_and_one_copy_a_token) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::random_source random(seed);
    ids experts;
    const auto tokens = 1 + random.below(3);
    for (std::uint64_t t = 0; t < tokens; ++t) {
      ids all = support::expert_ids({0, 1, 2, 3, 4, 5});
      for (std::size_t k = 0; k < 4; ++k) {
        std::swap(all[k], all[k + random.below(6 - k)]);
        experts.push_back(random.one_in(9) ? no_expert : all[k]);
      }
    }
    const std::vector<float> w(experts.size(), 0.25F);
    const auto free = static_cast<std::int32_t>(random.below(5));
    const bool keep_hits = random.one_in(2);
    const auto out = route(experts, w, free, keep_hits);
    std::vector<expert_id> absent;
    std::size_t forced = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      bool routed = false;
      for (std::size_t k = 0; k < 4; ++k) {
        const auto e = out.experts[t * 4 + k];
        if (e < 0) continue;
        if (row[index_of(e)] == no_slot && std::ranges::find(absent, e) == absent.end()) {
          absent.push_back(e);
          forced += !routed ? 1U : 0U;
        }
        routed = true;
      }
      const bool had_any = std::any_of(experts.begin() + static_cast<std::ptrdiff_t>(t * 4),
                                       experts.begin() + static_cast<std::ptrdiff_t>(t * 4 + 4),
                                       [](expert_id e) { return e >= 0; });
      EXPECT_EQ(routed, had_any);
    }
    EXPECT_LE(absent.size(), static_cast<std::size_t>(free) + forced) << seed;
  }
}

TEST(budget_top_k, refuses_arrays_that_are_not_the_models) {
  budget_top_k policy(shape, {});
  routing_view view;
  view.experts = ranked;
  view.weights = weights;
  ids out(4);
  std::vector<float> w(4);
  EXPECT_EQ(policy.route(view, {}, out, w), status::invalid_visit);
  EXPECT_EQ(policy.route(view, {row, 1}, std::span(out).first(3), w), status::invalid_visit);
  EXPECT_EQ(policy.route(view, {row, 1}, out, std::span(w).first(2)), status::invalid_visit);
  view.weights = {};
  EXPECT_EQ(policy.route(view, {row, 1}, out, w), status::invalid_visit);
  EXPECT_EQ(policy.route(view, {row, 1}, out, {}), status::ok);  // no weights requested
  EXPECT_THAT(out, ElementsAre(3, 1, 0, -1));
}

}  // namespace
}  // namespace hotset::budget_top_k_test
