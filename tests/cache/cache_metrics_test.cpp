// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/cache_metrics.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "sample_of.hpp"
#include "scripted_backend.hpp"

namespace hotset::cache_metrics_test {
namespace {

using support::sample_of;
using support::scripted_backend;
using testing::HasSubstr;

const geometry shape{
    .layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {10, 30}};

/// A cache whose copies arrive at once.
struct running_cache {
  scripted_backend backend{8};
  scripted_backend::stream_type stream{};
  slot_cache<pager<lru>, scripted_backend> cache{
      pager<lru>({.layout = pool_layout::per_layer(shape, 4).value()}), backend};
  cache_visit visit = cache.make_visit();

  void run(step_id step, layer_id layer, std::vector<std::int32_t> ids) {
    ASSERT_EQ(cache.resolve({.layer = layer, .step = step, .experts = ids}, stream, visit),
              status::ok);
    cache.release(visit, stream);
    backend.run(stream);
  }
};

ended_copy copy_of(std::chrono::nanoseconds time, std::uint64_t bytes, bool speculative) {
  ended_copy out;
  out.what.speculative = speculative;
  out.bytes = bytes;
  out.arrived = true;
  out.end = out.submitted + time;
  return out;
}

TEST(cache_metrics, show_slots_bytes_and_counters_of_the_last_publish) {
  running_cache run;
  cache_metrics metrics(shape, "lru");
  EXPECT_EQ(sample_of(metrics.text(), "hotset_slots"), 0);
  run.run(0, 0_layer, {0, 1});
  run.run(0, 1_layer, {0, 1});
  run.run(1, 0_layer, {1, 2});
  metrics.publish(run.cache);
  auto text = metrics.text();
  EXPECT_EQ(sample_of(text, "hotset_experts"), 16);
  EXPECT_EQ(sample_of(text, "hotset_slots"), 8);
  EXPECT_EQ(sample_of(text, "hotset_resident_experts"), 5);
  EXPECT_EQ(sample_of(text, "hotset_slot_bytes"), 4 * 10 + 4 * 30);
  EXPECT_EQ(sample_of(text, "hotset_budget_bytes"), 4 * 10 + 4 * 30);
  EXPECT_EQ(sample_of(text, "hotset_hits_total"), 1);
  EXPECT_EQ(sample_of(text, "hotset_fills_total"), 5);
  EXPECT_EQ(sample_of(text, "hotset_hits_by_layer_total{layer=\"0\"}"), 1);
  EXPECT_EQ(sample_of(text, "hotset_accesses_by_kind_total{kind=\"decode\"}"), 6);
  EXPECT_EQ(sample_of(text, "hotset_queue_waiting"), 0);

  ASSERT_EQ(run.cache.set_quota(0_layer, 2), status::ok);
  memory_budget budget(1000);
  ASSERT_TRUE(budget.take(700));
  metrics.publish(run.cache, &budget);
  text = metrics.text();
  EXPECT_EQ(sample_of(text, "hotset_slots"), 6);
  EXPECT_EQ(sample_of(text, "hotset_resident_experts"), 4);
  EXPECT_EQ(sample_of(text, "hotset_slot_bytes"), 2 * 10 + 4 * 30);
  EXPECT_EQ(sample_of(text, "hotset_budget_bytes"), 1000);
  EXPECT_EQ(sample_of(text, "hotset_budget_used_bytes"), 700);
}

TEST(cache_metrics, count_copies_by_latency_and_waits_exactly) {
  using namespace std::chrono_literals;
  cache_metrics metrics(shape, "lru");
  metrics.on_copy(copy_of(10us, 5, false));  // a bound belongs to its bucket
  metrics.on_copy(copy_of(10'001ns, 6, false));
  metrics.on_copy(copy_of(2s, 7, false));
  metrics.on_copy(copy_of(1ms, 8, true));
  auto failed = copy_of(1ms, 9, false);
  failed.arrived = false;
  metrics.on_copy(failed);
  metrics.on_wait({1, {}, observed_clock::time_point(1500ms)});
  metrics.on_wait({2, {}, observed_clock::time_point(1ns)});
  EXPECT_EQ(metrics.stalled_nanoseconds(), 1'500'000'001U);
  const auto text = metrics.text();
  EXPECT_THAT(text, HasSubstr("\n# TYPE hotset_copy_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("\nhotset_stall_seconds_total 1.500000001\n"));
  EXPECT_EQ(sample_of(text, "hotset_stalls_total"), 2);
  const auto bucket = [&](const std::string& copy, const std::string& le) {
    return sample_of(text, "hotset_copy_seconds_bucket{copy=\"" + copy + "\",le=\"" + le + "\"}");
  };
  EXPECT_EQ(bucket("demand", "0.00001"), 1);
  EXPECT_EQ(bucket("demand", "0.00003"), 2);
  EXPECT_EQ(bucket("demand", "1"), 2);
  EXPECT_EQ(bucket("demand", "+Inf"), 3);
  EXPECT_EQ(bucket("prefetch", "0.0003"), 0);
  EXPECT_EQ(bucket("prefetch", "0.001"), 1);
  EXPECT_THAT(text, HasSubstr("\nhotset_copy_seconds_sum{copy=\"demand\"} 2.000020001\n"));
  EXPECT_EQ(sample_of(text, "hotset_copy_seconds_count{copy=\"demand\"}"), 3);
  EXPECT_EQ(sample_of(text, "hotset_link_bytes_total{copy=\"demand\"}"), 5 + 6 + 7);
  EXPECT_EQ(sample_of(text, "hotset_link_bytes_total{copy=\"prefetch\"}"), 8);
}

// The thread sanitizer runs this test: a reader needs no lock, and sees the counters of one publish.
TEST(cache_metrics, another_thread_reads_the_counters_of_one_publish) {
  running_cache run;
  cache_metrics metrics(shape, "lru");
  std::atomic<bool> ended = false;
  std::atomic<std::uint64_t> read = 0;
  std::thread reader([&] {
    while (!ended) {
      const auto text = metrics.text();
      EXPECT_EQ(sample_of(text, "hotset_hits_total") + sample_of(text, "hotset_misses_total"),
                sample_of(text, "hotset_accesses_total"));
      ++read;
    }
  });
  for (step_id step = 0; step < 100 || read < 20; ++step) {
    const auto e = static_cast<std::int32_t>(step % 7);
    run.run(step, 0_layer, {e, e + 1});
    metrics.on_copy(copy_of(std::chrono::microseconds(1), 1, false));
    metrics.on_wait({});
    metrics.publish(run.cache);
  }
  ended = true;
  reader.join();
}

/// Rows of docs/metrics.md: name -> type and meaning.
std::map<std::string, std::string> documented() {
  std::ifstream file(std::string(HOTSET_SOURCE_DIR) + "/docs/metrics.md");
  const std::regex row(R"(^\| `(hotset_\w+)` \| (\w+) \|[^|]*\|[^|]*\| (.+) \|$)");
  std::map<std::string, std::string> out;
  std::smatch parts;
  for (std::string line; std::getline(file, line);)
    if (std::regex_match(line, parts, row)) out[parts[1]] = parts[2].str() + ": " + parts[3].str();
  return out;
}

TEST(cache_metrics, are_those_of_the_document) {
  running_cache run;
  cache_metrics metrics(shape, "lru");
  metrics.publish(run.cache);
  std::map<std::string, std::string> shown;
  std::map<std::string, std::string> help;
  std::istringstream lines(metrics.text());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark;
    std::string kind;
    std::string name;
    std::string rest;
    words >> mark >> kind >> name >> std::ws;
    std::getline(words, rest);
    if (mark != "#") continue;
    if (kind == "HELP") help[name] = rest;
    if (kind == "TYPE") shown[name] = rest + ": " + help[name];
  }
  EXPECT_EQ(shown, documented());
}

TEST(cache_metrics, name_the_version_and_the_policy) {
  cache_metrics metrics(shape, "protect_hot:uses=4+lru");
  EXPECT_EQ(sample_of(metrics.text(), "hotset_info{version=\"" HOTSET_VERSION_TEXT
                                      "\",policy=\"protect_hot:uses=4+lru\"}"),
            1);
}

}  // namespace
}  // namespace hotset::cache_metrics_test
