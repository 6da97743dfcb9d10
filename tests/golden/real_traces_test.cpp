// SPDX-License-Identifier: Apache-2.0
/// Published and independently computed figures of real traces; skipped where the data is not at hand.

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/sim/io/open_trace.hpp"
#include "hotset/sim/sweep.hpp"

namespace {

using namespace hotset;

class real_traces : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(HOTSET_DATA_DIR).empty())
      GTEST_SKIP() << "HOTSET_DATA_DIR is not set: docs/data.md says which files belong there";
  }
  static std::filesystem::path file(const std::string& name) {
    return std::filesystem::path(HOTSET_DATA_DIR) / name;
  }
  static routing_trace gemma() {
    return sim::open_trace(file("routing/bigmoe-gemma/gemma.route.csv"));
  }
  static routing_trace law() { return sim::open_trace(file("routing/esft-law/esft-law.tar.xz")); }

  static sim::run_result run(const routing_trace& trace, const std::string& eviction,
                             const std::string& scope, const std::string& slots,
                             const std::string& replay = "event-atomic") {
    sim::sweep_request request;
    request.policies[0].eviction = eviction;
    request.scopes = {scope};
    request.replays = {replay};
    request.sizes = {sim::size_request::parse_slots(slots)};
    return sim::run_sweep(trace, request).results.front();
  }
};

/// The rows of decode tokens alone.
routing_trace decode_only(routing_trace trace) {
  std::size_t prompt = 0;
  while (prompt < trace.tokens() && trace.kind[prompt] == request_class::prefill) ++prompt;
  const auto cut = [](auto& rows, std::size_t count) {
    rows.erase(rows.begin(),
               rows.begin() + static_cast<std::ptrdiff_t>(std::min(count, rows.size())));
  };
  const auto width = trace.index(1, 0);
  cut(trace.step, prompt);
  cut(trace.sequence, prompt);
  cut(trace.kind, prompt);
  cut(trace.ids, prompt * width);
  cut(trace.weights, prompt * width);
  return trace;
}

double hit_rate(const sim::run_result& r) {
  return static_cast<double>(r.stats.hits) / static_cast<double>(r.stats.accesses);
}

TEST_F(real_traces, gemma_decode_at_400_shared_slots) {
  const auto trace = decode_only(gemma());
  const auto recency = run(trace, "lru", "shared", "400");
  EXPECT_EQ(recency.stats.hits, 11'795U);
  EXPECT_EQ(recency.stats.collision_misses, 1'047U);
  const auto stale = run(trace, "least_stale", "shared", "400");
  EXPECT_EQ(stale.stats.hits, 10'079U);
  EXPECT_EQ(stale.stats.collision_misses, 0U);
  const auto by_access = run(trace, "least_stale:order=last_access", "shared", "400");
  EXPECT_EQ(by_access.decision_hash, recency.decision_hash);
}

TEST_F(real_traces, gemma_prefill_at_16_slots_a_layer_takes_178_groups) {
  const auto result = run(gemma(), "lru", "per-layer", "16");
  EXPECT_EQ(result.stats.split_visits, 30U);
  EXPECT_EQ(result.stats.groups, 178U);
  EXPECT_EQ(result.stats.hits, 14'088U);
  EXPECT_EQ(run(gemma(), "lfu", "per-layer", "16").stats.hits, 14'982U);
}

TEST_F(real_traces, replaying_by_access_turns_lru_and_lfu_around) {
  const auto trace = gemma();
  EXPECT_EQ(run(trace, "lru", "per-layer", "16", "per-access").stats.hits, 16'627U);
  EXPECT_EQ(run(trace, "lfu", "per-layer", "16", "per-access").stats.hits, 16'531U);
}

TEST_F(real_traces, hit_rates_by_access_agree_with_an_independent_study) {
  struct row {
    const char* slots;
    double lru, belady;
  };
  const auto check = [](const routing_trace& trace, const std::vector<row>& rows) {
    for (const auto& r : rows) {
      EXPECT_NEAR(hit_rate(run(trace, "lru", "per-layer", r.slots, "per-access")), r.lru, 5e-4)
          << r.slots;
      EXPECT_NEAR(hit_rate(run(trace, "belady", "per-layer", r.slots, "per-access")), r.belady,
                  5e-4)
          << r.slots;
    }
  };
  check(gemma(), {{"12.5%", .5884, .7486}, {"25%", .7691, .8660}, {"50%", .9052, .9153}});
  check(law(), {{"12.5%", .2896, .5169}, {"25%", .4731, .7008}, {"50%", .7175, .8788}});
}

TEST_F(real_traces, law_at_half_shared) {
  const auto trace = law();
  EXPECT_NEAR(hit_rate(run(trace, "least_stale", "shared", "50%")), .608, 5e-4);
  EXPECT_NEAR(hit_rate(run(trace, "lru", "shared", "50%")), .7177, 5e-4);
}

TEST_F(real_traces, mooncake_blocks_under_lru) {
  const auto trace = sim::open_trace(file("kv/mooncake-synthetic/synthetic_trace.jsonl.xz"));
  EXPECT_EQ(run(trace, "lru", "shared", "10000").stats.hits, 51'614U);
  EXPECT_EQ(run(trace, "lru", "shared", "30000").stats.hits, 76'077U);
  const auto all = run(trace, "lru", "shared", "50000");
  EXPECT_EQ(all.stats.hits, 77'953U);
  EXPECT_EQ(all.stats.accesses, 121'877U);
}

}  // namespace
