// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/activation_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "map_samples.hpp"
#include "predictor_samples.hpp"

namespace hotset::activation_matrix_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

// One layer ahead of two: the priority is 1 - 1 / 2.
const geometry shape{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 4};
constexpr float ahead = 0.5F;

routing_view view_of(layer_id layer, step_id step, const std::vector<std::int32_t>& ids,
                     const std::vector<sequence_id>& sequences = {}) {
  return support::view_of(layer, step, ids, sequences);
}
/// A forecast and its confidence for the first token.
struct answer {
  std::vector<float> rows;
  float confidence = -1;
};
answer said(activation_matrix& predictor, const routing_view& view) {
  const auto found = predictor.expect(view, {}, 0);
  return {{found.probabilities.begin(), found.probabilities.end()},
          found.confidence.empty() ? -1 : found.confidence[0]};
}
auto is_row(const std::vector<float>& shares) {
  std::vector<float> wanted;
  for (const auto share : shares) wanted.push_back(ahead * share);
  return Pointwise(FloatEq(), wanted);
}
/// Runs a request of one token to its end.
void run(activation_matrix& predictor, sequence_id sequence, step_id step,
         const std::vector<std::int32_t>& first, const std::vector<std::int32_t>& second) {
  said(predictor, view_of(0_layer, step, first, {sequence}));
  said(predictor, view_of(1_layer, step, second, {sequence}));
  predictor.on_sequence_end(sequence);
}

TEST(activation_matrix, without_stored_requests_a_request_uses_its_own_counts) {
  auto predictor = activation_matrix::create(shape, {}).value();
  EXPECT_THAT(said(predictor, view_of(0_layer, 0, {0, 1})).rows, Each(0));
  EXPECT_THAT(said(predictor, view_of(1_layer, 0, {1, 2})).rows, Each(0)) << "no layer ahead";
  const auto second = said(predictor, view_of(0_layer, 1, {0, 1}));
  EXPECT_THAT(second.rows, is_row({0, 0.5F, 0.5F, 0}));
  EXPECT_EQ(second.confidence, 0);
  said(predictor, view_of(1_layer, 1, {1, 3}));
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, {0, 1})).rows, is_row({0, 0.5F, 0.25F, 0.25F}));
}

TEST(activation_matrix, the_most_similar_stored_request_is_the_prediction) {
  auto predictor = activation_matrix::create(shape, {}).value();
  run(predictor, 1, 0, {0, 1}, {0, 3});
  run(predictor, 2, 1, {2, 3}, {1, 2});
  // {0, 1} twice, {0, 2} once: counts 3, 2, 1, 0.
  auto found = said(predictor, view_of(0_layer, 2, {0, 1}, {3}));
  EXPECT_THAT(found.rows, is_row({0.5F, 0, 0, 0.5F}));
  EXPECT_FLOAT_EQ(found.confidence, 1);
  said(predictor, view_of(0_layer, 3, {0, 1}, {3}));
  found = said(predictor, view_of(0_layer, 4, {0, 2}, {3}));
  EXPECT_THAT(found.rows, is_row({0.5F, 0, 0, 0.5F}));
  EXPECT_FLOAT_EQ(found.confidence, (3 + 2) / (std::sqrt(14.0F) * std::sqrt(2.0F)));
  // One expert of each: the first of two equal matches. Then the other's expert.
  EXPECT_THAT(said(predictor, view_of(0_layer, 5, {0, 2}, {4})).rows, is_row({0.5F, 0, 0, 0.5F}));
  found = said(predictor, view_of(0_layer, 6, {2, 3}, {4}));
  EXPECT_THAT(found.rows, is_row({0, 0.5F, 0.5F, 0}));
  EXPECT_FLOAT_EQ(found.confidence, 3 / std::sqrt(6.0F * 2.0F));
  // Both layers have been seen, and layer 1 decides for the first match.
  said(predictor, view_of(1_layer, 6, {0, 3}, {4}));
  found = said(predictor, view_of(before_layers, 7, {}, {4}));
  EXPECT_FLOAT_EQ(found.confidence, (1 / std::sqrt(12.0F) + 1) / 2);
}

