// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes cache counters as Prometheus text (exposition format 0.0.4).
///
/// Every field of pager_stats is a counter: `hits` is `hotset_hits_total`, `bytes_filled` is
/// `hotset_filled_bytes_total`. Counts by request class and by layer are separate families
/// (`hotset_hits_by_kind_total{kind="decode"}`, `hotset_hits_by_layer_total{layer="3"}`), so the sum over a family
/// counts each event once. These functions allocate; do not call them on the hot path. `cache_metrics` also has times,
/// and its text may be read by another thread.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/transfer/prefetch_queue.hpp"

namespace hotset {

/// Name and value of a label. Pre: the name matches [a-zA-Z_][a-zA-Z0-9_]*, does not begin with two underscores, is
/// neither kind nor layer, and is unique.
using prometheus_label = std::pair<std::string_view, std::string_view>;

namespace detail {

/// A field that becomes the counter `hotset_<name>_total`.
template <class Stats>
struct prometheus_counter {
  std::string_view name;
  std::string_view help;
  std::uint64_t Stats::*field;
};

inline constexpr auto pager_counters = [] {
  using s = pager_stats;
  return std::to_array<prometheus_counter<s>>({
      {"visits", "Visits: one layer in one forward pass.", &s::visits},
      {"accesses", "Distinct experts of visits.", &s::accesses},
      {"hits", "Accesses to experts that were resident before the visit.", &s::hits},
      {"prefetch_hits", "Hits that were the first use of a prefetched expert.", &s::prefetch_hits},
      {"misses", "Accesses that were not hits.", &s::misses},
      {"compulsory_misses", "Misses that were the first use of an expert.", &s::compulsory_misses},
      {"collision_misses",
       "Misses of experts that were evicted earlier in the same step, or before the use that they "
       "were prefetched for.",
       &s::collision_misses},
      {"precision_misses", "Misses of experts that were resident at too low a precision.",
       &s::precision_misses},
      {"bypasses", "Misses that were refused a slot.", &s::bypasses},
      {"dropped_misses", "Misses that a policy dropped.", &s::dropped_misses},
      {"substituted_misses", "Misses served by substitute experts.", &s::substituted_misses},
      {"fills", "Copies on demand.", &s::fills},
      {"speculative_fills", "Copies of prefetches.", &s::speculative_fills},
      {"late_prefetches", "Prefetch hits whose copy had not arrived.", &s::late_prefetches},
      {"wasted_prefetches", "Prefetched experts that lost their slot before a use.",
       &s::wasted_prefetches},
      {"cancelled_prefetches", "Prefetches cancelled before any byte moved.",
       &s::cancelled_prefetches},
      {"refused_prefetches", "Prefetch requests refused because no slot was available.",
       &s::refused_prefetches},
      {"evictions", "Experts that lost their slot.", &s::evictions},
      {"pre_evictions", "Experts evicted ahead of a visit.", &s::pre_evictions},
      {"filled_bytes", "Bytes copied on demand, for prefetches and for warm starts.",
       &s::bytes_filled},
      {"demand_bytes", "Bytes copied on demand.", &s::bytes_demand},
      {"refetched_bytes", "Bytes copied on demand for experts that were evicted too early.",
       &s::bytes_refetched},
      {"warm_bytes", "Bytes copied to fill a cache before its first use.", &s::bytes_warm},
      {"prefetched_bytes", "Bytes of prefetches that were started.", &s::bytes_prefetched},
      {"prefetch_used_bytes", "Bytes of prefetches that were used.", &s::bytes_prefetch_used},
      {"prefetch_wasted_bytes", "Bytes of prefetches that lost their slot before a use.",
       &s::bytes_prefetch_wasted},
      {"prefetch_cancelled_bytes", "Bytes of prefetches that were cancelled.",
       &s::bytes_prefetch_cancelled},
      {"failed_fills", "Copies that failed.", &s::failed_fills},
      {"ignored_ids", "Routed ids that match no expert.", &s::ignored_ids},
      {"split_visits", "Visits that needed more than one group.", &s::split_visits},
      {"groups", "Groups of split visits.", &s::groups},
      {"steps", "Forward passes.", &s::steps},
      {"steps_with_miss", "Forward passes with at least one miss.", &s::steps_with_miss},
  });
}();

inline constexpr auto queue_counters = [] {
  using s = prefetch_queue_stats;
  return std::to_array<prometheus_counter<s>>({
      {"queue_added", "Prefetch requests added to the queue.", &s::added},
      {"queue_repeated", "Prefetch requests for experts already in the queue.", &s::repeated},
      {"queue_issued", "Prefetch requests that were copied, or found resident.", &s::issued},
      {"queue_expired", "Prefetch requests that expired: their visit came first.", &s::expired},
      {"queue_displaced", "Prefetch requests dropped from a full queue.", &s::displaced},
  });
}();

/// True if every label name is valid and unique.
[[nodiscard]] inline bool are_prometheus_labels(
    std::initializer_list<prometheus_label> labels) noexcept {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return std::ranges::all_of(labels, [&](const prometheus_label& label) {
    const auto name = label.first;
    return !name.empty() && !(name.front() >= '0' && name.front() <= '9') &&
           std::ranges::all_of(name, fits) && !name.starts_with("__") && name != "kind" &&
           name != "layer" && std::ranges::count(labels, name, &prometheus_label::first) == 1;
  });
}

/// Writes families in sequence; every sample has the labels of the page.
class prometheus_page {
 public:
  explicit prometheus_page(std::initializer_list<prometheus_label> labels) {
    HOTSET_ASSERT(are_prometheus_labels(labels));
    for (const auto& [name, value] : labels) append_label(labels_, name, value);
  }
  /// Formats nanoseconds as seconds, exactly.
  [[nodiscard]] static std::string seconds(std::uint64_t nanoseconds) {
    constexpr std::uint64_t second = 1'000'000'000;
    return std::to_string(nanoseconds / second) + '.' +
           std::to_string(second + nanoseconds % second).substr(1);
  }
  /// Begins a family. Following samples belong to it; its name begins with hotset_.
  void begin(std::string_view name, std::string_view help, std::string_view type = "counter") {
    family_ = "hotset_" + std::string(name) + (type == "counter" ? "_total" : "");
    text.append("# HELP ").append(family_).append(" ").append(help);
    text.append("\n# TYPE ").append(family_).append(" ").append(type).append("\n");
  }
  /// Writes one sample. `name`, `value`: an additional label, if not empty.
  void sample(std::uint64_t count, std::string_view name = {}, std::string_view value = {}) {
    sample(std::to_string(count), {}, {{name, value}});
  }
  /// `suffix`: of a histogram's sample, such as _bucket. Labels without a name are left out.
  void sample(std::string_view number, std::string_view suffix,
              std::initializer_list<prometheus_label> more) {
    auto labels = labels_;
    for (const auto& [name, value] : more)
      if (!name.empty()) append_label(labels, name, value);
    text.append(family_).append(suffix);
    if (!labels.empty()) text.append("{").append(labels).append("}");
    text.append(" ").append(number).append("\n");
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
    begin(name, help, "gauge");
    sample(value);
  }
  template <class Stats, std::size_t Count>
  void counters(const std::array<prometheus_counter<Stats>, Count>& all, const Stats& stats) {
    for (const auto& [name, help, field] : all) {
      begin(name, help);
      sample(stats.*field);
    }
  }
  void add(const prefetch_queue_stats& stats, std::uint64_t waiting) {
    counters(queue_counters, stats);
    gauge("queue_waiting", "Prefetch requests waiting in the queue.", waiting);
  }
  void add(const pager_stats& stats) {
    counters(pager_counters, stats);
    const auto by_kind = [&](std::string_view name, std::string_view help, auto field) {
      begin(name, help);
      for (const auto& [kind, word] : request_classes)
        sample(stats.by_kind[static_cast<std::size_t>(kind)].*field, "kind", word);
    };
    by_kind("accesses_by_kind", "Accesses by class of the request.", &access_counts::accesses);
    by_kind("hits_by_kind", "Hits by class of the request.", &access_counts::hits);
    const auto by_layer = [&](std::string_view name, std::string_view help, auto field) {
      if (!stats.per_layer.empty()) begin(name, help);
      for (std::size_t layer = 0; layer < stats.per_layer.size(); ++layer)
        sample(stats.per_layer[layer].*field, "layer", std::to_string(layer));
    };
    by_layer("accesses_by_layer", "Accesses by layer.", &access_counts::accesses);
    by_layer("hits_by_layer", "Hits by layer.", &access_counts::hits);
    by_layer("collision_misses_by_layer", "Collision misses by layer.", &access_counts::collisions);
  }

