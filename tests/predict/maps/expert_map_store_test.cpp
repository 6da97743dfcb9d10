// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/expert_map_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "map_samples.hpp"
#include "predictor_samples.hpp"

namespace hotset::expert_map_store_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::Pointwise;
using floats = std::vector<float>;
using ids = std::vector<std::int32_t>;

constexpr map_storage storages[] = {map_storage::fp32, map_storage::fp16, map_storage::int8};

/// Two layers of two experts.
const geometry small{.layers = 2, .experts = 2, .top_k = 1};

expert_map_store made(const geometry& shape, const expert_map_store::config& options) {
  auto out = expert_map_store::create(shape, options);
  EXPECT_TRUE(out) << out.error().message;
  return *std::move(out);
}
floats row_of(const expert_map_store& store, std::size_t place, std::size_t layer) {
  floats out(store.experts());
  store.read_row(place, layer, out);
  return out;
}
floats map_of(const expert_map_store& store, std::size_t place) {
  floats out;
  for (std::size_t l = 0; l < store.layers(); ++l) {
    const auto row = row_of(store, place, l);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}
ids tokens_of(const expert_map_store& store) {
  ids out;
  for (std::size_t i = 0; i < store.size(); ++i) out.push_back(store.token(i));
  return out;
}

TEST(expert_map_store, keeps_maps_and_their_tokens) {
  for (const auto storage : storages) {
    auto store = made(small, {.capacity = 3, .storage = storage});
    EXPECT_EQ(store.size(), 0U);
    EXPECT_EQ(store.capacity(), 3U);
    EXPECT_EQ(store.insert(floats{0.25F, 0.75F, 0.5F, 0.5F, 1, 0, 0, 1}, ids{7, -5}), status::ok);
    EXPECT_THAT(tokens_of(store), ElementsAre(7, expert_map_store::no_token));
    EXPECT_THAT(map_of(store, 0), Pointwise(FloatEq(), floats{0.25F, 0.75F, 0.5F, 0.5F}));
    EXPECT_THAT(map_of(store, 1), Pointwise(FloatEq(), floats{1, 0, 0, 1}));
    // 1 / sqrt(.0625 + .5625) and, with the second layer, 1 / sqrt(.625 + .5).
    EXPECT_FLOAT_EQ(store.inverse_norms(0)[0], 1.0F / std::sqrt(0.625F));
    EXPECT_FLOAT_EQ(store.inverse_norms(1)[0], 1.0F / std::sqrt(1.125F));
    EXPECT_EQ(store.insert({}, {}), status::ok);
    EXPECT_EQ(store.size(), 2U);
  }
}

TEST(expert_map_store, rows_are_divided_by_their_sums) {
  auto store = made(small, {});
  EXPECT_EQ(store.insert(floats{0.5F, 0.5078125F, 0.5F, 0.5F}, ids{1}), status::ok);
  EXPECT_THAT(row_of(store, 0, 0),
              ElementsAre(FloatEq(0.5F / 1.0078125F), FloatEq(0.5078125F / 1.0078125F)));
}

TEST(expert_map_store, an_invalid_map_is_refused_without_effect) {
  auto store = made(small, {.capacity = 2});
  ASSERT_EQ(store.insert(floats{0.25F, 0.75F, 0.5F, 0.5F}, ids{1}), status::ok);
  const auto changes = store.changes();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [maps, tokens] : std::vector<std::pair<floats, ids>>{
           {{0.5F, 0.5F, 0.5F, 0.52F}, {1}},    // a sum of 1.02
           {{0.5F, 0.5F, 0.5F, 0.48F}, {1}},    // of 0.98
           {{1, 0, 0, 1, 0, 0, 0, 1}, {1, 2}},  // the second map's first row is of zeros
           {{-0.25F, 1.25F, 0.5F, 0.5F}, {1}},
           {{nan, 0.5F, 0.5F, 0.5F}, {1}},
           {{infinity, 0, 0.5F, 0.5F}, {1}},
           {{0.5F, 0.5F, 0.5F}, {1}},           // not a whole map
           {{0.5F, 0.5F, 0.5F, 0.5F}, {1, 2}},  // one map, two tokens
           {{}, {1}}}) {
    EXPECT_EQ(store.insert(maps, tokens), status::invalid_argument);
    EXPECT_EQ(store.changes(), changes);
    EXPECT_EQ(store.size(), 1U);
    EXPECT_THAT(map_of(store, 0), ElementsAre(0.25F, 0.75F, 0.5F, 0.5F));
  }
}

