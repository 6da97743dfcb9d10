// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/expert_map_matcher.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "map_samples.hpp"

namespace hotset::expert_map_matcher_test {
namespace {

using testing::HasSubstr;
using floats = std::vector<float>;
using ids = std::vector<std::int32_t>;

constexpr map_storage storages[] = {map_storage::fp32, map_storage::fp16, map_storage::int8};
constexpr auto none = expert_map_store::none;

std::array<vector_level, 2> levels() { return {vector_level::scalar, best_vector_level()}; }
expert_map_store store_of(const geometry& shape, std::uint32_t capacity, map_storage storage) {
  return expert_map_store::create(shape, {.capacity = capacity, .storage = storage}).value();
}
void insert(expert_map_store& store, std::span<const float> maps) {
  const ids tokens(maps.size() / (store.layers() * store.experts()), 0);
  ASSERT_EQ(store.insert(maps, tokens), status::ok);
}
/// The rows of one layer of maps [tokens, layers, experts].
floats layer_of(const floats& maps, std::size_t layers, std::size_t experts, std::size_t layer) {
  floats out;
  for (std::size_t at = layer * experts; at < maps.size(); at += layers * experts)
    out.insert(out.end(), maps.begin() + static_cast<std::ptrdiff_t>(at),
               maps.begin() + static_cast<std::ptrdiff_t>(at + experts));
  return out;
}

const geometry small{.layers = 2, .experts = 2, .top_k = 1};

// Maps A (1,0,1,0), B (0,1,0,1), C (.5,.5,1,0). The token routes (.75,.25), then (0,1).
// Layer 0: with A .75 / sqrt(.625) = .949, with B .316, with C .5 / sqrt(.625 .5) = .894.
// Both: with A .75 / sqrt(1.625 2) = .416, with B 1.25 / sqrt(1.625 2) = .693, with C .5 / sqrt(1.625 1.5) = .320.
TEST(expert_map_matcher, by_hand) {
  for (const auto storage : storages) {
    auto store = store_of(small, 4, storage);
    insert(store, floats{1, 0, 1, 0, 0, 1, 0, 1, 0.5F, 0.5F, 1, 0});
    auto matcher = expert_map_matcher::create(store, 2).value();
    ASSERT_EQ(matcher.begin(store, 1), status::ok);
    EXPECT_EQ(matcher.best(store, 0).place, none) << "no layer yet";
    ASSERT_EQ(matcher.advance(store, 0, floats{0.75F, 0.25F}), status::ok);
    EXPECT_EQ(matcher.best(store, 0).place, 0U);
    EXPECT_FLOAT_EQ(matcher.best(store, 0).score, 0.75F / std::sqrt(0.625F));
    ASSERT_EQ(matcher.advance(store, 1, floats{0, 1}), status::ok);
    EXPECT_EQ(matcher.best(store, 0).place, 1U);
    EXPECT_FLOAT_EQ(matcher.best(store, 0).score, 1.25F / std::sqrt(1.625F * 2));
  }
}

TEST(expert_map_matcher, an_empty_store_matches_nothing) {
  for (const auto storage : storages) {
    const auto store = store_of(small, 4, storage);
    auto matcher = expert_map_matcher::create(store, 1).value();
    ASSERT_EQ(matcher.begin(store, 1), status::ok);
    ASSERT_EQ(matcher.advance(store, 0, floats{0.5F, 0.5F}), status::ok);
    EXPECT_EQ(matcher.best(store, 0).place, none);
    EXPECT_EQ(matcher.best(store, 0).score, 0.0F);
  }
}

TEST(expert_map_matcher, ties_go_to_the_lower_place) {
  for (const auto storage : storages) {
    const geometry shape{.layers = 3, .experts = 5, .top_k = 1};
    support::random_source random(1);
    auto store = store_of(shape, 100, storage);
    const auto maps = support::repeating_maps(random, 7, 3, 5, 7, 1.0);
    for (int n = 0; n < 10; ++n) insert(store, maps);  // each map ten times
    auto matcher = expert_map_matcher::create(store, 7).value();
    ASSERT_EQ(matcher.begin(store, 7), status::ok);
    for (std::size_t l = 0; l < 3; ++l) {
      ASSERT_EQ(matcher.advance(store, l, layer_of(maps, 3, 5, l)), status::ok);
      for (std::size_t t = 0; t < 7; ++t) {
        EXPECT_EQ(matcher.best(store, t).place, t) << l;
        EXPECT_NEAR(matcher.best(store, t).score, 1.0, 1e-3);
      }
    }
  }
}

/// Cosine of a stored map's first layers with a token's, computed from scratch.
double cosine(const expert_map_store& store, std::size_t place, std::span<const float> map,
              std::size_t layers) {
  const auto experts = store.experts();
  floats stored(layers * experts);
  for (std::size_t l = 0; l < layers; ++l)
    store.read_row(place, l, std::span(stored).subspan(l * experts, experts));
  return support::cosine(stored, map);
}

/// Every token's best map is the best of all permitted maps, except for ties within rounding.
void expect_bests(const expert_map_store& store, expert_map_matcher& matcher, const floats& maps,
                  std::size_t tokens, std::size_t layers,
                  const std::vector<bool>& is_skipped = {}) {
  const auto size = store.layers() * store.experts();
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto map = std::span(maps).subspan(t * size, size);
    double most = -1;
    std::size_t wanted = none;
    for (std::size_t place = 0; place < store.size(); ++place) {
      if (place < is_skipped.size() && is_skipped[place]) continue;
      if (const auto score = cosine(store, place, map, layers); score > most) {
        most = score;
        wanted = place;
      }
    }
    const auto found = matcher.best(store, t);
    if (wanted == none) {
      ASSERT_EQ(found.place, none);
      continue;
    }
    ASSERT_NE(found.place, none);
    ASSERT_NEAR(found.score, most, 1e-5 * most);
    if (found.place == wanted) continue;
    ASSERT_FALSE(found.place < is_skipped.size() && is_skipped[found.place]);
    ASSERT_NEAR(cosine(store, found.place, map, layers), most, 1e-5 * most)
        << "place " << found.place << " instead of " << wanted;
  }
}

TEST(expert_map_matcher, running_sums_are_the_prefixes_computed_again) {
  for (const auto& [layers, experts, count] :
       {std::tuple(8, 8, 150), std::tuple(4, 64, 70), std::tuple(3, 60, 49), std::tuple(4, 3, 20),
        std::tuple(12, 1, 5), std::tuple(2, 128, 100)})
    for (const auto storage : storages)
      for (const double noise : {0.05, 1.0}) {
        const geometry shape{.layers = layers, .experts = experts, .top_k = 1};
        const auto l_count = static_cast<std::size_t>(layers);
        const auto e_count = static_cast<std::size_t>(experts);
        const auto m_count = static_cast<std::size_t>(count);
        constexpr std::size_t tokens = 5;
        support::random_source random(m_count);
        const auto all =
            support::repeating_maps(random, m_count + tokens, l_count, e_count, 9, noise);
        const auto split = static_cast<std::ptrdiff_t>(m_count * l_count * e_count);
        const floats maps(all.begin() + split, all.end());
        auto store = store_of(shape, static_cast<std::uint32_t>(count + 3), storage);
        insert(store, std::span(all).first(static_cast<std::size_t>(split)));
        for (const auto level : levels()) {
          auto matcher = expert_map_matcher::create(store, tokens, level).value();
          ASSERT_EQ(matcher.begin(store, tokens), status::ok);
          for (std::size_t l = 0; l < l_count; ++l) {
            ASSERT_EQ(matcher.advance(store, l, layer_of(maps, l_count, e_count, l)), status::ok);
            expect_bests(store, matcher, maps, tokens, l + 1);
          }
        }
      }
}

TEST(expert_map_matcher, all_levels_and_numbers_of_tokens_give_the_same_places_and_scores) {
  const geometry shape{.layers = 6, .experts = 20, .top_k = 1};
  support::random_source random(5);
  for (const auto storage : storages) {
    auto store = store_of(shape, 70, storage);
    insert(store, support::repeating_maps(random, 61, 6, 20, 12, 0.3));
    const auto maps = support::repeating_maps(random, 11, 6, 20, 11, 0.3);
    auto together = expert_map_matcher::create(store, 11, vector_level::scalar).value();
    ASSERT_EQ(together.begin(store, 11), status::ok);
    for (const auto level : levels()) {
      for (std::size_t t = 0; t < 11; ++t) {
        ASSERT_EQ(together.begin(store, 11), status::ok);
        auto alone = expert_map_matcher::create(store, 1, level).value();
        ASSERT_EQ(alone.begin(store, 1), status::ok);
        for (std::size_t l = 0; l < 6; ++l) {
          const auto rows = layer_of(maps, 6, 20, l);
          ASSERT_EQ(together.advance(store, l, rows), status::ok);
          ASSERT_EQ(alone.advance(store, l, std::span(rows).subspan(t * 20, 20)), status::ok);
          ASSERT_EQ(alone.best(store, 0).place, together.best(store, t).place);
          ASSERT_EQ(alone.best(store, 0).score, together.best(store, t).score);
        }
      }
    }
  }
}

TEST(expert_map_matcher, a_replaced_map_never_keeps_old_sums) {
  for (const auto storage : storages) {
    const geometry shape{.layers = 5, .experts = 4, .top_k = 1};
    support::random_source random(11);
    auto store = store_of(shape, 30, storage);
    insert(store, support::repeating_maps(random, 25, 5, 4, 25, 0.0));
    auto matcher = expert_map_matcher::create(store, 3).value();
    for (int step = 0; step < 60; ++step) {
      const auto maps = support::repeating_maps(random, 3, 5, 4, 3, 0.0);
      std::vector<bool> is_skipped(30, false);
      ASSERT_EQ(matcher.begin(store, 3), status::ok);
      const auto began = store.changes();
      for (std::size_t l = 0; l < 5; ++l) {
        ASSERT_EQ(matcher.advance(store, l, layer_of(maps, 5, 4, l)), status::ok);
        expect_bests(store, matcher, maps, 3, l + 1, is_skipped);
        if (random.one_in(2)) continue;
        insert(store, support::repeating_maps(random, 1 + random.below(4), 5, 4, 4, 0.0));
        for (std::size_t p = 0; p < 30; ++p) is_skipped[p] = store.generation(p) > began;
        if (random.one_in(2)) expect_bests(store, matcher, maps, 3, l + 1, is_skipped);
      }
    }
  }
}

TEST(expert_map_matcher, a_token_with_a_wrong_row_matches_nothing_and_disturbs_no_other) {
  for (const auto storage : storages) {
    const geometry shape{.layers = 3, .experts = 4, .top_k = 1};
    support::random_source random(3);
    auto store = store_of(shape, 30, storage);
    insert(store, support::repeating_maps(random, 30, 3, 4, 30, 0.0));
    auto maps = support::repeating_maps(random, 2, 3, 4, 2, 0.0);
    auto matcher = expert_map_matcher::create(store, 2).value();
    ASSERT_EQ(matcher.begin(store, 2), status::ok);
    for (std::size_t l = 0; l < 3; ++l) {
      auto rows = layer_of(maps, 3, 4, l);
      if (l == 1) rows[0] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_EQ(matcher.advance(store, l, rows), status::ok);
      EXPECT_EQ(matcher.best(store, 0).place == none, l > 0);
      const floats second(maps.begin() + 12, maps.end());
      double most = 0;
      for (std::size_t p = 0; p < 30; ++p) most = std::max(most, cosine(store, p, second, l + 1));
      EXPECT_NEAR(matcher.best(store, 1).score, most, 1e-5);
    }
  }
}

TEST(expert_map_matcher, a_visit_out_of_order_is_refused_without_effect) {
  auto store = store_of(small, 4, map_storage::fp32);
  insert(store, floats{1, 0, 1, 0});
  auto matcher = expert_map_matcher::create(store, 2).value();
  EXPECT_EQ(matcher.begin(store, 3), status::visit_too_large);
  EXPECT_EQ(matcher.advance(store, 0, floats{1, 0}), status::invalid_visit) << "no tokens";
  ASSERT_EQ(matcher.begin(store, 2), status::ok);
  const floats rows{1, 0, 0, 1};
  EXPECT_EQ(matcher.advance(store, 1, rows), status::invalid_visit);
  EXPECT_EQ(matcher.advance(store, 0, std::span(rows).first(2)), status::invalid_visit);
  ASSERT_EQ(matcher.advance(store, 0, rows), status::ok);
  EXPECT_EQ(matcher.advance(store, 0, rows), status::invalid_visit);
  ASSERT_EQ(matcher.advance(store, 1, rows), status::ok);
  EXPECT_EQ(matcher.advance(store, 2, rows), status::invalid_visit);
  EXPECT_FLOAT_EQ(matcher.best(store, 0).score, 1.0F);
}

TEST(expert_map_matcher, sizes_that_no_machine_has_are_refused) {
  const auto store = store_of({.layers = 4, .experts = 64, .top_k = 1}, 1600, map_storage::fp32);
  EXPECT_THAT(expert_map_matcher::create(store, std::size_t{1} << 24U).error().message,
              HasSubstr("expert map matcher of 16777216 tokens and 1600 maps needs 17179869185"));
  EXPECT_FALSE(expert_map_matcher::create(store, 0));
  EXPECT_FALSE(expert_map_matcher::create(store, ~std::size_t{0}));
}

}  // namespace
}  // namespace hotset::expert_map_matcher_test