TEST(activation_matrix, a_new_request_is_expected_to_be_as_all_were) {
  auto predictor = activation_matrix::create(shape, {.depth = 2}).value();
  EXPECT_THAT(said(predictor, view_of(before_layers, 0, {})).rows, Each(0)) << "nothing is known";
  run(predictor, 1, 0, {0, 1}, {0, 3});
  run(predictor, 2, 1, {2, 1}, {1, 2});
  const auto found = said(predictor, view_of(before_layers, 2, {}, {3}));
  // Two of two layers ahead: the priority is 0.
  EXPECT_THAT(found.rows, Pointwise(FloatEq(), {ahead * 0.25F, ahead * 0.5F, ahead * 0.25F, 0.0F,
                                                0.0F, 0.0F, 0.0F, 0.0F}));
  EXPECT_EQ(found.confidence, 0);
  EXPECT_THAT(predictor.hottest(2),
              ElementsAre(expert_key{0_layer, 1_expert}, expert_key{0_layer, 0_expert}));
  // A running request uses its own match.
  said(predictor, view_of(0_layer, 2, {0, 1}, {3}));
  EXPECT_FLOAT_EQ(said(predictor, view_of(before_layers, 3, {}, {3})).rows[0], ahead * 0.5F);
}

TEST(activation_matrix, a_request_ends_once) {
  auto predictor = activation_matrix::create(shape, {}).value();
  said(predictor, view_of(0_layer, 0, {0, 1}));
  predictor.on_sequence_end(9);
  EXPECT_EQ(predictor.collection().size(), 0U);
  predictor.on_sequence_end(0);
  predictor.on_sequence_end(0);
  EXPECT_EQ(predictor.collection().size(), 1U);
  said(predictor, view_of(0_layer, 1, {-1, -1}, {4}));
  predictor.on_sequence_end(4);
  EXPECT_EQ(predictor.collection().size(), 1U) << "it activated nothing";
  // A later request with the same number is a different one.
  EXPECT_THAT(said(predictor, view_of(before_layers, 2, {}, {4})).confidence, 0);
}

TEST(activation_matrix, the_least_recently_used_request_is_closed_for_a_new_one) {
  auto predictor = activation_matrix::create(shape, {.requests = 2}).value();
  said(predictor, view_of(0_layer, 0, {0, 1}, {1}));
  said(predictor, view_of(0_layer, 1, {2, 3}, {2}));
  said(predictor, view_of(0_layer, 2, {0, 1}, {1}));
  EXPECT_EQ(predictor.collection().size(), 0U);
  said(predictor, view_of(0_layer, 3, {0, 3}, {3}));
  ASSERT_EQ(predictor.collection().size(), 1U);
  EXPECT_THAT(predictor.collection().shares(0), ElementsAre(0, 0, 0.5F, 0.5F, 0, 0, 0, 0));
  // If a visit has more requests than places, the last ones are not followed. All rows are 0 here.
  const auto found = said(predictor, view_of(0_layer, 4, {0, 1, 0, 3, 2, 2}, {1, 3, 4}));
  EXPECT_EQ(predictor.collection().size(), 1U);
  EXPECT_EQ(found.rows.size(), 12U);
  EXPECT_THAT(found.rows, Each(0)) << "no request has reached layer 1";
}

/// The matching rule in doubles, without caching, on the predictor's stored matrices.
struct naive {
  std::map<sequence_id, std::vector<double>> counts;  // [layers, experts]

  struct match {
    std::size_t best = 0;
    double confidence = 0;
    bool found = false;
    bool clear = true;  // no other match is as good
  };
  void count(sequence_id sequence, std::size_t layer, id_view<expert_id> ids) {
    auto& of = counts[sequence];
    of.resize(3 * 6, 0.0);
    for (const auto id : ids)
      if (id >= 0) of[layer * 6 + static_cast<std::size_t>(id)] += 1;
  }
  match find(sequence_id sequence, const activation_collection& stored) {
    match out;
    const auto& of = counts[sequence];
    double second = -1;
    for (std::size_t m = 0; m < stored.size() && !of.empty(); ++m) {
      double total = 0;
      int compared = 0;
      for (std::size_t at = 0; at < 3 * 6; at += 6) {
        const auto own = std::span(of).subspan(at, 6);
        if (std::ranges::count(own, 0.0) == 6) continue;
        ++compared;
        total += support::cosine(own, stored.shares(m).subspan(at, 6));
      }
      if (compared == 0) continue;
      total /= compared;
      if (!out.found || total > out.confidence) {
        second = out.found ? out.confidence : -1;
        out.best = m;
        out.confidence = total;
        out.found = true;
      } else {
        second = std::max(second, total);
      }
    }
    out.clear = out.confidence - second > 1e-5;
    return out;
  }
};

