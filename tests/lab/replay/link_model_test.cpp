// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/link_model.hpp"

#include <gtest/gtest.h>

#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::link_model_test {
namespace {

link_model link(std::uint64_t rate, ticks latency, std::uint64_t chunk) {
  return link_model({.bytes_per_second = rate, .latency = latency, .chunk_bytes = chunk});
}

TEST(link_model, a_config_that_cannot_work_is_refused_with_the_accepted_range) {
  EXPECT_EQ(link_model::config{}.validate()->message, "bytes_per_second = 0, accepted: 1 or more");
  const link_model::config late{.bytes_per_second = 1, .latency = 1'000'000'000'001};
  EXPECT_EQ(late.validate()->message, "latency = 1000000000001 ns, accepted: 0..1000000000000");
  EXPECT_FALSE(
      (link_model::config{.bytes_per_second = 1, .latency = 1'000'000'000'000}.validate()));
  EXPECT_EQ(link_model({.bytes_per_second = 5}).chunk_bytes(), 1_MiB);
  EXPECT_THROW(link_model(link_model::config{}), invalid_config);
}

TEST(link_model, a_copy_takes_its_latency_and_its_bytes_rounded_up) {
  const auto three = link(3'000'000'000, 100, 4);  // a third of a nanosecond per byte
  EXPECT_EQ(three.time_of(0), 100U);
  EXPECT_EQ(three.time_of(1), 101U);
  EXPECT_EQ(three.time_of(3), 101U);
  EXPECT_EQ(three.time_of(4), 102U);
  EXPECT_EQ(link(25'000'000'000, 10'000, 0).time_of(45_MiB), 10'000U + 1'887'437U);
}

TEST(link_model, each_chunk_ends_with_its_bytes_of_the_copy) {
  const auto three = link(3'000'000'000, 100, 4);
  EXPECT_EQ(three.chunks_of(10), 3U);
  EXPECT_EQ(three.time_until(10, 0), 0U);
  EXPECT_EQ(three.time_until(10, 1), 102U) << "4 bytes";
  EXPECT_EQ(three.time_until(10, 2), 103U) << "8 bytes: 2.67, not 2 + 2";
  EXPECT_EQ(three.time_until(10, 3), 104U) << "10 bytes: 3.33";
  EXPECT_EQ(three.bytes_until(10, 2), 8U);
  EXPECT_EQ(three.bytes_until(10, 3), 10U);
}

TEST(link_model, a_whole_number_of_chunks_has_no_empty_one_and_no_bytes_have_one) {
  const auto l = link(1, 0, 4);
  EXPECT_EQ(l.chunks_of(8), 2U);
  EXPECT_EQ(l.chunks_of(9), 3U);
  EXPECT_EQ(l.chunks_of(0), 1U);
  EXPECT_EQ(link(1, 0, 0).chunks_of(1_GiB), 1U) << "0: whole copies";
}

TEST(link_model, large_sizes_do_not_overflow) {
  const auto fast = link(std::uint64_t{1} << 60U, 0, 1_MiB);
  EXPECT_EQ(fast.time_of(std::uint64_t{1} << 62U), 4'000'000'000U);
  const auto most = ~std::uint64_t{0};
  EXPECT_EQ(link(most, 7, most - 1).bytes_until(most, 2), most);
  EXPECT_EQ(link(most, 7, most - 1).time_of(most), 1'000'000'007U);
}

TEST(link_model, an_instant_link_takes_no_time) {
  const auto none = link_model::instant();
  EXPECT_TRUE(none.is_instant());
  EXPECT_FALSE(link(1, 0, 0).is_instant());
  EXPECT_EQ(none.time_of(1_GiB), 0U);
  EXPECT_EQ(none.chunks_of(1_GiB), 1U);
  EXPECT_EQ(none.chunks_by(1_GiB, 5), 1U);
}

TEST(link_model, the_fewest_chunks_by_a_time_agree_with_a_walk) {
  splitmix64 random(31);
  for (int round = 0; round < 20'000; ++round) {
    const auto l = link(1 + random.below(4'000'000'000), random.below(6), random.below(9));
    const auto bytes = random.below(60);
    const auto time = random.below(l.time_of(bytes) * 2 + 3);
    std::uint64_t walked = 1;
    while (walked < l.chunks_of(bytes) && l.time_until(bytes, walked) < time) ++walked;
    ASSERT_EQ(l.chunks_by(bytes, time), walked) << round;
    ASSERT_EQ(l.time_until(bytes, l.chunks_of(bytes)), l.time_of(bytes));
  }
}

}  // namespace
}  // namespace hotset::link_model_test
