// SPDX-License-Identifier: Apache-2.0
// Miss curves of the C interface are the library's, and bytes are divided by them as it divides them.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset.h"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "random_source.hpp"

namespace hotset::curve_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct closer {
  void operator()(hotset_curve* c) const { hotset_curve_destroy(c); }
};
using curve_handle = std::unique_ptr<hotset_curve, closer>;

hotset_curve_options options(std::int32_t scope) {
  hotset_curve_options out{};
  out.struct_size = sizeof out;
  out.layers = 2;
  out.experts = 8;
  out.top_k = 2;
  out.max_tokens = 2;
  out.scope = scope;
  return out;
}
curve_handle open(const hotset_curve_options& how) {
  hotset_curve* out = nullptr;
  EXPECT_EQ(hotset_curve_create(&how, &out), HOTSET_OK) << hotset_last_error();
  return curve_handle(out);
}
hotset_status observe(hotset_curve* curve, std::int32_t layer, std::uint64_t step,
                      const std::vector<std::int32_t>& ids) {
  hotset_view view{};
  view.struct_size = sizeof view;
  view.layer = layer;
  view.step = step;
  view.tokens = ids.size() / 2;
  view.experts = ids.data();
  return hotset_curve_observe(curve, &view);
}
double misses(hotset_curve* curve, std::int32_t layer, std::size_t slots) {
  double out = -1;
  EXPECT_EQ(hotset_curve_misses(curve, layer, slots, &out), HOTSET_OK) << hotset_last_error();
  return out;
}

TEST(c_curve, is_the_curve_of_the_library) {
  for (const auto scope : {HOTSET_SCOPE_PER_LAYER, HOTSET_SCOPE_SHARED}) {
    const auto curve = open(options(scope));
    const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 2};
    const bool is_shared = scope == HOTSET_SCOPE_SHARED;
    curve_recorder same(shape, is_shared ? cache_scope::shared : cache_scope::per_layer);
    support::random_source random(9);
    for (std::uint64_t n = 0; n < 400; ++n) {
      const std::vector<std::int32_t> ids{random.id_below(8), random.id_below(8),
                                          random.id_below(4), random.id_below(4)};
      ASSERT_EQ(observe(curve.get(), static_cast<std::int32_t>(n % 2), n / 2, ids), HOTSET_OK);
      routing_view view;
      view.layer = layer_id{static_cast<std::int32_t>(n % 2)};
      view.step = n / 2;
      view.experts = ids;
      same.observe(view);
      if (n != 100 && n != 399) continue;  // asked in between, and at the end
      for (std::size_t pool = 0; pool < same.histograms().size(); ++pool) {
        const auto all = same.histograms()[pool].misses();
        std::size_t most = 0;
        ASSERT_EQ(hotset_curve_most_slots(curve.get(), static_cast<std::int32_t>(pool), &most),
                  HOTSET_OK);
        EXPECT_EQ(most, all.size() - 1);
        for (std::size_t slots = 0; slots < all.size() + 2; ++slots)
          ASSERT_DOUBLE_EQ(misses(curve.get(), static_cast<std::int32_t>(pool), slots),
                           static_cast<double>(all[std::min(slots, all.size() - 1)]) /
                               static_cast<double>(same.steps()));
      }
    }
  }
}

TEST(c_curve, mistakes_are_told) {
  auto bad = options(0);
  bad.experts = 0;
  hotset_curve* none = nullptr;
  EXPECT_EQ(hotset_curve_create(&bad, &none), HOTSET_INVALID_CONFIG);
  bad = options(7);
  EXPECT_EQ(hotset_curve_create(&bad, &none), HOTSET_INVALID_CONFIG);
  EXPECT_STREQ(hotset_last_error(), "scope = 7, accepted: 0, 1");
  bad = options(0);
  bad.max_tokens = -1;
  EXPECT_EQ(hotset_curve_create(&bad, &none), HOTSET_INVALID_CONFIG);
  EXPECT_STREQ(hotset_last_error(), "max_tokens_per_visit = -1, accepted: 1..16777216");
  const auto curve = open(options(HOTSET_SCOPE_SHARED));
  EXPECT_EQ(misses(curve.get(), 0, 4), 0.0) << "nothing was seen";
  double out = 0;
  EXPECT_EQ(hotset_curve_misses(curve.get(), 1, 4, &out), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "layer 1, accepted: 0..0");
  EXPECT_EQ(observe(curve.get(), 2, 0, {1, 2}), HOTSET_INVALID_VISIT);
  EXPECT_EQ(observe(curve.get(), 0, 0, {1, 2, 3, 4, 5, 6}), HOTSET_VISIT_TOO_LARGE);
  EXPECT_EQ(hotset_curve_misses(nullptr, 0, 4, &out), HOTSET_INVALID_ARGUMENT);
}

TEST(c_divide, gives_the_next_byte_to_who_saves_most) {
  const std::vector<double> steep{10, 4, 1, 0}, flat{3, 2, 1, 0};
  std::vector<hotset_consumer> consumers(2);
  consumers[0].misses = steep.data();
  consumers[0].misses_count = steep.size();
  consumers[1].misses = flat.data();
  consumers[1].misses_count = flat.size();
  for (auto& c : consumers) {
    c.unit_bytes = 100;
    c.seconds_per_miss = 0.5;
  }
  std::vector<std::uint64_t> units(2);
  double seconds = 0;
  ASSERT_EQ(hotset_divide(consumers.data(), 2, 250, units.data(), &seconds), HOTSET_OK)
      << hotset_last_error();
  EXPECT_THAT(units, ElementsAre(2, 0));
  EXPECT_DOUBLE_EQ(seconds, 0.5 * (1 + 3));
  consumers[1].min_units = 1;
  ASSERT_EQ(hotset_divide(consumers.data(), 2, 250, units.data(), nullptr), HOTSET_OK);
  EXPECT_THAT(units, ElementsAre(1, 1));
  EXPECT_EQ(hotset_divide(consumers.data(), 2, 99, units.data(), nullptr), HOTSET_EXCEEDS_MEMORY);
  EXPECT_THAT(hotset_last_error(), HasSubstr("accepted: 100 bytes or more"));
}

