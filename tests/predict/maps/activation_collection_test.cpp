// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/activation_collection.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "map_samples.hpp"
#include "predictor_samples.hpp"

namespace hotset::activation_collection_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::Pointwise;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2};

std::vector<float> shares_of(const activation_collection& of, std::size_t i) {
  return {of.shares(i).begin(), of.shares(i).end()};
}
std::vector<std::uint32_t> requests_of(const activation_collection& of) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < of.size(); ++i) out.push_back(of.requests(i));
  return out;
}

TEST(activation_collection, counts_become_shares_of_their_layer) {
  activation_collection made(shape, {});
  made.add(std::vector<float>{2, 2, 0, 0, 0, 0, 1, 3});
  ASSERT_EQ(made.size(), 1U);
  EXPECT_THAT(shares_of(made, 0), ElementsAre(0.5F, 0.5F, 0, 0, 0, 0, 0.25F, 0.75F));
  EXPECT_FLOAT_EQ(made.inverse_length(0, 0), 1 / std::sqrt(0.5F));
  EXPECT_FLOAT_EQ(made.units_of(0, 1)[0], std::sqrt(0.5F));
  EXPECT_FLOAT_EQ(made.units_of(0, 2)[0], 0);
  made.add(std::vector<float>(8, 0.0F));
  EXPECT_EQ(made.size(), 1U) << "no request";
}

TEST(activation_collection, similarity_is_the_mean_of_the_layers_cosines) {
  activation_collection made(shape, {});
  made.add(std::vector<float>{1, 1, 0, 0, 0, 0, 0, 1});
  made.add(std::vector<float>{5, 0, 0, 0, 0, 0, 0, 5});
  made.add(std::vector<float>{0, 0, 3, 0, 0, 0, 0, 0});
  EXPECT_FLOAT_EQ(made.similarity(0, 1), (std::sqrt(0.5F) + 1) / 2);
  EXPECT_FLOAT_EQ(made.similarity(0, 2), 0);
  EXPECT_FLOAT_EQ(made.similarity(2, 2), 0.5F) << "a layer that it was not in";
}

