// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/saved_history.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "predictor_samples.hpp"
#include "token_visit.hpp"
#include "written_ids.hpp"

namespace saved_history_test {
namespace {

using namespace hotset;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr geometry shape{.layers = 2, .experts = 70, .top_k = 3, .max_tokens_per_visit = 4};

using support::expert_ids;
using visit = support::token_visit;

/// Steps of two sequences; every fourth step has only one of them.
std::vector<visit> visits(std::uint64_t seed, step_id first, step_id steps) {
  splitmix64 random(seed);
  std::vector<visit> out;
  for (step_id s = first; s < first + steps; ++s)
    for (const auto l : each<layer_id>(shape.layers)) {
      visit v{.layer = l, .step = s, .ids = {}, .sequences = {4, 5}};
      if (s % 4 == 0) v.sequences = {5};
      for (std::size_t i = 0; i < 3 * v.sequences.size(); ++i)
        v.ids.push_back(static_cast<expert_id>(random.below(10) * 7));
      out.push_back(v);
    }
  return out;
}

next_use_values::config with_history(std::int32_t rows = 256) {
  next_use_values::config out;
  out.history = routing_history::config{.rows = rows, .sequences = 4};
  return out;
}
next_use_values::config starting_from(const saved_history& saved) {
  auto out = with_history();
  out.from.saved = std::make_shared<const saved_history>(saved);
  return out;
}
void learn(next_use_values& of, const std::vector<visit>& all) {
  for (const auto& v : all) {
    of.stage(v.view());
    of.keep();
  }
}
saved_history sample(std::uint64_t seed = 1, step_id steps = 20) {
  next_use_values made(shape, with_history());
  learn(made, visits(seed, 0, steps));
  return made.save(shape, 77);
}
/// Values of every layer at a visit of that layer.
std::vector<float> values_of(next_use_values& of, step_id step) {
  std::vector<float> out;
  for (const auto& v : visits(9, step, 1)) {
    of.stage(v.view());
    const auto values = of.values();
    out.insert(out.end(), values.begin(), values.end());
    of.drop_stage();
  }
  return out;
}

TEST(saved_history, holds_the_routing_and_the_successors_of_complete_steps) {
  next_use_values made(shape, with_history());
  learn(made, {{0_layer, 0, expert_ids({9, 1, 5}), {4}},
               {1_layer, 0, expert_ids({69, 2, -1}), {4}},
               {0_layer, 1, expert_ids({6, 6, 0}), {4}},
               {1_layer, 1, expert_ids({3, 2, 1}), {4}},
               {0_layer, 2, expert_ids({1, 2, 3}), {4}}});  // the running step
  const auto saved = made.save(shape, 5);
  EXPECT_EQ(saved.rows(), 2U);
  EXPECT_THAT(saved.before, ElementsAre(saved_history::none, 0));
  EXPECT_THAT(saved.ids, ElementsAre(1, 5, 9, 2, 69, -1, 0, 6, -1, 1, 2, 3));
  EXPECT_THAT(saved.visits, ElementsAre(3, 2));
  EXPECT_EQ(saved.model, 5U);
}

TEST(saved_history, a_restored_history_continues_like_the_saved_one) {
  next_use_values first(shape, with_history());
  learn(first, visits(1, 0, 60));
  const auto saved = first.save(shape);
  const auto options = starting_from(saved);
  ASSERT_FALSE(options.validate(shape));
  next_use_values second(shape, options);
  EXPECT_EQ(second.save(shape), saved);
  next_use_values cold(shape, with_history());
  // Learned and queried data from here on is discarded.
  for (step_id step = 60; step < 90; ++step) {
    (void)values_of(first, step);
    learn(first, visits(50 + static_cast<std::uint64_t>(step), step, 1));
  }
  // New sequences, because a saved history has no running ones: both forget the running sequences.
  first.restore(saved);
  for (step_id step = 100; step < 140; ++step) {
    EXPECT_EQ(values_of(first, step), values_of(second, step)) << step;
    if (step == 110) {
      EXPECT_NE(values_of(first, step), values_of(cold, step));
    }
    const auto next = visits(step, step, 1);
    learn(first, next);
    learn(second, next);
    learn(cold, next);
  }
  EXPECT_EQ(first.save(shape), second.save(shape));
}

TEST(saved_history, a_smaller_memory_takes_the_newest_rows) {
  next_use_values big(shape, with_history(512));
  learn(big, visits(1, 0, 250));
  auto saved = big.save(shape);
  ASSERT_GT(saved.rows(), 256U);
  const auto options = starting_from(saved);
  const next_use_values small(shape, options);
  saved.keep_newest(256);
  EXPECT_EQ(small.save(shape), saved);
  // A full ring continues: the next token takes the oldest row's place.
  next_use_values onward(shape, options);
  learn(onward, visits(3, 250, 3));
  const auto later = onward.save(shape);
  ASSERT_LE(later.rows(), 256U);
  saved.keep_newest(100);
  EXPECT_TRUE(std::search(later.ids.begin(), later.ids.end(), saved.ids.begin(), saved.ids.end()) !=
              later.ids.end());
}

TEST(saved_history, rates_alone_may_start_from_it) {
  const auto saved = sample();
  next_use_values::config options;
  options.from.saved = std::make_shared<const saved_history>(saved);
  const next_use_values rates(shape, options);
  const auto again = rates.save(shape, 77);
  EXPECT_EQ(again.fast, saved.fast);
  EXPECT_EQ(again.slow, saved.slow);
  EXPECT_EQ(again.visits, saved.visits);
  EXPECT_EQ(again.rows(), 0U);
}

TEST(saved_history, a_file_is_read_as_it_was_written) {
  const auto saved = sample();
  const auto bytes = saved.save();
  const auto loaded = saved_history::load(bytes);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(*loaded, saved);
  const auto empty = saved_history::load(saved_history::of(shape).save());
  ASSERT_TRUE(empty);
  EXPECT_EQ(*empty, saved_history::of(shape));
}

TEST(saved_history, every_byte_that_is_cut_or_flipped_is_noticed) {
  const auto bytes = sample(1, 3).save();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(saved_history::load(std::span(bytes).first(n))) << n;
    for (const auto bit : {std::byte{1}, std::byte{128}}) {
      auto damaged = bytes;
      damaged[n] ^= bit;
      EXPECT_FALSE(saved_history::load(damaged)) << n;
    }
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(saved_history::load(longer));
}

/// With a correct checksum, so that the content is checked.
std::string refusal(saved_history changed) {
  const auto loaded = saved_history::load(changed.save());
  return loaded ? "none" : loaded.error().message;
}

TEST(saved_history, invalid_numbers_are_refused_even_with_a_correct_checksum) {
  const auto good = sample(1, 6);
  ASSERT_EQ(refusal(good), "none");
  auto bad = good;
  bad.before[1] = 1;
  EXPECT_THAT(refusal(bad), HasSubstr("rows out of order"));
  bad = good;
  bad.before[3] = bad.before[4] = 2;
  EXPECT_THAT(refusal(bad), HasSubstr("rows out of order")) << "two follow one";
  for (const auto id : {-2, 70, 1 << 30}) {
    bad = good;
    bad.ids[5] = expert_id{id};
    EXPECT_THAT(refusal(bad), HasSubstr("ids that are no experts"));
  }
  for (const auto rate : {-0.1F, 1.1F, std::numeric_limits<float>::quiet_NaN()}) {
    bad = good;
    bad.slow[3] = rate;
    EXPECT_THAT(refusal(bad), HasSubstr("rates outside 0..1"));
  }
  bad = good;
  bad.visits[0] = saved_history::most_visits + 1;
  EXPECT_THAT(refusal(bad), HasSubstr("too many visits"));
}

TEST(saved_history, names_the_expected_kind_of_file) {
  const auto why = [](std::vector<std::byte> bytes) {
    return saved_history::load(bytes).error().message;
  };
  EXPECT_EQ(why({}), "no routing history, accepted: one that hotset history writes");
  auto bytes = sample(1, 2).save();
  auto other = bytes;
  other[8] = std::byte{2};
  EXPECT_EQ(why(other), "a routing history of version 2, accepted: 1");
  other = bytes;
  other[12] = other[13] = other[14] = other[15] = std::byte{255};
  EXPECT_THAT(why(other), HasSubstr("a history of 4294967295 layers x 70 experts, top-3"));
  other = bytes;
  other.pop_back();
  EXPECT_THAT(why(other), HasSubstr("accepted: " + std::to_string(bytes.size()) +
                                    " for a history of 2 layers x 70 experts, top-3"));
  other = bytes;
  other[50] ^= std::byte{4};
  EXPECT_EQ(why(other), "a damaged routing history, accepted: one as it was written");
}

TEST(saved_history, another_shape_or_model_is_refused) {
  const auto saved = sample();
  EXPECT_FALSE(saved.check(shape));
  EXPECT_FALSE(saved.check(shape, 77));
  EXPECT_EQ(saved.check(shape, 78)->message, "a history of model 77, accepted: 78");
  auto other = shape;
  other.top_k = 2;
  EXPECT_EQ(saved.check(other)->message,
            "a history of 2 layers x 70 experts, top-3, accepted: 2 layers x 70 experts, top-2");
  auto options = starting_from(saved);
  options.from.model = 1;
  EXPECT_EQ(options.validate(shape)->message, "a history of model 77, accepted: 1");
}

TEST(saved_history, only_the_newest_rows_stay) {
  auto saved = sample(1, 8);
  const auto all = saved;
  const auto rows = saved.rows();
  saved.keep_newest(rows);
  EXPECT_EQ(saved, all);
  saved.keep_newest(5);
  ASSERT_EQ(saved.rows(), 5U);
  EXPECT_TRUE(std::equal(saved.ids.begin(), saved.ids.end(), all.ids.end() - 5 * 6));
  for (std::size_t r = 0; r < 5; ++r) {
    const auto before = all.before[rows - 5 + r];
    const auto first = static_cast<std::uint32_t>(rows - 5);
    EXPECT_EQ(saved.before[r], before == saved_history::none || before < first ? saved_history::none
                                                                               : before - first);
  }
  EXPECT_EQ(refusal(saved), "none");
}

TEST(saved_history, faded_values_count_less) {
  auto saved = sample(1, 20);
  const auto rows = saved.rows();
  ASSERT_FALSE(saved.fade(0.5));
  EXPECT_EQ(saved.rows(), (rows + 1) / 2);
  EXPECT_THAT(saved.visits, ElementsAre(10, 10));
  ASSERT_FALSE(saved.fade(0));
  EXPECT_EQ(saved.rows(), 0U);
  EXPECT_THAT(saved.visits, ElementsAre(0, 0));
  for (const auto share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(saved.fade(share)->message, HasSubstr("accepted: 0..1"));
}

TEST(saved_history, merged_ones_lie_behind_each_other_and_their_rates_are_means) {
  auto both = sample(1, 10);
  const auto older = both;
  const auto newer = sample(2, 30);
  ASSERT_FALSE(both.merge(newer));
  ASSERT_EQ(both.rows(), older.rows() + newer.rows());
  EXPECT_TRUE(std::equal(older.ids.begin(), older.ids.end(), both.ids.begin()));
  EXPECT_TRUE(std::equal(newer.ids.begin(), newer.ids.end(),
                         both.ids.begin() + static_cast<std::ptrdiff_t>(older.ids.size())));
  const auto first = static_cast<std::uint32_t>(older.rows());
  EXPECT_EQ(both.before[first], saved_history::none) << "they do not follow on one another";
  EXPECT_EQ(both.before[first + 5], first + newer.before[5]);
  EXPECT_THAT(both.visits, ElementsAre(40, 40));
  for (const std::size_t k : {0U, 7U, 80U})
    EXPECT_NEAR(both.fast[k], 0.25F * older.fast[k] + 0.75F * newer.fast[k], 1e-6F);
  EXPECT_EQ(refusal(both), "none");
  ASSERT_FALSE(both.merge(both)) << "with itself";
  EXPECT_EQ(both.rows(), 2 * (older.rows() + newer.rows()));
}

TEST(saved_history, a_refused_merge_changes_nothing) {
  auto saved = sample();
  const auto before = saved;
  auto other = shape;
  other.layers = 3;
  EXPECT_TRUE(saved.merge(saved_history::of(other)));
  EXPECT_TRUE(saved.merge(saved_history::of(shape, 78)));
  EXPECT_EQ(saved, before);
  auto unnamed = saved_history::of(shape);
  ASSERT_FALSE(unnamed.merge(saved));
  EXPECT_EQ(unnamed.model, 77U) << "that of the one which tells it";
}

struct parameters {
  std::string file;
  std::uint64_t number(const char*, std::uint64_t usual) const { return usual; }
  std::string text(const char*, const char*) const { return file; }
};

TEST(saved_history, a_policy_names_its_file) {
  const hotset::support::temporary_folder folder;
  parameters from{support::file_of(folder, "history", sample().save())};
  const auto found = history_source::read(from);
  ASSERT_FALSE(found.validate()) << found.trouble;
  ASSERT_TRUE(found.saved);
  EXPECT_EQ(*found.saved, sample());
  from.file = folder.file("gone");
  EXPECT_THAT(history_source::read(from).validate()->message, HasSubstr(from.file));
  from.file = "";
  EXPECT_FALSE(history_source::read(from).saved);
}

}  // namespace
}  // namespace saved_history_test
