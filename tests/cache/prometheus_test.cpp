// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/prometheus.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "scripted_backend.hpp"

namespace hotset::prometheus_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Parses the text as a Prometheus scraper does.
struct scrape {
  std::map<std::string, std::string> type{};  ///< by family
  std::map<std::string, std::string> help{};
  /// Keys: `name` or `name{label=value,...}` with unescaped values.
  std::map<std::string, std::uint64_t> samples{};

  std::uint64_t operator[](const std::string& sample) const {
    const auto found = samples.find(sample);
    if (found != samples.end()) return found->second;
    ADD_FAILURE() << "no sample " << sample;
    return 0;
  }
};

/// Accepts exactly the exposition format: HELP, TYPE, then all samples of the family; one space between words;
/// unsigned integers; a newline after each line.
scrape parse(const std::string& text) {
  static const std::regex help(R"(# HELP ([a-zA-Z_]\w*) ([^\\]+))");
  static const std::regex type(R"(# TYPE ([a-zA-Z_]\w*) (counter|gauge))");
  static const std::regex sample(R"(([a-zA-Z_]\w*)(?:\{(.+)\})? ([0-9]+))");
  static const std::regex label(R"re(([a-zA-Z_]\w*)="((?:[^"\\]|\\[\\"n])*)"(,(?=.)|$))re");
  scrape found;
  std::string family;
  char before = 's';  // kind of the previous line: help, type or sample
  std::istringstream lines(text);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line does not end";
  for (std::string line; std::getline(lines, line);) {
    SCOPED_TRACE(line);
    std::smatch parts;
    if (std::regex_match(line, parts, help)) {
      EXPECT_EQ(std::exchange(before, 'h'), 's') << "the family before has no samples";
      family = parts[1];
      EXPECT_TRUE(found.help.emplace(family, parts[2]).second) << "HELP twice";
    } else if (std::regex_match(line, parts, type)) {
      EXPECT_EQ(std::exchange(before, 't'), 'h');
      EXPECT_EQ(parts[1], family);
      found.type[family] = parts[2];
    } else if (std::regex_match(line, parts, sample)) {
      EXPECT_NE(std::exchange(before, 's'), 'h');
      EXPECT_EQ(parts[1], family) << "outside its family";
      auto key = family;
      std::set<std::string> seen;
      std::string labels = parts[2];
      for (std::smatch one;
           std::regex_search(labels, one, label, std::regex_constants::match_continuous);
           labels = one.suffix()) {
        EXPECT_TRUE(seen.insert(one[1]).second) << "twice";
        key += (seen.size() == 1 ? "{" : ",") + one[1].str() + '=';
        const auto value = one[2].str();
        for (std::size_t i = 0; i < value.size(); ++i)
          key += value[i] != '\\' ? value[i] : value[++i] == 'n' ? '\n' : value[i];
      }
      EXPECT_TRUE(labels.empty()) << "no label: " << labels;
      if (!seen.empty()) key += '}';
      EXPECT_TRUE(found.samples.emplace(key, std::stoull(parts[3])).second) << key << " twice";
    } else {
      ADD_FAILURE() << "no line of the format";
    }
  }
  EXPECT_EQ(before, 's') << "a family without samples";
  return found;
}

/// The single counters precede by_kind, one word each: the n-th gets the value n, from 1.
constexpr std::size_t single_counters = offsetof(pager_stats, by_kind) / 8;
pager_stats numbered() {
  static_assert(std::is_standard_layout_v<pager_stats>);
  pager_stats stats;
  for (std::uint64_t n = 1; n <= single_counters; ++n)
    std::memcpy(reinterpret_cast<std::byte*>(&stats) + (n - 1) * 8, &n, 8);
  return stats;
}

TEST(prometheus, every_counter_of_the_pager_has_its_sample) {
  // In the order of the fields.
  std::istringstream names(
      "visits accesses hits prefetch_hits misses compulsory_misses collision_misses "
      "precision_misses bypasses dropped_misses substituted_misses fills speculative_fills "
      "late_prefetches wasted_prefetches cancelled_prefetches refused_prefetches evictions "
      "pre_evictions filled_bytes demand_bytes refetched_bytes warm_bytes prefetched_bytes "
      "prefetch_used_bytes prefetch_wasted_bytes prefetch_cancelled_bytes failed_fills ignored_ids "
      "split_visits groups steps steps_with_miss");
  const auto found = parse(prometheus_text(numbered()));
  std::size_t count = 0;
  for (std::string name; names >> name;)
    EXPECT_EQ(found["hotset_" + name + "_total"], ++count) << name;
  EXPECT_EQ(count, single_counters);
  for (const auto& [family, type] : found.type) {
    EXPECT_EQ(type, "counter") << family;
    EXPECT_THAT(family, testing::EndsWith("_total"));
    EXPECT_THAT(found.help.at(family), testing::EndsWith("."));
  }
}

