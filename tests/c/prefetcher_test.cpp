// SPDX-License-Identifier: Apache-2.0
// The C prefetcher requests the same experts as the library's policies and predictors.

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "hotset/registry/policy_registry.hpp"
#include "random_source.hpp"

namespace hotset::prefetcher_test {
namespace {

using support::open;
using support::refusal_of;
using support::view_of;
using testing::HasSubstr;

hotset_prefetcher_options options(const char* prefetch = nullptr, const char* predictor = nullptr) {
  auto out = support::options_of<hotset_prefetcher_options>(4, 16, 2);
  out.prefetch = prefetch;
  out.predictor = predictor;
  return out;
}

TEST(c_prefetcher, makes_the_requests_of_the_library) {
  const auto ours = open(options());
  const geometry shape{.layers = 4, .experts = 16, .top_k = 2};
  any_prefetch_policy policy(shape, policies().prefetch.make("next_layer_top_k").value());
  auto with = policies().make_predictor("similar-steps").value();
  with.depth = std::max(1, policy.depth());
  auto predictor = any_predictor::create(shape, with).value();
  std::size_t most = 0;
  ASSERT_EQ(hotset_prefetcher_most(ours.get(), &most), HOTSET_OK);
  ASSERT_EQ(most, policy.most_requests());
  std::vector<hotset_request> asked(most);
  std::vector<prefetch_request> wanted(most);
  support::random_source random(4);
  std::size_t all = 0;
  for (std::uint64_t step = 0; step < 60; ++step)
    for (std::int32_t layer = -1; layer < 4; ++layer) {
      const auto phrase = static_cast<std::int32_t>(step % 5);
      const std::vector<std::int32_t> ids{phrase * 3 % 16, (phrase * 5 + layer) % 16};
      auto view = view_of(layer, step, ids);
      if (layer < 0) view.experts = nullptr;
      std::size_t count = 0;
      ASSERT_EQ(hotset_propose(ours.get(), &view, asked.data(), asked.size(), &count), HOTSET_OK)
          << hotset_last_error();
      routing_view same;
      same.layer = layer_id{layer};
      same.step = step;
      if (layer >= 0) {
        same.experts = ids;
        policy.observe(same);
      }
      ASSERT_EQ(count, policy.propose(same, predictor.expect(same), wanted));
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(asked[i].key.layer, number(wanted[i].key.layer));
        ASSERT_EQ(asked[i].key.expert, number(wanted[i].key.expert));
        ASSERT_EQ(asked[i].for_step, wanted[i].for_step);
        ASSERT_EQ(asked[i].probability, wanted[i].probability);
      }
      all += count;
    }
  EXPECT_GT(all, 100U);
}

TEST(c_prefetcher, a_step_begins_with_requests_only_if_something_is_expected) {
  const std::vector<std::int32_t> ids{1, 2};
  const auto asks = [&](const char* prefetch, const char* predictor) {
    const auto ours = open(options(prefetch, predictor));
    std::vector<hotset_request> asked(64);
    std::size_t in_layers = 0, count = 0;
    for (std::uint64_t step = 0; step < 8; ++step)
      for (std::int32_t layer = 0; layer < 4; ++layer) {
        const auto view = view_of(layer, step, ids);
        EXPECT_EQ(hotset_propose(ours.get(), &view, asked.data(), asked.size(), &count), HOTSET_OK);
        in_layers += count;
      }
    EXPECT_GT(in_layers, 0U) << prefetch;
    auto begins = view_of(-1, 8, ids);
    begins.experts = nullptr;
    EXPECT_EQ(hotset_propose(ours.get(), &begins, asked.data(), asked.size(), &count), HOTSET_OK);
    return count;
  };
  EXPECT_GT(asks("next_layer_top_k", "last-routed"), 0U);
  EXPECT_EQ(asks("previous_step", "last-routed"), 0U) << "layer 0 would be requested twice";
  EXPECT_EQ(asks("next_layer_top_k", "co-activation"), 0U);
}

TEST(c_prefetcher, mistakes_are_reported) {
  EXPECT_THAT(refusal_of(options("nothing_of_the_kind")), HasSubstr("unknown prefetch policy"));
  EXPECT_THAT(refusal_of(options(nullptr, "nothing-of-the-kind")), HasSubstr("unknown predictor"));
  EXPECT_THAT(refusal_of(options(nullptr, "next-router")), HasSubstr("needs the engine's routers"));
  EXPECT_THAT(refusal_of(options("noisy_oracle")), HasSubstr("sees the future"));
  EXPECT_THAT(refusal_of(options("popular:profile=/nonexistent")),
              HasSubstr("popular needs the profile '/nonexistent'"));
  EXPECT_THAT(refusal_of(options("popular:first=3")), HasSubstr("unknown parameter 'first'"));
  auto bad = options();
  bad.top_k = 17;
  EXPECT_EQ(refusal_of(bad), "top_k = 17, accepted: 1..16");
  bad = options();
  bad.max_tokens = -1;
  EXPECT_EQ(refusal_of(bad), "max_tokens_per_visit = -1, accepted: 1..16777216");
  const auto view = view_of(0, 0, {});
  std::size_t count = 0;
  EXPECT_EQ(hotset_propose(nullptr, &view, nullptr, 0, &count), HOTSET_INVALID_ARGUMENT);
}

// current-gate uses a layer's scores for the next layer; without scores it would silently predict nothing.
TEST(c_prefetcher, a_visit_without_the_scores_that_a_predictor_needs_is_refused) {
  const auto ours = open(options(nullptr, "current-gate"));
  const std::vector<std::int32_t> ids{1, 2};
  const std::vector<float> logits(16, 1.0F);
  auto view = view_of(0, 0, ids);
  std::size_t count = 0;
  EXPECT_EQ(hotset_propose(ours.get(), &view, nullptr, 0, &count), HOTSET_INVALID_VISIT);
  EXPECT_STREQ(
      hotset_last_error(),
      "a visit without logits, accepted: with the router's logits, which the predictor needs");
  view.logits = logits.data();
  EXPECT_EQ(hotset_propose(ours.get(), &view, nullptr, 0, &count), HOTSET_OK);
  view.logits = nullptr;
  view.layer = -1;
  view.experts = nullptr;
  EXPECT_EQ(hotset_propose(ours.get(), &view, nullptr, 0, &count), HOTSET_OK) << "a step begins";
}

}  // namespace
}  // namespace hotset::prefetcher_test
