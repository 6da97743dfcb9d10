// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/unit_prices.hpp"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/transfer/host_stream.hpp"

namespace unit_prices_test {
namespace {

using namespace hotset;
using namespace tiny_moe;
using ::testing::HasSubstr;

TEST(tiny_moe_seconds_per_unit, excludes_the_cost_of_every_call) {
  const auto seconds = seconds_per_unit({.small = 10, .large = 90, .rounds = 3},
                                        [](std::size_t n) { return 0.5 + 0.25 * double(n); });
  ASSERT_TRUE(seconds);
  EXPECT_DOUBLE_EQ(*seconds, 0.25);
}

TEST(tiny_moe_seconds_per_unit, a_few_slow_rounds_do_not_matter) {
  int call = 0;
  const auto seconds =
      seconds_per_unit({.small = 1, .large = 3, .rounds = 5}, [&call](std::size_t n) {
        const bool disturbed = ++call == 2 || call == 5;  // one large batch and one small batch
        return double(n) + (disturbed ? 1000.0 : 0.0);
      });
  ASSERT_TRUE(seconds);
  EXPECT_DOUBLE_EQ(*seconds, 1.0);
}

TEST(tiny_moe_seconds_per_unit, refuses_amounts_that_cannot_be_compared) {
  const auto none = seconds_per_unit({}, [](std::size_t) { return 1.0; });
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("2 units took no longer than 1"));
  for (const calibration_work bad :
       {calibration_work{.small = 0}, calibration_work{.small = 2, .large = 2},
        calibration_work{.rounds = 0}})
    EXPECT_FALSE(seconds_per_unit(bad, [](std::size_t n) { return double(n); }));
}

/// Advances only while the link below copies.
struct link_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<link_clock>;
  [[maybe_unused]] static constexpr bool is_steady = true;
  static time_point now() { return time_point(duration(ticks)); }
  static inline std::int64_t ticks = 0;
};

/// 1 us per batch and 5 ns per byte, with fills of 100 bytes.
struct link_of_its_own {
  using stream_type = host_stream;
  submission submit(std::span<const fill> fills, host_stream&, urgency) noexcept {
    const auto taken = fills.size() < most ? fills.size() : most;
    link_clock::ticks += 1000 + 500 * static_cast<std::int64_t>(taken);
    copies += taken;
    return {1, taken};
  }
  void promote(ticket) noexcept {}
  bool cancel(ticket) noexcept { return false; }
  status fence(host_stream&, ticket) noexcept { return status::ok; }
  ticket record(host_stream&) noexcept { return no_ticket; }
  transfer_state poll(ticket) noexcept { return end; }
  transfer_state wait(ticket) noexcept { return end; }

  std::size_t most = 1000;
  std::size_t copies = 0;
  transfer_state end = transfer_state::arrived;
};

TEST(tiny_moe_link_seconds_per_byte, is_the_slope_of_the_copies) {
  link_of_its_own link;
  host_stream stream(host_stream::mode::caller);
  const std::vector<fill> fills(8);
  const auto seconds = link_seconds_per_byte<link_clock>(link, stream, fills, 100,
                                                         {.small = 2, .large = 8, .rounds = 3});
  ASSERT_TRUE(seconds);
  EXPECT_DOUBLE_EQ(*seconds, 5e-9);
  EXPECT_EQ(link.copies, 8 + 3 * (2 + 8U));  // once to warm up
}

TEST(tiny_moe_link_seconds_per_byte, reports_copies_that_did_not_arrive) {
  host_stream stream(host_stream::mode::caller);
  const std::vector<fill> fills(8);
  const calibration_work work{.small = 2, .large = 8};
  link_of_its_own full;
  full.most = 4;
  EXPECT_FALSE(link_seconds_per_byte<link_clock>(full, stream, fills, 100, work));
  link_of_its_own broken;
  broken.end = transfer_state::failed;
  const auto failed = link_seconds_per_byte<link_clock>(broken, stream, fills, 100, work);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("refused or failed"));
  link_of_its_own fine;
  EXPECT_FALSE(link_seconds_per_byte<link_clock>(fine, stream, fills, 0, work));
  EXPECT_FALSE(
      link_seconds_per_byte<link_clock>(fine, stream, std::span(fills).first(7), 100, work));
}

}  // namespace
}  // namespace unit_prices_test