TEST(activation_collection, the_two_nearest_become_one_when_it_is_full) {
  activation_collection made(shape, {.capacity = 2});
  made.add(std::vector<float>{1, 1, 0, 0, 0, 0, 0, 1});
  made.add(std::vector<float>{0, 0, 7, 0, 0, 0, 7, 0});
  made.add(std::vector<float>{9, 0, 0, 0, 0, 0, 0, 9});
  EXPECT_THAT(requests_of(made), ElementsAre(2, 1));
  // A long request counts no more than a short one.
  EXPECT_THAT(shares_of(made, 0), ElementsAre(0.75F, 0.25F, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(shares_of(made, 1), ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
  made.add(std::vector<float>{1, 0, 0, 0, 0, 0, 0, 1});
  EXPECT_THAT(requests_of(made), ElementsAre(3, 1));
  EXPECT_FLOAT_EQ(made.shares(0)[0], (0.75F + 0.75F + 1) / 3);
  EXPECT_FLOAT_EQ(made.units_of(1, 3)[0], 1) << "what is matched goes with it";
}

/// The rule in doubles, without caching.
struct naive {
  struct matrix {
    std::vector<double> shares;
    double requests = 1;
  };
  std::vector<matrix> all;

  static double sum(const double* a, std::size_t n) {
    double out = 0;
    for (std::size_t i = 0; i < n; ++i) out += a[i];
    return out;
  }
  void add(const std::vector<float>& counts, std::size_t capacity) {
    matrix made{{counts.begin(), counts.end()}};
    for (std::size_t l = 0; l < 3; ++l)
      if (const auto total = sum(&made.shares[5 * l], 5); total > 0)
        for (std::size_t e = 0; e < 5; ++e) made.shares[5 * l + e] /= total;
    all.push_back(made);
    if (all.size() <= capacity) return;
    std::size_t a = 0;
    std::size_t b = 0;
    double best = -1;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        double found = 0;
        const auto row = [&](std::size_t m, std::size_t l) {
          return std::span(all[m].shares).subspan(5 * l, 5);
        };
        for (std::size_t l = 0; l < 3; ++l) found += support::cosine(row(i, l), row(j, l)) / 3;
        if (found > best) best = found, a = i, b = j;
      }
    for (std::size_t l = 0; l < 3; ++l) {
      const bool has_a = sum(&all[a].shares[5 * l], 5) > 0;
      const bool has_b = sum(&all[b].shares[5 * l], 5) > 0;
      const auto n = all[a].requests * has_a + all[b].requests * has_b;
      for (auto k = 5 * l; k < 5 * l + 5 && n > 0; ++k)
        all[a].shares[k] =
            (all[a].requests * all[a].shares[k] + all[b].requests * all[b].shares[k]) / n;
    }
    all[a].requests += all[b].requests;
    all[b] = all.back();
    all.pop_back();
  }
};

TEST(activation_collection, agrees_with_the_rule_written_out) {
  const geometry three{.layers = 3, .experts = 5, .top_k = 2};
  support::random_source random(17);
  activation_collection made(three, {.capacity = 6});
  naive model;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> counts(15);
    for (auto& n : counts) n = static_cast<float>(random.below(60));
    if (random.one_in(6)) std::fill_n(counts.begin() + 5, 5, 0.0F);
    made.add(counts);
    model.add(counts, 6);
    ASSERT_EQ(made.size(), model.all.size());
    std::vector<double> mean(15, 0.0);
    std::vector<double> weight(3, 0.0);
    for (std::size_t i = 0; i < made.size(); ++i) {
      ASSERT_EQ(made.requests(i), model.all[i].requests) << round;
      for (std::size_t k = 0; k < 15; ++k) {
        ASSERT_NEAR(made.shares(i)[k], model.all[i].shares[k], 1e-5) << round;
        mean[k] += model.all[i].requests * model.all[i].shares[k];
      }
      for (std::size_t l = 0; l < 3; ++l)
        if (naive::sum(&model.all[i].shares[5 * l], 5) > 0) weight[l] += model.all[i].requests;
    }
    for (std::size_t k = 0; k < 15; ++k)
      ASSERT_NEAR(made.mean()[k], mean[k] / weight[k / 5], 1e-5) << round;
  }
}

TEST(activation_collection, names_the_keys_that_requests_activate_most) {
  activation_collection made(shape, {});
  EXPECT_TRUE(made.hottest(3).empty());
  made.add(std::vector<float>{3, 1, 0, 0, 0, 1, 0, 0});
  made.add(std::vector<float>{0, 9, 0, 0, 0, 0, 7, 0});
  // Means: layer 0: 3/8, 5/8; layer 1: 0, 1/2, 1/2.
  EXPECT_THAT(made.hottest(3),
              ElementsAre(expert_key{0_layer, 1_expert}, expert_key{1_layer, 1_expert},
                          expert_key{1_layer, 2_expert}));
  EXPECT_THAT(made.hottest(100),
              ElementsAre(expert_key{0_layer, 1_expert}, expert_key{1_layer, 1_expert},
                          expert_key{1_layer, 2_expert}, expert_key{0_layer, 0_expert}));
  EXPECT_TRUE(made.hottest(0).empty());
}

activation_collection learnt(std::uint64_t seed, int requests,
                             const activation_collection::config& options = {}) {
  support::random_source random(seed);
  activation_collection made(shape, options);
  for (int i = 0; i < requests; ++i) {
    std::vector<float> counts(8);
    for (auto& n : counts) n = static_cast<float>(1 + random.below(60));
    made.add(counts);
  }
  return made;
}

TEST(activation_collection, is_deterministic) {
  const activation_collection::config options{.capacity = 9};
  const auto made = learnt(1, 100, options);
  EXPECT_EQ(made.save(), learnt(1, 100, options).save());
  std::uint64_t requests = 0;
  for (const auto n : requests_of(made)) requests += n;
  EXPECT_EQ(requests, 100U) << "none is lost";
}

TEST(activation_collection, is_saved_loaded_and_merged) {
  const auto one = learnt(1, 5);
  const auto two = learnt(2, 7);
  auto copy = learnt(3, 1);
  ASSERT_FALSE(copy.load(one.save()));
  EXPECT_EQ(copy.save(), one.save());
  EXPECT_THAT(std::vector<float>(copy.mean().begin(), copy.mean().end()),
              Pointwise(FloatEq(), std::vector<float>(one.mean().begin(), one.mean().end())));
  ASSERT_FALSE(copy.merge(two));
  ASSERT_EQ(copy.size(), 12U);
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_THAT(shares_of(copy, 5 + i), Pointwise(FloatEq(), shares_of(two, i)));
  // A merged collection continues like any other: a new request joins its nearest mean.
  auto small = learnt(4, 3, {.capacity = 3});
  ASSERT_FALSE(small.merge(two));
  EXPECT_EQ(small.size(), 3U);
  ASSERT_FALSE(small.merge(small));
  const auto requests = requests_of(small);
  EXPECT_EQ(requests[0] + requests[1] + requests[2], 20U);
}

TEST(activation_collection, damaged_or_foreign_bytes_change_nothing) {
  auto made = learnt(1, 3);
  const auto before = made.save();
  const auto why = [&](std::span<const std::byte> bytes) {
    const auto bad = made.load(bytes);
    EXPECT_EQ(made.save(), before);
    return support::why(bad);
  };
  support::expect_other_lengths_refused(before, why);
  auto foreign = before;
  foreign[0] = std::byte{'x'};
  EXPECT_EQ(why(foreign), "no activation_matrix collection, accepted: a saved one");
  // The second matrix: its number of requests, then its shares.
  const auto at = 20 + (4 + 4 * 8);
  const auto with = [&](std::size_t place, std::uint32_t number) {
    return support::with_number(before, place, number);
  };
  for (const float wrong : {-0.25F, 1.5F, 0.999F, std::nanf(""), HUGE_VALF})
    EXPECT_EQ(why(with(at + 4, std::bit_cast<std::uint32_t>(wrong))),
              "matrix 1 holds other than shares, accepted: rows from 0 to 1 that sum to 1 or 0");
  EXPECT_THAT(why(with(at, 0)), HasSubstr("matrix 1 holds other"));
  EXPECT_EQ(
      why(learnt(1, 121, {.capacity = 200}).save()),
      "a collection of 2 layers x 4 experts, 121 matrices, accepted: 2 layers x 4 experts, at "
      "most 120 matrices");
  activation_collection other({.layers = 3, .experts = 4, .top_k = 2}, {});
  EXPECT_THAT(why(other.save()), HasSubstr("3 layers x 4 experts, 0 matrices, accepted: 2"));
  EXPECT_THAT(made.merge(other)->message, HasSubstr("3 layers x 4 experts"));
}

TEST(activation_collection, a_wrong_configuration_is_refused) {
  const auto why = [](const activation_collection::config& c) { return c.validate()->message; };
  EXPECT_EQ(why({.capacity = 0}), "activation_matrix capacity = 0, accepted: 1..65535");
  EXPECT_EQ(why({.capacity = 65536}), "activation_matrix capacity = 65536, accepted: 1..65535");
}

}  // namespace
}  // namespace hotset::activation_collection_test