TEST(activation_matrix, the_match_agrees_with_the_rule_written_out) {
  const geometry three{.layers = 3, .experts = 6, .top_k = 2, .max_tokens_per_visit = 8};
  support::random_source random(23);
  auto predictor =
      activation_matrix::create(three, {.depth = 2, .capacity = 9, .requests = 6}).value();
  naive model;
  int clear = 0;
  for (step_id step = 0; step < 400; ++step) {
    // Up to 8 tokens of up to 5 requests.
    std::vector<sequence_id> owners;
    for (auto n = random.one_in(3) ? 8 : 1 + random.below(3); n > 0; --n)
      owners.push_back(static_cast<sequence_id>(random.below(5)));
    for (int layer = -1; layer < 3; ++layer) {
      std::vector<std::int32_t> ids;
      for (std::size_t i = 0; layer >= 0 && i < 2 * owners.size(); ++i)
        ids.push_back(random.one_in(20) ? -1 : random.id_below(6));
      for (std::size_t t = 0; layer >= 0 && t < owners.size(); ++t)
        model.count(owners[t], static_cast<std::size_t>(layer), std::span(ids).subspan(2 * t, 2));
      const auto found = predictor.expect(view_of(layer_id{layer}, step, ids, owners), {}, 0);
      ASSERT_EQ(found.probabilities.size(), owners.size() * 2 * 6);
      const auto& stored = predictor.collection();
      for (std::size_t t = 0; t < owners.size() && stored.size() > 0; ++t) {
        const auto wanted = model.find(owners[t], stored);
        ASSERT_NEAR(found.confidence[t], wanted.confidence, 1e-5) << step;
        if (wanted.found && !wanted.clear) continue;
        ++clear;
        for (int d = 1; d <= 2 && layer + d < 3; ++d)
          for (std::size_t e = 0; e < 6; ++e) {
            const auto k = static_cast<std::size_t>(layer + d) * 6 + e;
            const auto share = wanted.found ? stored.shares(wanted.best)[k] : stored.mean()[k];
            ASSERT_NEAR(found.probabilities[(t * 2 + static_cast<std::size_t>(d) - 1) * 6 + e],
                        share * (1 - static_cast<float>(d) / 3), 1e-6)
                << "step " << step << " layer " << layer << " token " << t;
          }
      }
    }
    if (random.one_in(4)) {
      const auto ended = static_cast<sequence_id>(random.below(5));
      predictor.on_sequence_end(ended);
      model.counts.erase(ended);
    }
  }
  EXPECT_GT(clear, 1000);
}

TEST(activation_matrix, is_saved_loaded_and_merged_while_requests_run) {
  auto one = activation_matrix::create(shape, {}).value();
  auto two = activation_matrix::create(shape, {}).value();
  run(one, 1, 0, {0, 1}, {0, 3});
  run(two, 1, 0, {2, 3}, {1, 2});
  said(two, view_of(0_layer, 1, {0, 1}, {7}));
  ASSERT_FALSE(two.merge(one));
  EXPECT_EQ(two.collection().size(), 2U);
  EXPECT_THAT(said(two, view_of(0_layer, 2, {0, 1}, {7})).rows, is_row({0.5F, 0, 0, 0.5F}));
  ASSERT_FALSE(one.load(two.save()));
  EXPECT_EQ(one.save(), two.save());
  EXPECT_THAT(said(one, view_of(0_layer, 3, {2, 3}, {7})).rows, is_row({0, 0.5F, 0.5F, 0}));
  EXPECT_THAT(one.load(std::span<const std::byte>{})->message, HasSubstr("accepted: a saved one"));
  auto other = activation_matrix::create({.layers = 3, .experts = 4, .top_k = 2}, {}).value();
  EXPECT_THAT(one.merge(other)->message, HasSubstr("3 layers x 4 experts"));
}

