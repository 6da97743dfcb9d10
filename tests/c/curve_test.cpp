// SPDX-License-Identifier: Apache-2.0
// Miss curves of the C interface equal the C++ library's, and so do divisions of a budget by them.

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "random_source.hpp"

namespace hotset::curve_test {
namespace {

using support::open;
using support::refusal_of;
using testing::ElementsAre;
using testing::HasSubstr;

hotset_curve_options options(std::int32_t scope) {
  auto out = support::options_of<hotset_curve_options>(2, 8, 2);
  out.max_tokens = 2;
  out.scope = scope;
  return out;
}
hotset_status observe(hotset_curve* curve, std::int32_t layer, std::uint64_t step,
                      const std::vector<std::int32_t>& ids) {
  const auto view = support::view_of(layer, step, ids);
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
      if (n != 100 && n != 399) continue;  // queried during the run and at the end
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

TEST(c_curve, mistakes_are_reported) {
  auto bad = options(0);
  bad.experts = 0;
  EXPECT_EQ(refusal_of(bad), "experts = 0, accepted: 1 or more");
  EXPECT_EQ(refusal_of(options(7)), "scope = 7, accepted: 0, 1");
  bad = options(0);
  bad.max_tokens = -1;
  EXPECT_EQ(refusal_of(bad), "max_tokens_per_visit = -1, accepted: 1..16777216");
  const auto curve = open(options(HOTSET_SCOPE_SHARED));
  EXPECT_EQ(misses(curve.get(), 0, 4), 0.0) << "nothing was seen";
  double out = 0;
  EXPECT_EQ(hotset_curve_misses(curve.get(), 1, 4, &out), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "layer 1, accepted: 0..0");
  EXPECT_EQ(hotset_curve_misses(nullptr, 0, 4, &out), HOTSET_INVALID_ARGUMENT);
}

hotset_consumer consumer_of(const std::vector<double>& misses, std::uint64_t unit_bytes) {
  hotset_consumer out{};
  out.misses = misses.data();
  out.misses_count = misses.size();
  out.unit_bytes = unit_bytes;
  out.seconds_per_miss = 0.5;
  return out;
}

TEST(c_divide, gives_the_next_byte_to_the_largest_saving) {
  const std::vector<double> steep{10, 4, 1, 0}, flat{3, 2, 1, 0};
  std::vector<hotset_consumer> consumers{consumer_of(steep, 100), consumer_of(flat, 100)};
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
  const std::vector<hotset_consumer> consumers(3, consumer_of(straight, 100));
  std::vector<std::uint64_t> units(3);
  ASSERT_EQ(hotset_divide(consumers.data(), 3, 500, units.data(), nullptr), HOTSET_OK);
  EXPECT_THAT(units, ElementsAre(2, 2, 1));
}

TEST(c_divide, floors_beyond_64_bits_are_no_small_sum) {
  const std::vector<double> table{2, 1, 0};
  std::vector<hotset_consumer> consumers(2, consumer_of(table, std::uint64_t{1} << 63U));
  for (auto& c : consumers) c.min_units = 1;
  std::vector<std::uint64_t> units(2);
  EXPECT_EQ(hotset_divide(consumers.data(), 2, 9, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(),
               "consumer 1: min_units = 1, accepted: fewer than 2^64 bytes in all");
  consumers[0].unit_bytes = 100;
  consumers[1].unit_bytes = 0;  // invalid for every budget
  EXPECT_EQ(hotset_divide(consumers.data(), 2, 9, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
}

TEST(c_divide, mistakes_are_reported) {
  std::vector<std::uint64_t> units(1);
  auto one = consumer_of({}, 1);
  const auto refused = [&](std::size_t count = 1) {
    EXPECT_EQ(hotset_divide(&one, count, 10, units.data(), nullptr), HOTSET_INVALID_ARGUMENT);
    return std::string(hotset_last_error());
  };
  EXPECT_EQ(refused(0), "no consumers, accepted: 1 or more");
  EXPECT_EQ(refused(), "consumer 0 has no misses, accepted: 1 or more");
  const std::vector<double> rising{1, 2};
  one = consumer_of(rising, 1);
  EXPECT_EQ(refused(), "consumer 0: misses[1] = 2, accepted: 0 or more, never rising");
  const std::vector<double> fine{2, 1};
  one.misses = fine.data();
  one.unit_bytes = 0;
  EXPECT_EQ(refused(), "consumer 0: unit_bytes = 0, accepted: 1 or more");
}

}  // namespace
}  // namespace hotset::curve_test
