// SPDX-License-Identifier: Apache-2.0
// Code that starts host threads reports a thread that the system refuses; earlier threads end.
#include "hotset/core/platform/start_threads.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "lab/replay/emulated_link_backend.hpp"
#include "refused_threads.hpp"

namespace hotset::start_threads_test {
namespace {

using support::host_experts;
using support::refused_threads;
using testing::StartsWith;

class start_threads_test : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = refused_threads::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  }
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
};

TEST_F(start_threads_test, reports_the_refused_thread_and_keeps_the_earlier_ones) {
  std::atomic<int> ran = 0;
  std::vector<std::thread> threads;
  {
    const refused_threads two(2);
    const auto refused = detail::start_threads(threads, 5, [&] { ++ran; });
    ASSERT_TRUE(refused);
    EXPECT_THAT(refused->message, StartsWith("cannot start thread 3 of 5: "));
    EXPECT_THAT(refused->message, testing::HasSubstr(", accepted: fewer threads"));
  }
  EXPECT_EQ(threads.size(), 2U);
  for (auto& t : threads) t.join();
  EXPECT_EQ(ran, 2);
  EXPECT_FALSE(detail::start_threads(threads, 1, [&] { ++ran; }));
  threads.back().join();
  EXPECT_EQ(ran, 3);
}

TEST_F(start_threads_test, a_backend_of_many_threads_is_refused_and_the_started_ones_end) {
  using backend_type = host_backend<memory_expert_source>;
  {
    const refused_threads two(2);
    const auto refused = backend_type::create(experts.source, experts.bank, {.threads = 256});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, StartsWith("cannot start thread 3 of 256: "));
    EXPECT_EQ(refused_threads::ended(), 2);
  }
  const refused_threads two(2);
  EXPECT_THROW(backend_type(experts.source, experts.bank, {.threads = 4}), invalid_config);
  EXPECT_EQ(refused_threads::ended(), 2);
}

TEST_F(start_threads_test, an_emulated_link_is_refused) {
  using backend_type = emulated_link_backend<memory_expert_source>;
  const refused_threads none(0);
  const typename backend_type::config setup{.link = {.bytes_per_second = 1'000'000'000}};
  EXPECT_THROW(backend_type(experts.source, experts.bank, setup), invalid_config);
}

TEST_F(start_threads_test, a_workers_stream_is_refused) {
  const refused_threads none(0);
  const auto refused = host_stream::create(host_stream::mode::worker);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, StartsWith("cannot start thread 1 of 1: "));
  EXPECT_THROW(host_stream{host_stream::mode::worker}, invalid_config);
  EXPECT_TRUE(host_stream::create(host_stream::mode::caller)) << "it needs no thread";
}

}  // namespace
}  // namespace hotset::start_threads_test
