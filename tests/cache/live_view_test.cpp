// SPDX-License-Identifier: Apache-2.0
// The counts of a running cache, its metrics and its timeline agree.
#include "hotset/cache/live_view.hpp"

#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "sample_of.hpp"
#include "temporary_folder.hpp"
#include "watched_source.hpp"

namespace hotset::live_view_test {
namespace {

using support::host_experts;
using support::sample_of;
using support::temporary_folder;
using support::watched_source;
using testing::HasSubstr;
using testing::StartsWith;

const geometry shape{.layers = 2, .experts = 16, .top_k = 2, .max_tokens_per_visit = 2};

/// Durations of the spans whose names match, in microseconds.
std::vector<double> durations(const std::string& text, const std::string& name) {
  const std::regex span("\"name\":\"" + name + "\",\"ph\":\"X\".*\"dur\":([0-9.]+)");
  std::vector<double> out;
  for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at)
    out.push_back(std::stod((*at)[1]));
  return out;
}
double sum_of(const std::vector<double>& values) {
  double out = 0;
  for (const auto v : values) out += v;
  return out;
}

/// A cache over slow copies, with prefetches of which some are late, some cancelled and some not used.
class watched_engine {
 public:
  watched_engine(live_view& view, host_stream::mode how)
      : view_(view), backend_(source_, experts_.bank, {.observer = &view}), stream_(how) {}

  void run(step_id steps) {
    auto visit = cache_.make_visit();
    for (step_id step = 0; step < steps; ++step) {
      for (const auto layer : each<layer_id>(shape.layers)) {
        const auto e = static_cast<std::int32_t>(step * 5 + index_of(layer)) % 15;
        const std::vector<std::int32_t> ids{e, e + 1};
        ASSERT_EQ(cache_.serve({.layer = layer, .step = step, .experts = ids}, stream_, visit,
                               [&](const visit_group& group) { compute(group, layer, step); }),
                  status::ok);
      }
      stream_.drain();
      ASSERT_EQ(cache_.drain(), status::ok);
      view_.metrics().publish(cache_);
    }
  }
  [[nodiscard]] pager_stats stats() const { return cache_.stats(); }

 private:
  struct slow_source : watched_source {
    explicit slow_source(const memory_expert_source& inner) : watched_source(inner) {
      on_ask = [](std::size_t) { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
    }
  };
  void compute(const visit_group& group, layer_id layer, step_id step) {
    const auto begin = observed_clock::now();
    view_.on_compute({layer, step, 1, begin, observed_clock::now()});
    const auto next = static_cast<std::int32_t>(step * 5 + 5 + index_of(layer)) % 15;
    const std::vector<prefetch_request> wanted{{{layer, expert_id{next}}, step + 1, 1.0F},
                                               {{layer, 3_expert}, step + 1, 0.5F}};
    EXPECT_EQ(cache_.prefetch(group.context(), wanted, stream_), status::ok);
  }

  live_view& view_;
  pool_layout layout_ = pool_layout::per_layer(shape, 6).value();
  host_experts experts_{layout_};
  slow_source source_{experts_.source};
  host_backend<slow_source> backend_;
  host_stream stream_;
  slot_cache<pager<lru>, host_backend<slow_source>> cache_{pager<lru>({.layout = layout_}),
                                                           backend_};
};

class live_views : public testing::TestWithParam<host_stream::mode> {};

TEST_P(live_views, agree_with_the_counters_of_the_cache_and_with_each_other) {
  const temporary_folder folder;
  const auto path = folder.file("t.json");
  auto view = live_view::create({.timeline = path}, shape, "lru");
  ASSERT_TRUE(view) << view.error().message;
  pager_stats stats;
  {
    watched_engine engine(**view, GetParam());
    engine.run(30);
    stats = engine.stats();
  }
  ASSERT_FALSE((*view)->finish());
  ASSERT_EQ(stats.failed_fills, 0U);
  ASSERT_GT(stats.speculative_fills, 0U);
  const auto& metrics = (*view)->metrics();
  const auto text = metrics.text();
  std::ifstream file(path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};

  // Each fill that was not cancelled is one copy, and demand copies are demand fills.
  const auto prefetches = stats.speculative_fills - stats.cancelled_prefetches;
  EXPECT_EQ(sample_of(text, "hotset_copy_seconds_count{copy=\"demand\"}"),
            static_cast<double>(stats.fills));
  EXPECT_EQ(sample_of(text, "hotset_copy_seconds_count{copy=\"prefetch\"}"),
            static_cast<double>(prefetches));
  EXPECT_EQ(durations(json, "layer . expert [0-9]+").size(), stats.fills + prefetches);
  EXPECT_EQ(sample_of(text, "hotset_fills_total"), static_cast<double>(stats.fills));

  // The waits of the timeline are the stalls of the metrics.
  const auto waits = durations(json, "wait");
  EXPECT_EQ(sample_of(text, "hotset_stalls_total"), static_cast<double>(waits.size()));
  EXPECT_GT(waits.size(), 0U);
  EXPECT_NEAR(sum_of(waits), static_cast<double>(metrics.stalled_nanoseconds()) / 1000, 1e-3);
  EXPECT_NEAR(sample_of(text, "hotset_stall_seconds_total") * 1e6, sum_of(waits), 1e-2);

  EXPECT_EQ(durations(json, "layer .").size(), 60U);
}

INSTANTIATE_TEST_SUITE_P(streams, live_views,
                         testing::Values(host_stream::mode::caller, host_stream::mode::worker),
                         [](const auto& how) {
                           return how.param == host_stream::mode::caller ? "caller" : "worker";
                         });

TEST(live_view, serves_the_metrics_of_a_running_engine) {
  auto view = live_view::create({.metrics = "127.0.0.1:0"}, shape, "lru");
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_THAT((*view)->url(), StartsWith("http://127.0.0.1:"));
  EXPECT_FALSE((*view)->has_timeline());
  EXPECT_FALSE((*view)->finish());
  const auto second = live_view::create(
      {.metrics = (*view)->url().substr(7, (*view)->url().size() - 15)}, shape, "lru");
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("is taken, accepted: a free port"));
}

TEST(live_view, refuses_a_timeline_that_cannot_be_written) {
  const temporary_folder folder;
  const auto bad = live_view::create({.timeline = folder.file("none/t.json")}, shape, "lru");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("none/t.json"));
}

}  // namespace
}  // namespace hotset::live_view_test
