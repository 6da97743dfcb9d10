// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/noisy_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::noisy_oracle_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using ids = std::vector<std::int32_t>;

const geometry shape{.layers = 3, .experts = 10, .top_k = 3};

struct walk {
  explicit walk(const noisy_oracle::config& options = {}, const geometry& g = shape)
      : policy(g, options) {}
  ids ask(const ids& truth, std::size_t room = 50) {
    forecast expected;
    expected.truth = truth;
    expected.truth_layer = 2_layer;
    expected.truth_step = 9;
    requests.resize(room);
    requests.resize(policy.propose({}, expected, requests));
    ids got;
    for (const auto& r : requests) {
      EXPECT_EQ(r.key.layer, 2);
      EXPECT_EQ(r.for_step, 9U);
      got.push_back(number(r.key.expert));
    }
    return got;
  }
  noisy_oracle policy;
  std::vector<prefetch_request> requests;
};

/// The rule with searched lists.
class naive_oracle {
 public:
  naive_oracle(std::uint64_t wrong_eighths, double recall, std::uint64_t seed)
      : wrong_eighths_(wrong_eighths), recall_(recall), random_(seed) {}
  ids ask(const ids& truth, std::int32_t experts) {
    ids got;
    for (const auto e : truth)
      if (static_cast<double>(random_.next() >> 11U) * 0x1p-53 < recall_) {
        got.push_back(e);
        owed_ += wrong_eighths_;
      }
    ids others;
    for (std::int32_t e = 0; e < experts; ++e)
      if (std::find(truth.begin(), truth.end(), e) == truth.end()) others.push_back(e);
    for (std::size_t n = 0; owed_ >= 8 && n < others.size(); ++n, owed_ -= 8) {
      std::swap(others[n], others[n + random_.below(others.size() - n)]);
      got.push_back(others[n]);
    }
    return got;
  }

 private:
  std::uint64_t wrong_eighths_;
  double recall_;
  std::uint64_t owed_ = 0;
  splitmix64 random_;
};

TEST(noisy_oracle, without_noise_it_is_right) {
  walk w;
  EXPECT_EQ(w.policy.depth(), 1);
  EXPECT_EQ(w.policy.most_requests(), 10U);
  for (int n = 0; n < 50; ++n) EXPECT_THAT(w.ask({7, 2, 5}), ElementsAre(7, 2, 5));
  EXPECT_EQ(w.requests[0].probability, 1.0F);
}

TEST(noisy_oracle, recall_0_makes_no_request) {
  walk w({.precision = 0.5, .recall = 0.0});
  for (int n = 0; n < 50; ++n) EXPECT_THAT(w.ask({7, 2, 5}), IsEmpty());
}

TEST(noisy_oracle, agrees_with_the_rule_in_lists) {
  for (const std::uint64_t eighths : {0U, 3U, 8U, 20U}) {
    const auto precision = 8.0 / (8.0 + static_cast<double>(eighths));
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      walk w({.precision = precision, .recall = 0.625, .seed = seed},
             {.layers = 3, .experts = 32, .top_k = 4});
      naive_oracle naive(eighths, 0.625, seed);
      support::random_source random(seed + 100);
      for (int n = 0; n < 100; ++n) {
        ids truth;
        for (std::uint64_t k = 1 + random.below(6); k > 0; --k) {
          const auto e = random.id_below(32);
          if (std::find(truth.begin(), truth.end(), e) == truth.end()) truth.push_back(e);
        }
        const auto got = w.ask(truth);
        ASSERT_EQ(got, naive.ask(truth, 32)) << eighths << " " << seed << " " << n;
        ASSERT_EQ(std::set<std::int32_t>(got.begin(), got.end()).size(), got.size());
      }
    }
  }
}

TEST(noisy_oracle, keeps_its_word_in_the_long_run) {
  for (const double precision : {0.3, 0.5, 0.9})
    for (const double recall : {0.25, 0.8, 1.0}) {
      walk w({.precision = precision, .recall = recall, .seed = 5},
             {.layers = 3, .experts = 64, .top_k = 4});
      const ids truth{9, 1, 60, 33};
      double right = 0, asked = 0, routed = 0;
      std::vector<int> wrong(64);
      for (int n = 0; n < 4000; ++n) {
        const auto got = w.ask(truth);
        asked += static_cast<double>(got.size());
        routed += 4;
        for (const auto e : got) {
          const bool is_true = std::find(truth.begin(), truth.end(), e) != truth.end();
          right += is_true ? 1 : 0;
          wrong[static_cast<std::size_t>(e)] += is_true ? 0 : 1;
        }
      }
      EXPECT_NEAR(right / asked, precision, 1.0 / asked + 1e-6) << precision << " " << recall;
      EXPECT_NEAR(right / routed, recall, 0.02) << precision << " " << recall;
      // Sixty others, evenly: within six standard deviations of a Poisson count.
      const auto even = (asked - right) / 60;
      for (std::int32_t e = 0; e < 64; ++e) {
        if (std::find(truth.begin(), truth.end(), e) != truth.end()) continue;
        EXPECT_NEAR(wrong[static_cast<std::size_t>(e)], even, 6 * std::sqrt(even)) << e;
      }
    }
}

TEST(noisy_oracle, ids_that_are_no_expert_or_repeated_are_ignored) {
  walk w;
  EXPECT_THAT(w.ask({7, -1, 2, 7, 10}), ElementsAre(7, 2));
  EXPECT_THAT(w.ask({-1}), IsEmpty());
}

TEST(noisy_oracle, draws_the_same_whatever_the_room) {
  walk whole({.precision = 0.4, .recall = 0.7, .seed = 8});
  walk cut({.precision = 0.4, .recall = 0.7, .seed = 8});
  for (std::size_t n = 0; n < 200; ++n) {
    auto expected = whole.ask({4, 8, 1});
    expected.resize(std::min(expected.size(), n % 5));
    ASSERT_EQ(cut.ask({4, 8, 1}, n % 5), expected) << n;
  }
}

TEST(noisy_oracle, without_a_valid_truth_it_makes_no_request) {
  noisy_oracle p(shape, {});
  std::vector<prefetch_request> out(20);
  const ids truth{1, 2};
  forecast expected;
  EXPECT_EQ(p.propose({}, expected, out), 0U);
  expected.truth = truth;
  for (const auto layer : {layer_id{-1}, 3_layer}) {
    expected.truth_layer = layer;
    EXPECT_EQ(p.propose({}, expected, out), 0U);
  }
  expected.truth_layer = 0_layer;
  EXPECT_EQ(p.propose({}, expected, out), 2U);
}

TEST(noisy_oracle, the_smallest_precision_requests_everything) {
  walk w({.precision = 1e-300});
  for (int n = 0; n < 100; ++n) ASSERT_EQ(w.ask({7, 2, 5}).size(), 10U);
}

TEST(noisy_oracle, a_debt_beyond_all_bounds_stays_one) {
  // After eight visits it would exceed 2^64 parts by two wrong ones.
  walk w({.precision = 1.0 / (1.0 + (0x1p32 + 51.0) / 24.0)});
  for (int n = 0; n < 20; ++n) ASSERT_EQ(w.ask({7, 2, 5}).size(), 10U) << n;
}

}  // namespace
}  // namespace hotset::noisy_oracle_test