TEST(prometheus, the_text_is_this) {
  pager_stats stats;
  stats.visits = 18446744073709551615U;
  const auto text = prometheus_text(stats, {{"cache", "a"}});
  EXPECT_THAT(text, StartsWith("# HELP hotset_visits_total Visits: one layer in one forward pass.\n"
                               "# TYPE hotset_visits_total counter\n"
                               "hotset_visits_total{cache=\"a\"} 18446744073709551615\n"
                               "# HELP hotset_accesses_total Distinct experts of visits.\n"
                               "# TYPE hotset_accesses_total counter\n"
                               "hotset_accesses_total{cache=\"a\"} 0\n"));
  EXPECT_THAT(prometheus_text(stats), HasSubstr("\nhotset_accesses_total 0\n"));
}

TEST(prometheus, counts_by_kind_and_by_layer_have_families_of_their_own) {
  pager_stats stats;
  stats.by_kind = {access_counts{10, 4, 0}, access_counts{20, 5, 0}, access_counts{30, 6, 0}};
  stats.per_layer = {{{1, 2, 3}}, {{4, 5, 6}}};
  const auto found = parse(prometheus_text(stats, {{"cache", "a"}}));
  EXPECT_EQ(found["hotset_accesses_by_kind_total{cache=a,kind=decode}"], 10U);
  EXPECT_EQ(found["hotset_hits_by_kind_total{cache=a,kind=decode}"], 4U);
  EXPECT_EQ(found["hotset_accesses_by_kind_total{cache=a,kind=prefill}"], 20U);
  EXPECT_EQ(found["hotset_hits_by_kind_total{cache=a,kind=prefill}"], 5U);
  EXPECT_EQ(found["hotset_accesses_by_kind_total{cache=a,kind=verify}"], 30U);
  EXPECT_EQ(found["hotset_hits_by_kind_total{cache=a,kind=verify}"], 6U);
  EXPECT_EQ(found["hotset_accesses_by_layer_total{cache=a,layer=0}"], 1U);
  EXPECT_EQ(found["hotset_hits_by_layer_total{cache=a,layer=0}"], 2U);
  EXPECT_EQ(found["hotset_collision_misses_by_layer_total{cache=a,layer=0}"], 3U);
  EXPECT_EQ(found["hotset_accesses_by_layer_total{cache=a,layer=1}"], 4U);
  EXPECT_EQ(found["hotset_hits_by_layer_total{cache=a,layer=1}"], 5U);
  EXPECT_EQ(found["hotset_collision_misses_by_layer_total{cache=a,layer=1}"], 6U);
  EXPECT_EQ(found.samples.size(), single_counters + 3 * 2 + 2 * 3);
  EXPECT_EQ(found.type.size(), single_counters + 2 + 3);
  // A sum over a family counts nothing twice: totals are samples without these labels.
  EXPECT_EQ(found["hotset_hits_total{cache=a}"], 0U);
  stats.per_layer.clear();
  EXPECT_THAT(prometheus_text(stats), Not(HasSubstr("by_layer")));
}

TEST(prometheus, label_values_are_escaped) {
  const std::string odd = "a\\b\"c\nd{}=, \xc3\xa9";
  const auto text = prometheus_text(pager_stats{}, {{"path", odd}, {"_model2", ""}});
  EXPECT_THAT(
      text, HasSubstr("hotset_hits_total{path=\"a\\\\b\\\"c\\nd{}=, \xc3\xa9\",_model2=\"\"} 0\n"));
  const auto found = parse(text);
  EXPECT_EQ(found["hotset_hits_total{path=" + odd + ",_model2=}"], 0U);
  EXPECT_EQ(found["hotset_hits_by_kind_total{path=" + odd + ",_model2=,kind=verify}"], 0U);
}

/// Provides counters only, as a slot_cache does.
struct counted {
  pager_stats counts{};
  prefetch_queue waiting{};
  [[nodiscard]] const pager_stats& stats() const { return counts; }
  [[nodiscard]] const prefetch_queue& queue() const { return waiting; }
};

