// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/last_routed.hpp"

#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "predictor_samples.hpp"
#include "random_source.hpp"

namespace hotset::last_routed_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using routed = std::vector<std::int32_t>;
using support::said;
using support::view_of;

const geometry shape{.layers = 3, .experts = 4, .top_k = 2, .max_tokens_per_visit = 3};

std::vector<float> row_of(const std::vector<float>& rows, std::size_t i) {
  return support::row_at(rows, i, 4);
}

TEST(last_routed, a_layer_is_predicted_to_repeat_its_last_routing) {
  auto predictor = last_routed::create(shape, {}).value();
  EXPECT_THAT(said(predictor, view_of(0_layer, 0, routed{0, 1})), ElementsAre(0, 0, 0, 0))
      << "nothing known";
  EXPECT_THAT(said(predictor, view_of(1_layer, 0, routed{1, 2})), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(said(predictor, view_of(2_layer, 0, routed{2, 3})), ElementsAre(0, 0, 0, 0))
      << "no layer ahead";
  EXPECT_THAT(said(predictor, view_of(0_layer, 1, routed{3, 0})), ElementsAre(0, 0.5F, 0.5F, 0));
  EXPECT_THAT(said(predictor, view_of(1_layer, 1, routed{3, 1})), ElementsAre(0, 0, 0.5F, 0.5F));
}

TEST(last_routed, more_requests_than_are_followed_go_by_the_last_visit) {
  auto predictor = last_routed::create(shape, {.requests = 1}).value();
  said(predictor, view_of(0_layer, 0, routed{0, 1, 2, 3}, {5, 6}));
  said(predictor, view_of(1_layer, 0, routed{0, 1, 2, 3}, {5, 6}));
  const auto found = said(predictor, view_of(0_layer, 1, routed{0, 1, 2, 3}, {5, 6}));
  EXPECT_THAT(row_of(found, 0), ElementsAre(0.5F, 0.5F, 0, 0));
  EXPECT_THAT(row_of(found, 1), Each(0.25F));
}

TEST(last_routed, absent_ids_are_no_experts) {
  auto predictor = last_routed::create(shape, {}).value();
  said(predictor, view_of(1_layer, 0, routed{-1, 3}));
  EXPECT_THAT(said(predictor, view_of(0_layer, 1, routed{0, 9})), ElementsAre(0, 0, 0, 0.5F));
  said(predictor, view_of(1_layer, 1, routed{-1, 4}));
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, routed{0, 1})), Each(0));
}

TEST(last_routed, agrees_with_the_rule_written_out) {
  support::random_source random(3);
  auto predictor = last_routed::create(shape, {.depth = 3, .requests = 8}).value();
  std::map<std::pair<sequence_id, layer_id>, std::vector<std::int32_t>> last;
  std::map<layer_id, std::vector<std::int32_t>> visit;
  for (step_id step = 0; step < 500; ++step) {
    std::vector<sequence_id> owners;
    for (auto n = 1 + random.below(3); n > 0; --n)
      owners.push_back(static_cast<sequence_id>(random.below(6)));
    for (layer_id layer = before_layers; layer < 3; ++layer) {
      std::vector<std::int32_t> ids;
      for (std::size_t i = 0; i < 2 * owners.size(); ++i) ids.push_back(random.id_below(4));
      if (layer == before_layers) ids.clear();
      const auto found = said(predictor, view_of(layer, step, ids, owners));
      ASSERT_EQ(found.size(), owners.size() * 3 * 4);
      for (std::size_t t = 0; t < owners.size(); ++t)
        for (std::int32_t ahead = 1; ahead <= 3; ++ahead) {
          const auto target = layer + ahead;
          std::vector<float> wanted(4, 0.0F);
          if (const auto known = last.find({owners[t], target}); known != last.end())
            for (const auto id : known->second) wanted[static_cast<std::size_t>(id)] = 0.5F;
          else
            for (const auto id : visit[target])
              wanted[static_cast<std::size_t>(id)] +=
                  1.0F / static_cast<float>(visit[target].size());
          for (std::size_t e = 0; e < 4; ++e)
            ASSERT_FLOAT_EQ(found[(t * 3 + static_cast<std::size_t>(ahead) - 1) * 4 + e], wanted[e])
                << "step " << step << " layer " << layer << " token " << t;
        }
      if (layer == before_layers) continue;
      visit[layer] = ids;
      for (std::size_t t = 0; t < owners.size(); ++t)
        last[{owners[t], layer}] = {ids[2 * t], ids[2 * t + 1]};
    }
    if (random.one_in(4)) {
      const auto ended = static_cast<sequence_id>(random.below(6));
      predictor.on_sequence_end(ended);
      for (const auto l : each<layer_id>(3)) last.erase({ended, l});
    }
  }
}

TEST(last_routed, inconsistent_arrays_are_refused_without_effect) {
  auto predictor = last_routed::create(shape, {}).value();
  said(predictor, view_of(1_layer, 0, routed{0, 1}));
  const std::vector<std::int32_t> ids{2, 3};
  EXPECT_THAT(said(predictor, view_of(1_layer, 1, routed{2})), IsEmpty());
  EXPECT_THAT(said(predictor, view_of(3_layer, 1, ids)), IsEmpty());
  EXPECT_THAT(said(predictor, view_of(layer_id{-2}, 1, ids)), IsEmpty());
  const std::vector<sequence_id> owners{0, 0};
  EXPECT_THAT(said(predictor, view_of(1_layer, 1, ids, owners)), IsEmpty());
  EXPECT_THAT(said(predictor, view_of(0_layer, 1, ids)), ElementsAre(0.5F, 0.5F, 0, 0));
  EXPECT_THAT(said(predictor, view_of(1_layer, 2, routed{})), IsEmpty()) << "no token";
  EXPECT_THAT(said(predictor, view_of(0_layer, 3, ids)), ElementsAre(0.5F, 0.5F, 0, 0));
}

TEST(last_routed, a_wrong_configuration_is_refused) {
  const auto why = [](const geometry& model, const last_routed::config& options) {
    return support::why(last_routed::create(model, options));
  };
  EXPECT_EQ(why(shape, {.depth = 0}), "last_routed depth = 0, accepted: 1 or more");
  EXPECT_EQ(why(shape, {.depth = 4}), "last_routed depth = 4, accepted: 1..3 (layers)");
  EXPECT_EQ(why(shape, {.requests = 0}), "last_routed requests = 0, accepted: 1..4096");
  EXPECT_EQ(why(shape, {.requests = 4097}), "last_routed requests = 4097, accepted: 1..4096");
  EXPECT_THAT(why({.layers = 64, .experts = 4096, .top_k = 2, .max_tokens_per_visit = 1 << 24},
                  {.depth = 64}),
              HasSubstr("accepted: at most 17179869184"));
}

}  // namespace
}  // namespace hotset::last_routed_test