TEST(expert_map_store, an_8_bit_row_is_its_nearest_codes_divided_by_their_sum) {
  const geometry shape{.layers = 1, .experts = 6, .top_k = 1};
  support::random_source random(7);
  auto store = made(shape, {.capacity = 40, .storage = map_storage::int8});
  const auto maps = support::repeating_maps(random, 40, 1, 6, 40, 0.0);
  ASSERT_EQ(store.insert(maps, ids(40, 0)), status::ok);
  for (std::size_t p = 0; p < 40; ++p) {
    const auto row = support::row_at(maps, p, 6);
    const double highest = *std::ranges::max_element(row);
    std::vector<double> codes;
    double sum = 0;
    for (const double share : row) sum += codes.emplace_back(std::round(share / highest * 255));
    const auto found = row_of(store, p, 0);
    for (std::size_t e = 0; e < 6; ++e) EXPECT_NEAR(found[e], codes[e] / sum, 1e-6);
  }
}

TEST(expert_map_store, when_full_the_oldest_map_is_replaced) {
  auto store = made(small, {.capacity = 2});
  const auto insert = [&](std::int32_t token) {
    EXPECT_EQ(store.insert(floats{1, 0, 0, 1}, ids{token}), status::ok);
  };
  insert(1);
  insert(2);
  const auto first = store.generation(0);
  const auto second = store.generation(1);
  insert(3);
  EXPECT_THAT(tokens_of(store), ElementsAre(3, 2));
  EXPECT_GT(store.generation(0), second);
  EXPECT_GT(second, first);
  EXPECT_EQ(store.generation(1), second);
  EXPECT_EQ(store.changes(), store.generation(0));
  // If a batch has more maps than places, the last ones stay.
  EXPECT_EQ(store.insert(floats{1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0}, ids{4, 5, 6}), status::ok);
  EXPECT_THAT(tokens_of(store), ElementsAre(5, 6));
  EXPECT_THAT(map_of(store, 1), ElementsAre(0, 1, 1, 0));
}

// Norms: map A (1,0,1,0), B (0,1,0,1), C (.5,.5,.5,.5); the new map is (.75,.25,.75,.25).
// Trajectory: with A .75 * 2 / sqrt(2 * 1.25) = .949, with B .316, with C 1 / sqrt(1 * 1.25) = .894.
TEST(expert_map_store, the_most_redundant_map_is_replaced_by_hand) {
  const floats stored{1, 0, 1, 0, 0, 1, 0, 1, 0.5F, 0.5F, 0.5F, 0.5F};
  const floats fresh{0.75F, 0.25F, 0.75F, 0.25F};
  const auto replaced = [&](std::int32_t distance, std::int32_t token) {
    auto store =
        made(small, {.capacity = 3, .replace = map_replacement::redundancy, .distance = distance});
    EXPECT_EQ(store.insert(stored, ids{10, 11, 12}), status::ok);
    EXPECT_EQ(store.insert(fresh, ids{token}), status::ok);
    const auto tokens = tokens_of(store);
    EXPECT_THAT(map_of(store, static_cast<std::size_t>(
                                  std::find(tokens.begin(), tokens.end(), token) - tokens.begin())),
                Pointwise(FloatEq(), fresh));
    for (std::size_t i = 0; i < 3; ++i)
      if (store.generation(i) == store.changes()) return i;
    return std::size_t{3};
  };
  EXPECT_EQ(replaced(0, 11), 0U) << "d = 0: the trajectory alone";
  EXPECT_EQ(replaced(1, 99), 0U) << "no token id is alike";
  // d/L = 1/2: B .5 * 1 + .5 * .316 = .658, A .474, C .447.
  EXPECT_EQ(replaced(1, 11), 1U);
  EXPECT_EQ(replaced(1, 12), 2U);
  // d = L: the semantic score alone; without one all are 0, and the lowest place goes.
  EXPECT_EQ(replaced(2, 12), 2U);
  EXPECT_EQ(replaced(2, 99), 0U);
  EXPECT_EQ(replaced(9, 12), 2U) << "more than L counts as L";
}

