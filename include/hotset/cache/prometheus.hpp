// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counters of a cache as text that Prometheus reads (exposition format 0.0.4).
///
/// Every field of pager_stats is a counter: `hits` is `hotset_hits_total`, `bytes_filled` is
/// `hotset_filled_bytes_total`. Counts by request class and by layer are families of their own
/// (`hotset_hits_by_kind_total{kind="decode"}`, `hotset_hits_by_layer_total{layer="3"}`), so that the sum
/// over a family counts nothing twice. All of this allocates: it belongs beside the hot path.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/transfer/prefetch_queue.hpp"

namespace hotset {

/// Name and value of a label. Pre: the name is [a-zA-Z_][a-zA-Z0-9_]*, does not begin with two underscores, and is
/// neither kind nor layer; no name is given twice.
using prometheus_label = std::pair<std::string_view, std::string_view>;

namespace detail {

/// A field that is the counter `hotset_<name>_total`.
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
      {"misses", "Accesses that were no hits.", &s::misses},
      {"compulsory_misses", "Misses that were the first use of an expert.", &s::compulsory_misses},
      {"collision_misses",
       "Misses of experts that were evicted earlier in the same step, or before the use that they "
       "were prefetched for.",
       &s::collision_misses},
      {"precision_misses", "Misses of experts that were resident at too low a precision.",
       &s::precision_misses},
      {"bypasses", "Misses that were refused a slot.", &s::bypasses},
      {"dropped_misses", "Misses that a policy left out.", &s::dropped_misses},
      {"substituted_misses", "Misses that other experts stood in for.", &s::substituted_misses},
      {"fills", "Copies on demand.", &s::fills},
      {"speculative_fills", "Copies of prefetches.", &s::speculative_fills},
      {"late_prefetches", "Prefetch hits whose copy was still on its way.", &s::late_prefetches},
      {"wasted_prefetches", "Prefetched experts that lost their slot before a use.",
       &s::wasted_prefetches},
      {"cancelled_prefetches", "Prefetches taken back before a byte of them moved.",
       &s::cancelled_prefetches},
      {"refused_prefetches", "Prefetches for which there was no slot to take.",
       &s::refused_prefetches},
      {"evictions", "Experts that lost their slot.", &s::evictions},
      {"pre_evictions", "Of them, ahead of a visit.", &s::pre_evictions},
      {"filled_bytes", "Bytes copied: on demand, prefetched and warm.", &s::bytes_filled},
      {"demand_bytes", "Bytes copied on demand.", &s::bytes_demand},
      {"refetched_bytes", "Bytes copied on demand of experts that were evicted too early.",
       &s::bytes_refetched},
      {"warm_bytes", "Bytes copied to fill a cache before its first use.", &s::bytes_warm},
      {"prefetched_bytes", "Bytes of prefetches that were begun.", &s::bytes_prefetched},
      {"prefetch_used_bytes", "Bytes of prefetches that were used.", &s::bytes_prefetch_used},
      {"prefetch_wasted_bytes", "Bytes of prefetches that lost their slot before a use.",
       &s::bytes_prefetch_wasted},
      {"prefetch_cancelled_bytes", "Bytes of prefetches that were taken back.",
       &s::bytes_prefetch_cancelled},
      {"failed_fills", "Copies that failed.", &s::failed_fills},
      {"ignored_ids", "Routed ids that named no expert.", &s::ignored_ids},
      {"split_visits", "Visits that needed more than one group.", &s::split_visits},
      {"groups", "Groups of split visits.", &s::groups},
      {"steps", "Forward passes.", &s::steps},
      {"steps_with_miss", "Forward passes with at least one miss.", &s::steps_with_miss},
  });
}();

inline constexpr auto queue_counters = [] {
  using s = prefetch_queue_stats;
  return std::to_array<prometheus_counter<s>>({
      {"queue_added", "Prefetch requests that came to the queue.", &s::added},
      {"queue_repeated", "Prefetch requests of experts that waited already.", &s::repeated},
      {"queue_issued", "Prefetch requests that were copied, or found resident.", &s::issued},
      {"queue_expired", "Prefetch requests whose visit came first.", &s::expired},
      {"queue_displaced", "Prefetch requests that a full queue lost.", &s::displaced},
  });
}();

/// Each name may stand, and stands once.
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

/// Writes families one after the other; every sample has the labels of the page.
class prometheus_page {
 public:
  explicit prometheus_page(std::initializer_list<prometheus_label> labels) {
    HOTSET_ASSERT(are_prometheus_labels(labels));
    for (const auto& [name, value] : labels) append_label(labels_, name, value);
  }
  /// The samples that follow are of this family, whose name begins with hotset_.
  void begin(std::string_view name, std::string_view help, std::string_view type = "counter") {
    family_ = "hotset_" + std::string(name) + (type == "counter" ? "_total" : "");
    text.append("# HELP ").append(family_).append(" ").append(help);
    text.append("\n# TYPE ").append(family_).append(" ").append(type).append("\n");
  }
  /// `name`, `value`: a label beside those of the page, if any.
  void sample(std::uint64_t count, std::string_view name = {}, std::string_view value = {}) {
    auto labels = labels_;
    if (!name.empty()) append_label(labels, name, value);
    text += family_;
    if (!labels.empty()) text.append("{").append(labels).append("}");
    text.append(" ").append(std::to_string(count)).append("\n");
  }
  template <class Stats, std::size_t Count>
  void counters(const std::array<prometheus_counter<Stats>, Count>& all, const Stats& stats) {
    for (const auto& [name, help, field] : all) {
      begin(name, help);
      sample(stats.*field);
    }
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
  /// `name="value"`, separated by commas, without braces.
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

/// The counters of a pager as text, with the same labels on each sample.
[[nodiscard]] inline std::string prometheus_text(
    const pager_stats& stats, std::initializer_list<prometheus_label> labels = {}) {
  detail::prometheus_page page(labels);
  page.add(stats);
  return page.text;
}
/// The counters of a running slot_cache as text: those of its pager and of its queue. Threads: as of any other call of the
/// cache.
template <class Cache>
  requires requires(const Cache& cache) {
    { cache.stats() } -> std::convertible_to<pager_stats>;
    { cache.queue() } -> std::convertible_to<const prefetch_queue&>;
  }
[[nodiscard]] std::string prometheus_text(const Cache& cache,
                                          std::initializer_list<prometheus_label> labels = {}) {
  detail::prometheus_page page(labels);
  page.add(cache.stats());
  page.counters(detail::queue_counters, cache.queue().stats());
  page.begin("queue_waiting", "Prefetch requests that wait.", "gauge");
  page.sample(cache.queue().size());
  return page.text;
}

}  // namespace hotset
