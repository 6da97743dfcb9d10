// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/clock_stream.hpp"

#include <gtest/gtest.h>

namespace hotset::clock_stream_test {
namespace {

TEST(clock_stream, the_host_runs_ahead_until_it_synchronises) {
  clock_stream stream;
  stream.run(100);
  stream.run(50);
  EXPECT_EQ(stream.now(), 150U);
  EXPECT_EQ(stream.host(), 0U);
  stream.synchronise();
  EXPECT_EQ(stream.host(), 150U);
  EXPECT_EQ(stream.blocked(), 0U);
}

TEST(clock_stream, work_starts_no_earlier_than_it_is_issued) {
  clock_stream stream;
  stream.run(100);
  stream.issue_at(400);
  EXPECT_EQ(stream.now(), 100U);
  stream.run(10);
  EXPECT_EQ(stream.now(), 410U);
  stream.issue_at(5);
  EXPECT_EQ(stream.host(), 400U) << "time does not run back";
  stream.issue_at(500);
  stream.synchronise();
  EXPECT_EQ(stream.host(), 500U);
  EXPECT_EQ(stream.now(), 500U);
}

TEST(clock_stream, waiting_counts_from_the_end_of_enqueued_work) {
  clock_stream stream;
  stream.run(100);
  EXPECT_EQ(stream.wait_until(130), 30U);
  EXPECT_EQ(stream.now(), 130U);
  EXPECT_EQ(stream.wait_until(130), 0U);
  EXPECT_EQ(stream.wait_until(20), 0U);
  EXPECT_EQ(stream.now(), 130U);
  EXPECT_EQ(stream.blocked(), 30U);
  EXPECT_EQ(stream.host(), 0U);
}

TEST(clock_stream, a_stream_that_had_nothing_to_do_waits_from_when_the_wait_is_issued) {
  clock_stream stream;
  stream.issue_at(200);
  EXPECT_EQ(stream.wait_until(205), 5U);
  EXPECT_EQ(stream.blocked(), 5U);
}

}  // namespace
}  // namespace hotset::clock_stream_test