TEST(activation_matrix, starts_with_the_matrices_of_a_file_that_its_parameters_name) {
  auto yesterday = activation_matrix::create(shape, {}).value();
  run(yesterday, 1, 0, {0, 1}, {0, 3});
  run(yesterday, 2, 1, {2, 3}, {1, 2});
  const auto bytes = yesterday.save();
  const support::temporary_folder folder;
  const auto write = [&](const char* name, const std::vector<std::byte>& of) {
    return support::file_of(folder, name, of);
  };
  const auto read = [](const std::string& text) {
    return support::config_of<activation_matrix>("activation-matrix" + text);
  };
  const auto good = write("good.matrices", bytes);
  auto options = read(":capacity=7:from=" + good);
  EXPECT_FALSE(options.validate());
  auto today = activation_matrix::create(shape, options);
  ASSERT_TRUE(today) << today.error().message;
  EXPECT_EQ(today->save(), bytes);
  EXPECT_EQ(today->collection().capacity(), 7U);
  EXPECT_EQ(today->hottest(8), yesterday.hottest(8));
  // The day's first request is recognised by its first layer.
  EXPECT_THAT(said(*today, view_of(0_layer, 0, {0, 1}, {1})).rows, is_row({0.5F, 0, 0, 0.5F}));
  EXPECT_EQ(read("").saved, nullptr);

  EXPECT_EQ(support::why(read(":from=/no/such.matrices").validate()),
            "/no/such.matrices: cannot be read, accepted: a file");
  // The bytes must be a collection that fits: model, capacity, and shares in range.
  const auto refused = [&](const geometry& model, const activation_matrix::config& with) {
    return support::why(activation_matrix::create(model, with));
  };
  auto cut = bytes;
  cut.pop_back();
  const auto bad = write("bad.matrices", cut);
  EXPECT_EQ(refused(shape, read(":from=" + bad)),
            bad + ": 91 bytes, accepted: 92 for 2 layers x 4 experts, 2 matrices");
  const auto other = write("other.matrices", std::vector<std::byte>(40, std::byte{1}));
  EXPECT_EQ(refused(shape, read(":from=" + other)),
            other + ": no activation_matrix collection, accepted: a saved one");
  EXPECT_EQ(refused({.layers = 3, .experts = 4, .top_k = 2}, options),
            good +
                ": a collection of 2 layers x 4 experts, 2 matrices, "
                "accepted: 3 layers x 4 experts, at most 7 matrices");
  options.capacity = 1;
  EXPECT_THAT(refused(shape, options), HasSubstr("2 matrices, accepted: 2 layers"));
  auto wrong = bytes;
  for (std::size_t b = 24; b < 28; ++b) wrong[b] = std::byte{0x41};  // a share of 12
  EXPECT_THAT(refused(shape, read(":from=" + write("wrong.matrices", wrong))),
              HasSubstr("wrong.matrices: matrix 0 holds other than shares"));
}

TEST(activation_matrix, inconsistent_arrays_are_refused_without_effect) {
  auto predictor = activation_matrix::create(shape, {}).value();
  run(predictor, 1, 0, {0, 1}, {0, 3});
  said(predictor, view_of(0_layer, 1, {0, 1}, {2}));
  const auto before = said(predictor, view_of(before_layers, 2, {}, {2}));
  const std::vector<std::int32_t> ids{2, 3};
  const std::vector<sequence_id> owners{2, 2};
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, ids, owners)).rows, IsEmpty());
  EXPECT_THAT(said(predictor, view_of(2_layer, 2, ids)).rows, IsEmpty());
  EXPECT_THAT(said(predictor, view_of(layer_id{-2}, 2, ids)).rows, IsEmpty());
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, {2, 3, 1}, {2})).rows, IsEmpty());
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, {})).rows,
              IsEmpty());
  const auto after = said(predictor, view_of(before_layers, 2, {}, {2}));
  EXPECT_EQ(after.rows, before.rows);
  EXPECT_EQ(after.confidence, before.confidence);
  EXPECT_THAT(said(predictor, view_of(0_layer, 2, {})).rows, IsEmpty()) << "no token";
}

TEST(activation_matrix, a_wrong_configuration_is_refused) {
  const auto why = [](const geometry& model, const activation_matrix::config& options) {
    return support::why(activation_matrix::create(model, options));
  };
  EXPECT_EQ(why(shape, {.depth = 0}), "activation_matrix depth = 0, accepted: 1 or more");
  EXPECT_EQ(why(shape, {.depth = 3}), "activation_matrix depth = 3, accepted: 1..2 (layers)");
  EXPECT_EQ(why(shape, {.capacity = 0}), "activation_matrix capacity = 0, accepted: 1..65535");
  EXPECT_EQ(why(shape, {.requests = 0}), "activation_matrix requests = 0, accepted: 1..4096");
  const geometry huge{.layers = 1 << 14, .experts = 1 << 14, .top_k = 2};
  EXPECT_THAT(why(huge, {}), HasSubstr("accepted: at most 17179869184"));
  EXPECT_THAT(why({.layers = 1 << 20, .experts = 8, .top_k = 2}, {.requests = 4096}),
              HasSubstr("accepted: at most 17179869184"));
  EXPECT_THAT(why({.layers = 64, .experts = 4096, .top_k = 2, .max_tokens_per_visit = 1 << 24},
                  {.depth = 64}),
              HasSubstr("accepted: at most 17179869184"));
}

}  // namespace
}  // namespace hotset::activation_matrix_test