TEST(expert_map_store, a_batch_replaces_an_old_map_at_most_once) {
  for (const auto storage : storages) {
    auto store = made(
        small,
        {.capacity = 3, .storage = storage, .replace = map_replacement::redundancy, .distance = 0});
    ASSERT_EQ(store.insert(floats{1, 0, 1, 0, 0, 1, 0, 1}, ids{1, 2}), status::ok);
    // The first takes the free place. The next two would both replace map 1; a new map is not replaced.
    ASSERT_EQ(store.insert(floats{0.75F, 0.25F, 0.75F, 0.25F, 0.75F, 0.25F, 0.75F, 0.25F, 0.75F,
                                  0.25F, 0.75F, 0.25F},
                           ids{3, 4, 5}),
              status::ok);
    EXPECT_THAT(tokens_of(store), ElementsAre(4, 5, 3));
    // The fourth finds no old map to replace: it is dropped.
    ASSERT_EQ(store.insert(floats{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1}, ids{6, 7, 8, 9}),
              status::ok);
    EXPECT_THAT(tokens_of(store), ElementsAre(6, 7, 8));
  }
}

TEST(expert_map_store, redundancy_agrees_with_the_rule_written_out) {
  const geometry shape{.layers = 3, .experts = 5, .top_k = 1};
  support::random_source random(8);
  floats table(6 * 3);
  for (auto& x : table) x = static_cast<float>(support::signed_uniform(random));
  auto store = made(shape, {.capacity = 40,
                            .replace = map_replacement::redundancy,
                            .distance = 1,
                            .embeddings = table,
                            .embedding_width = 3});
  std::vector<floats> maps(40);
  ids tokens(40, -1);
  std::size_t size = 0;
  for (int n = 0; n < 60; ++n) {
    const auto batch = 1 + random.below(20);
    const auto fresh = support::repeating_maps(random, batch, 3, 5, 4, 0.4);
    ids of(batch);
    for (auto& id : of) id = random.id_below(8);  // two of them are in no table
    ASSERT_EQ(store.insert(fresh, of), status::ok);
    std::vector<bool> is_old(40, false);
    std::fill_n(is_old.begin(), size, true);
    for (std::size_t i = 0; i < batch; ++i) {
      const auto map = std::span(fresh).subspan(i * 15, 15);
      std::size_t place = size;
      if (size < 40) {
        ++size;
      } else {
        double most = -2;
        place = 40;
        for (std::size_t old = 0; old < 40; ++old) {
          if (!is_old[old]) continue;
          double semantic = of[i] == tokens[old] ? 1.0 : 0.0;
          if (of[i] != tokens[old] && of[i] < 6 && tokens[old] < 6)
            semantic = support::cosine(
                std::span(table).subspan(3 * static_cast<std::size_t>(of[i]), 3),
                std::span(table).subspan(3 * static_cast<std::size_t>(tokens[old]), 3));
          const double score = semantic / 3 + support::cosine(map, maps[old]) * 2 / 3;
          if (score > most) {
            most = score;
            place = old;
          }
        }
      }
      ASSERT_LT(place, 40U);
      is_old[place] = false;
      maps[place].assign(map.begin(), map.end());
      tokens[place] = of[i];
    }
    ASSERT_THAT(tokens_of(store), testing::ElementsAreArray(std::span(tokens).first(size)));
    for (std::size_t p = 0; p < size; ++p)
      ASSERT_THAT(map_of(store, p), Pointwise(testing::FloatNear(1e-6F), maps[p]));
  }
}

TEST(expert_map_store, the_same_token_id_matches_its_oldest_map) {
  auto store = made(small, {.capacity = 3});
  ASSERT_EQ(store.insert(floats{1, 0, 1, 0, 0, 1, 0, 1, 0.5F, 0.5F, 0.5F, 0.5F}, ids{4, 5, 4}),
            status::ok);
  EXPECT_EQ(store.semantic_match(4).place, 0U);
  EXPECT_EQ(store.semantic_match(4).score, 1.0F);
  EXPECT_EQ(store.semantic_match(5).place, 1U);
  EXPECT_EQ(store.semantic_match(6).place, expert_map_store::none);
  EXPECT_EQ(store.semantic_match(-1).place, expert_map_store::none);
  ASSERT_EQ(store.insert(floats{1, 0, 1, 0}, ids{4}), status::ok);  // in place 0
  EXPECT_EQ(store.semantic_match(4).place, 2U) << "the older one now";
}