TEST(c_divide, equal_consumers_get_equal_shares) {
  const std::vector<double> straight{4, 3, 2, 1, 0};
  hotset_consumer one{};
  one.misses = straight.data();
  one.misses_count = straight.size();
  one.unit_bytes = 100;
  one.seconds_per_miss = 1;
  const std::vector<hotset_consumer> consumers(3, one);
  std::vector<std::uint64_t> units(3);
  ASSERT_EQ(hotset_divide(consumers.data(), 3, 500, units.data(), nullptr), HOTSET_OK);
  EXPECT_THAT(units, ElementsAre(2, 2, 1));
}

TEST(c_divide, takes_curves_of_visits_beside_tables) {
  const auto curve = open(options(HOTSET_SCOPE_PER_LAYER));
  for (std::uint64_t step = 0; step < 50; ++step)
    for (std::int32_t layer = 0; layer < 2; ++layer)
      ASSERT_EQ(observe(curve.get(), layer, step,
                        {static_cast<std::int32_t>(layer == 0 ? step % 6 : 1), 0}),
                HOTSET_OK);
  std::vector<hotset_consumer> consumers(2);
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    auto& c = consumers[static_cast<std::size_t>(layer)];
    c.curve = curve.get();
    c.layer = layer;
    c.unit_bytes = 1;
    c.seconds_per_miss = 1;
    c.min_units = 2;
    c.max_units = 7;
  }
  std::vector<std::uint64_t> units(2);
  ASSERT_EQ(hotset_divide(consumers.data(), 2, 9, units.data(), nullptr), HOTSET_OK)
      << hotset_last_error();
  EXPECT_EQ(units[0], 6U) << "six experts in turn";
  EXPECT_EQ(units[1], 2U);
}

// A division reads curves that another thread shows visits to: the handle belongs to one of them at a time.
TEST(c_divide, holds_the_curves_that_it_reads) {
  const auto curve = open(options(HOTSET_SCOPE_PER_LAYER));
  ASSERT_EQ(observe(curve.get(), 0, 0, {1, 2}), HOTSET_OK);
  std::vector<hotset_consumer> consumers(2);
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    auto& c = consumers[static_cast<std::size_t>(layer)];
    c.curve = curve.get();
    c.layer = layer;
    c.unit_bytes = 1;
    c.seconds_per_miss = 1;
    c.min_units = 2;
  }
  std::atomic<bool> ended = false;
  std::size_t wrong = 0;
  std::thread observer([&] {
    for (std::uint64_t step = 1; !ended; ++step) {
      const auto now = observe(curve.get(), static_cast<std::int32_t>(step % 2), step,
                               {static_cast<std::int32_t>(step % 8), 0});
      if (now != HOTSET_OK && now != HOTSET_WRONG_THREAD) ++wrong;
    }
  });
  std::size_t divided = 0;
  while (divided < 300) {
    std::vector<std::uint64_t> units(2);
    const auto now = hotset_divide(consumers.data(), 2, 9, units.data(), nullptr);
    if (now == HOTSET_OK) {
      ++divided;
      EXPECT_LE(units[0] + units[1], 9U);
    } else {
      ASSERT_EQ(now, HOTSET_WRONG_THREAD) << hotset_last_error();
    }
  }
  ended = true;
  observer.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(c_divide, floors_beyond_64_bits_are_no_small_sum) {
  const std::vector<double> table{2, 1, 0};
  std::vector<hotset_consumer> consumers(2);
  for (auto& c : consumers) {
    c.misses = table.data();
    c.misses_count = table.size();
    c.unit_bytes = std::uint64_t{1} << 63U;
    c.min_units = 1;
  }
  std::vector<std::uint64_t> units(2);
  EXPECT_EQ(hotset_divide(consumers.data(), 2, 9, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(),
               "consumer 1: min_units = 1, accepted: fewer than 2^64 bytes in all");
  consumers[0].unit_bytes = 100;
  consumers[1].unit_bytes = 0;  // wrong whatever the budget
  EXPECT_EQ(hotset_divide(consumers.data(), 2, 9, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
}

TEST(c_divide, mistakes_are_told) {
  std::vector<std::uint64_t> units(1);
  hotset_consumer one{};
  one.unit_bytes = 1;
  const auto refused = [&](std::size_t count = 1) {
    EXPECT_EQ(hotset_divide(&one, count, 10, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
    return std::string(hotset_last_error());
  };
  EXPECT_EQ(refused(0), "no consumers, accepted: 1 or more");
  EXPECT_EQ(refused(), "consumer 0 has no curve, accepted: one, or misses");
  const std::vector<double> rising{1, 2};
  one.misses = rising.data();
  one.misses_count = 2;
  EXPECT_EQ(refused(), "consumer 0: misses[1] = 2, accepted: 0 or more, never rising");
  const std::vector<double> fine{2, 1};
  one.misses = fine.data();
  one.unit_bytes = 0;
  EXPECT_EQ(refused(), "consumer 0: unit_bytes = 0, accepted: 1 or more");
}

}  // namespace
}  // namespace hotset::curve_test
