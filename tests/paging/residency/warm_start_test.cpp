// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/warm_start.hpp"

#include <gtest/gtest.h>

namespace warm_start_test {
namespace {

using namespace hotset;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};

TEST(warm_start, keeps_the_last_keys_of_each_pool) {
  const auto layout = pool_layout::per_layer(shape, 2).value();
  const std::vector<expert_key> keys{{0_layer, 1_expert},
                                     {1_layer, 1_expert},
                                     {0_layer, 2_expert},
                                     {0_layer, 3_expert},
                                     {7_layer, 0_expert}};
  const std::vector<expert_key> kept{{1_layer, 1_expert}, {0_layer, 2_expert}, {0_layer, 3_expert}};
  EXPECT_EQ(warm_keys_that_fit(keys, layout), kept);
}

TEST(warm_start, popular_keys_come_last) {
  std::vector<double> profile(16, 0);
  profile[3] = 5;
  profile[4] = 9;
  profile[5] = 5;
  profile[12] = 1;
  const std::vector<expert_key> tied_lower_wanted_more{
      {1_layer, 4_expert}, {0_layer, 5_expert}, {0_layer, 3_expert}, {0_layer, 4_expert}};
  EXPECT_EQ(popular_warm_keys(profile, pool_layout::shared(shape, 16).value()),
            tied_lower_wanted_more);
  const std::vector<expert_key> two_each{
      {1_layer, 4_expert}, {0_layer, 3_expert}, {0_layer, 4_expert}};
  EXPECT_EQ(popular_warm_keys(profile, pool_layout::per_layer(shape, 2).value()), two_each);
}

TEST(residency_snapshot, is_restored_exactly) {
  const residency_snapshot saved{
      2, 8, {{1_layer, 7_expert}, {0_layer, 0_expert}, {0_layer, 3_expert}}};
  const auto bytes = saved.encode();
  auto loaded = residency_snapshot::decode(bytes);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->layers, 2);
  EXPECT_EQ(loaded->experts, 8);
  EXPECT_EQ(loaded->keys, saved.keys);
}

TEST(residency_snapshot, every_changed_byte_and_every_cut_is_refused) {
  const auto bytes =
      residency_snapshot{2, 8, {{1_layer, 7_expert}, {0_layer, 0_expert}, {0_layer, 3_expert}}}
          .encode();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto broken = bytes;
    broken[at] ^= std::byte{0x40};
    EXPECT_FALSE(residency_snapshot::decode(broken)) << "byte " << at;
    EXPECT_FALSE(residency_snapshot::decode(std::span(bytes).first(at))) << "cut at " << at;
  }
}

}  // namespace
}  // namespace warm_start_test