TEST(expert_map_store, the_nearest_embedding_replaces_a_token_without_maps) {
  const floats table{1, 0, 0, 1, 0.8F, 0.6F, 0.8F, 0.6F, -1, 0};
  auto store = made(small, {.capacity = 5, .embeddings = table, .embedding_width = 2});
  EXPECT_EQ(store.semantic_match(0).place, expert_map_store::none) << "nothing is stored";
  floats maps;
  for (int n = 0; n < 5; ++n) maps.insert(maps.end(), {1, 0, 1, 0});
  ASSERT_EQ(store.insert(maps, ids{1, 3, 2, 90, 3}), status::ok);
  EXPECT_EQ(store.semantic_match(0).place, 1U) << "tokens 3 and 2 are as near: the lower place";
  EXPECT_FLOAT_EQ(store.semantic_match(0).score, 0.8F);
  EXPECT_EQ(store.semantic_match(4).place, 0U);
  EXPECT_LT(store.semantic_match(4).score, 0.001F);
  EXPECT_EQ(store.semantic_match(80).place, expert_map_store::none) << "in no table";
  EXPECT_EQ(store.semantic_match(90).place, 3U);
  EXPECT_EQ(store.semantic_match(-1).place, expert_map_store::none);
  // The first two maps are replaced: token 2's map is now the lowest; token 3's oldest map is the last one.
  ASSERT_EQ(store.insert(floats{1, 0, 1, 0, 1, 0, 1, 0}, ids{90, 3}), status::ok);
  EXPECT_EQ(store.semantic_match(0).place, 2U);
  EXPECT_EQ(store.semantic_match(3).place, 4U) << "the oldest, not the lowest place";
}

TEST(expert_map_store, any_capacity_keeps_the_last_maps) {
  const geometry shape{.layers = 2, .experts = 3, .top_k = 1};
  for (const auto storage : storages)
    for (const std::uint32_t capacity : {1U, 2U, 15U, 16U, 17U, 33U}) {
      support::random_source random(capacity);
      auto store = made(shape, {.capacity = capacity, .storage = storage});
      std::deque<floats> last;
      for (std::int32_t n = 0; n < 80; ++n) {
        const auto map = support::repeating_maps(random, 1, 2, 3, 1, 1.0);
        ASSERT_EQ(store.insert(map, ids{n}), status::ok);
        last.push_back(map);
        if (last.size() > capacity) last.pop_front();
        ASSERT_EQ(store.size(), last.size());
        for (std::size_t p = 0; p < store.size(); ++p) {
          const auto age = static_cast<std::size_t>(n - store.token(p));
          const float off = storage == map_storage::fp32   ? 1e-6F
                            : storage == map_storage::fp16 ? 0x1p-11F
                                                           : 0x1p-7F;
          ASSERT_THAT(map_of(store, p),
                      Pointwise(testing::FloatNear(off), last[last.size() - 1 - age]));
        }
      }
    }
}

TEST(expert_map_store, a_wrong_configuration_is_refused) {
  const auto why = [](const geometry& shape, const expert_map_store::config& options) {
    return support::why(expert_map_store::create(shape, options));
  };
  EXPECT_EQ(why(small, {.capacity = 0}), "expert_map capacity = 0, accepted: 1..16777216");
  EXPECT_EQ(why(small, {.capacity = 1U << 25U}),
            "expert_map capacity = 33554432, accepted: 1..16777216");
  EXPECT_EQ(why(small, {.storage = static_cast<map_storage>(3)}),
            "expert_map storage = 3, accepted: 0 (fp32), 1 (fp16), 2 (int8)");
  EXPECT_EQ(why(small, {.replace = static_cast<map_replacement>(2)}),
            "expert_map replace = 2, accepted: 0 (fifo), 1 (redundancy)");
  EXPECT_EQ(why(small, {.distance = -1}), "expert_map distance = -1, accepted: 0 or more");
  EXPECT_THAT(why({.layers = 0, .experts = 2, .top_k = 1}, {}), HasSubstr("layers = 0"));
  EXPECT_EQ(why({.layers = 1, .experts = 65537, .top_k = 1}, {}),
            "expert maps of 65537 experts, accepted: 1..65536");
  const floats table{1, 2, 3};
  EXPECT_THAT(why(small, {.embeddings = table, .embedding_width = 2}),
              HasSubstr("embeddings of 3 values"));
}

TEST(expert_map_store, sizes_that_no_machine_has_are_refused) {
  for (const auto storage : storages)
    for (const std::int32_t experts : {16, 4096, 65536}) {
      const geometry shape{.layers = 4096, .experts = experts, .top_k = 1};
      EXPECT_THAT(support::why(
                      expert_map_store::create(shape, {.capacity = 1U << 24U, .storage = storage})),
                  HasSubstr("accepted: at most 17179869184"));
    }
  const geometry flat{.layers = 1 << 28, .experts = 1, .top_k = 1};
  EXPECT_THAT(support::why(expert_map_store::create(flat, {.capacity = 1U << 24U})),
              HasSubstr("16777216 expert maps of 268435456 layers x 1 experts need"));
}

}  // namespace
}  // namespace hotset::expert_map_store_test
