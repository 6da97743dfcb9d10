// SPDX-License-Identifier: Apache-2.0
// Every miss curve returns a value for every number of slots, up to the largest.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/planning/curve/decayed_histogram.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/planning/curve/sampled_reuse_distance.hpp"
#include "random_source.hpp"

namespace hotset::miss_curve_conformance_test {
namespace {

constexpr auto most = std::numeric_limits<std::size_t>::max();

struct sampled {
  static std::vector<sampled_miss_curve> curves() {
    std::vector<sampled_miss_curve> out(1);
    for (const std::size_t width : {1U, 2U, 7U})
      for (const auto& misses :
           {std::vector<double>{3}, std::vector<double>{3, 1}, std::vector<double>{9, 9, 4, 0.5}})
        out.emplace_back(misses, width);
    return out;
  }
};
struct decayed {
  static std::vector<decayed_histogram> curves() {
    std::vector<decayed_histogram> out(1);
    support::random_source random(5);
    for (const std::size_t slots : {1U, 2U, 7U, 20U}) {
      out.push_back(decayed_histogram::create({.slots = slots}).value());
      for (int burst = 0; burst < 3; ++burst) {
        for (int n = 0; n < 40; ++n)
          out.back().add(static_cast<std::uint32_t>(random.below(2 * slots + 2)));
        out.back().end_burst();
      }
    }
    return out;
  }
};
struct reused {
  static std::vector<sampled_miss_curve> curves() {
    support::random_source random(6);
    auto distances = sampled_reuse_distance::create({.keys = 50, .rate = 1}).value();
    for (int n = 0; n < 500; ++n) {
      const std::vector<std::int32_t> id{random.id_below(50)};
      distances.visit(id, 0, 1);
    }
    return {distances.curve()};
  }
};
struct referred {
  static std::vector<miss_curve_ref> curves() {
    static const auto seen = sampled::curves();
    std::vector<miss_curve_ref> out(1);
    for (const auto& curve : seen) out.emplace_back(curve);
    return out;
  }
};

template <class Kind>
class each_curve : public testing::Test {};
using kinds = testing::Types<sampled, decayed, reused, referred>;
TYPED_TEST_SUITE(each_curve, kinds);

TYPED_TEST(each_curve, never_grows_and_ends_at_max_slots) {
  for (const auto& curve : TypeParam::curves()) {
    static_assert(miss_curve<std::remove_cvref_t<decltype(curve)>>);
    const auto last = curve.max_slots();
    auto before = curve.misses(0);
    for (std::size_t slots = 0; slots <= std::min<std::size_t>(last, 200); ++slots) {
      const auto now = curve.misses(slots);
      EXPECT_TRUE(std::isfinite(now) && now >= 0) << slots << " slots";
      EXPECT_LE(now, before) << slots << " slots";
      before = now;
    }
    const auto end = curve.misses(last);
    EXPECT_LE(end, before);
    for (const auto slots :
         {last + 1, last + 2, 2 * last, most / 2, most / 2 + 1, most - 1, most}) {
      if (slots < last) continue;
      EXPECT_EQ(curve.misses(slots), end) << slots << " of " << last;
    }
  }
}

}  // namespace
}  // namespace hotset::miss_curve_conformance_test