  std::string text;

 private:
  /// Appends `name="value"`, separated by commas, without braces.
  static void append_label(std::string& out, std::string_view name, std::string_view value) {
    if (!out.empty()) out += ',';
    out.append(name).append("=\"");
    for (const char c : value) {
      if (c == '\\' || c == '"') out += '\\';
      c == '\n' ? out.append("\\n") : out.append(1, c);
    }
    out += '"';
  }

  std::string labels_;
  std::string family_;
};

}  // namespace detail

/// Returns the counters of a pager as text. Each sample has the given labels.
[[nodiscard]] inline std::string prometheus_text(
    const pager_stats& stats, std::initializer_list<prometheus_label> labels = {}) {
  detail::prometheus_page page(labels);
  page.add(stats);
  return page.text;
}
/// Returns the counters of a running slot_cache as text: those of its pager and its queue. Threads: as any other call
/// of the cache.
template <class Cache>
  requires requires(const Cache& cache) {
    { cache.stats() } -> std::convertible_to<pager_stats>;
    { cache.queue() } -> std::convertible_to<const prefetch_queue&>;
  }
[[nodiscard]] std::string prometheus_text(const Cache& cache,
                                          std::initializer_list<prometheus_label> labels = {}) {
  detail::prometheus_page page(labels);
  page.add(cache.stats());
  page.add(cache.queue().stats(), cache.queue().size());
  return page.text;
}

}  // namespace hotset
