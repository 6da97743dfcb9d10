// SPDX-License-Identifier: Apache-2.0
// Every admission policy joins the suite here with its type and options.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/always.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/admission/least_valuable.hpp"
#include "random_source.hpp"

namespace hotset::admission_conformance_test {
namespace {

template <class A>
class admission_conformance : public testing::Test {};
using entries = testing::Types<always, after_n_uses, budgeted, least_valuable>;
TYPED_TEST_SUITE(admission_conformance, entries);

TYPED_TEST(admission_conformance, answers_0_or_1_twice_alike_and_writes_no_further) {
  const geometry shape{.layers = 3, .experts = 16, .top_k = 4};
  const auto layout = pool_layout::shared(shape, 8).value();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TypeParam policy(layout, typename TypeParam::config{});
    TypeParam twin(layout, typename TypeParam::config{});
    support::random_source random(seed);
    const auto below = [&](std::uint64_t n) { return random.below(n); };
    for (std::uint64_t visit = 0; visit < 200; ++visit) {
      const auto layer = static_cast<layer_id>(visit % 3);
      std::vector<expert_use> misses;
      for (std::uint64_t e = below(3); e < 16; e += 1 + below(6))
        misses.push_back(
            {.key = {layer, static_cast<expert_id>(e)}, .step = visit / 3, .ordinal = visit});
      const visit_context context{layer, 0_pool, visit / 3, visit, request_class::decode};
      std::vector<std::uint8_t> first(misses.size() + 2, 9);
      auto second = first;
      auto other = first;
      policy.admit(context, misses, std::span(first).first(misses.size()));
      policy.admit(context, misses, std::span(second).first(misses.size()));
      twin.admit(context, misses, std::span(other).first(misses.size()));
      EXPECT_EQ(first, second);
      EXPECT_EQ(first, other);
      EXPECT_EQ(first[misses.size()], 9);
      for (std::size_t n = 0; n < misses.size(); ++n) {
        EXPECT_LE(first[n], 1);
        if (TypeParam::traits.admits_all) {
          EXPECT_EQ(first[n], 1);
        }
        policy.on_use(misses[n], false, first[n] != 0);
        twin.on_use(misses[n], false, first[n] != 0);
        if (below(4) == 0) {
          policy.on_evict(misses[n].key, visit / 3);
          twin.on_evict(misses[n].key, visit / 3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hotset::admission_conformance_test