TEST(prometheus, a_queue_has_counters_and_a_gauge) {
  counted cache{.waiting = prefetch_queue({.most_waiting = 3})};
  auto& queue = cache.waiting;
  for (const auto e : {0, 1, 2, 3, 4, 4}) queue.add({{1_layer, expert_id{e}}, 5, 1.0F});
  queue.add({{0_layer, 7_expert}, 4, 1.0F});
  queue.take(0, 1, {});
  queue.forget(expert_key{1_layer, 0_expert});
  ASSERT_EQ(queue.stats(), (prefetch_queue_stats{7, 0, 1, 1, 4}));
  queue.add({{1_layer, 1_expert}, 5, 1.0F});
  const auto found = parse(prometheus_text(cache, {{"cache", "a"}}));
  EXPECT_EQ(found["hotset_queue_added_total{cache=a}"], 7U);
  EXPECT_EQ(found["hotset_queue_repeated_total{cache=a}"], 1U);
  EXPECT_EQ(found["hotset_queue_issued_total{cache=a}"], 1U);
  EXPECT_EQ(found["hotset_queue_expired_total{cache=a}"], 1U);
  EXPECT_EQ(found["hotset_queue_displaced_total{cache=a}"], 4U);
  EXPECT_EQ(found["hotset_queue_waiting{cache=a}"], 1U);
  EXPECT_EQ(found.samples.size(), single_counters + 3 * 2 + sizeof(prefetch_queue_stats) / 8 + 1);
  EXPECT_EQ(found.type.at("hotset_queue_waiting"), "gauge");
  EXPECT_EQ(found.type.at("hotset_queue_added_total"), "counter");
}

TEST(prometheus, shows_the_counters_of_a_running_cache) {
  const geometry shape{
      .layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {10, 30}};
  support::scripted_backend backend(3);
  support::scripted_backend::stream_type stream;
  slot_cache<pager<lru>, support::scripted_backend> cache(
      pager<lru>({.layout = pool_layout::shared(shape, 3).value()}), backend);
  auto visit = cache.make_visit();
  const auto run = [&](step_id step, layer_id layer, std::vector<std::int32_t> ids) {
    const routing_view view{.layer = layer,
                            .step = step,
                            .kind = step == 0 ? request_class::prefill : request_class::decode,
                            .experts = ids};
    ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
    cache.release(visit, stream);
    backend.run(stream);
  };
  run(0, 0_layer, {0, 1});
  run(0, 1_layer, {0, 1});
  run(1, 1_layer, {1, 0});
  const auto stats = cache.stats();
  ASSERT_EQ(stats.hits, 2U);
  const auto found = parse(prometheus_text(cache, {{"cache", "main"}}));
  EXPECT_EQ(found["hotset_visits_total{cache=main}"], 3U);
  EXPECT_EQ(found["hotset_accesses_total{cache=main}"], 6U);
  EXPECT_EQ(found["hotset_hits_total{cache=main}"], 2U);
  EXPECT_EQ(found["hotset_misses_total{cache=main}"], 4U);
  EXPECT_EQ(found["hotset_evictions_total{cache=main}"], 1U);
  EXPECT_EQ(found["hotset_filled_bytes_total{cache=main}"], 2U * 10 + 2 * 30);
  EXPECT_EQ(found["hotset_accesses_by_kind_total{cache=main,kind=prefill}"], 4U);
  EXPECT_EQ(found["hotset_hits_by_kind_total{cache=main,kind=decode}"], 2U);
  EXPECT_EQ(found["hotset_hits_by_layer_total{cache=main,layer=1}"], 2U);
  EXPECT_EQ(found["hotset_accesses_by_layer_total{cache=main,layer=0}"], 2U);
  EXPECT_EQ(found["hotset_queue_waiting{cache=main}"], 0U);
}

#if defined(HOTSET_HARDENED) || !defined(NDEBUG)
TEST(prometheus_death_test, labels_that_no_scraper_reads_are_a_broken_precondition) {
  for (const char* name : {"", "1st", "a-b", "a b", "__name__", "kind", "layer", "\xc3\xa9"})
    EXPECT_DEATH((void)prometheus_text(pager_stats{}, {{name, "x"}}), "are_prometheus_labels")
        << name;
  EXPECT_DEATH((void)prometheus_text(pager_stats{}, {{"a", "x"}, {"b", ""}, {"a", "y"}}),
               "are_prometheus_labels");
}
#endif

}  // namespace
}  // namespace hotset::prometheus_test
