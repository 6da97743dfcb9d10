// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counters of caches as text that Prometheus reads (exposition format 0.0.4).
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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/transfer/prefetch_queue.hpp"

namespace hotset {

/// Name and value. Pre, where it is used: the name is [a-zA-Z_][a-zA-Z0-9_]*, does not begin with two underscores,
/// and is neither kind nor layer.
using prometheus_label = std::pair<std::string_view, std::string_view>;

/// Labels for every sample of a cache. A parameter only: it refers to what it is made from. Pre: no name twice.
class prometheus_labels {
 public:
  prometheus_labels() = default;
  prometheus_labels(std::initializer_list<prometheus_label> labels)
      : labels_(labels.begin(), labels.size()) {}
  prometheus_labels(std::span<const prometheus_label> labels) : labels_(labels) {}

  [[nodiscard]] std::span<const prometheus_label> all() const noexcept { return labels_; }

 private:
  std::span<const prometheus_label> labels_;
};

namespace detail {

/// A field that is the counter `hotset_<name>_total`.
template <class Stats>
struct prometheus_counter {
  std::string_view name;
  std::string_view help;
  std::uint64_t Stats::*field;
};

inline constexpr auto pager_counters = std::to_array<prometheus_counter<pager_stats>>({
    {"visits", "Visits: one layer in one forward pass.", &pager_stats::visits},
    {"accesses", "Distinct experts of visits.", &pager_stats::accesses},
    {"hits", "Accesses to experts that were resident before the visit.", &pager_stats::hits},
    {"prefetch_hits", "Hits that were the first use of a prefetched expert.",
     &pager_stats::prefetch_hits},
    {"misses", "Accesses that were no hits.", &pager_stats::misses},
    {"compulsory_misses", "Misses that were the first use of an expert.",
     &pager_stats::compulsory_misses},
    {"collision_misses",
     "Misses of experts that were evicted earlier in the same step, or before the use that they "
     "were "
     "prefetched for.",
     &pager_stats::collision_misses},
    {"precision_misses", "Misses of experts that were resident at too low a precision.",
     &pager_stats::precision_misses},
    {"bypasses", "Misses that were refused a slot.", &pager_stats::bypasses},
    {"dropped_misses", "Misses that a policy left out.", &pager_stats::dropped_misses},
    {"substituted_misses", "Misses that other experts stood in for.",
     &pager_stats::substituted_misses},
    {"fills", "Copies on demand.", &pager_stats::fills},
    {"speculative_fills", "Copies of prefetches.", &pager_stats::speculative_fills},
    {"late_prefetches", "Prefetch hits whose copy was still on its way.",
     &pager_stats::late_prefetches},
    {"wasted_prefetches", "Prefetched experts that lost their slot before a use.",
     &pager_stats::wasted_prefetches},
    {"cancelled_prefetches", "Prefetches taken back before a byte of them moved.",
     &pager_stats::cancelled_prefetches},
    {"refused_prefetches", "Prefetches for which there was no slot to take.",
     &pager_stats::refused_prefetches},
    {"evictions", "Experts that lost their slot.", &pager_stats::evictions},
    {"pre_evictions", "Of them, ahead of a visit.", &pager_stats::pre_evictions},
    {"filled_bytes", "Bytes copied: on demand, prefetched and warm.", &pager_stats::bytes_filled},
    {"demand_bytes", "Bytes copied on demand.", &pager_stats::bytes_demand},
    {"refetched_bytes", "Bytes copied on demand of experts that were evicted too early.",
     &pager_stats::bytes_refetched},
    {"warm_bytes", "Bytes copied to fill a cache before its first use.", &pager_stats::bytes_warm},
    {"prefetched_bytes", "Bytes of prefetches that were begun.", &pager_stats::bytes_prefetched},
    {"prefetch_used_bytes", "Bytes of prefetches that were used.",
     &pager_stats::bytes_prefetch_used},
    {"prefetch_wasted_bytes", "Bytes of prefetches that lost their slot before a use.",
     &pager_stats::bytes_prefetch_wasted},
    {"prefetch_cancelled_bytes", "Bytes of prefetches that were taken back.",
     &pager_stats::bytes_prefetch_cancelled},
    {"failed_fills", "Copies that failed.", &pager_stats::failed_fills},
    {"ignored_ids", "Routed ids that named no expert.", &pager_stats::ignored_ids},
    {"split_visits", "Visits that needed more than one group.", &pager_stats::split_visits},
    {"groups", "Groups of split visits.", &pager_stats::groups},
    {"steps", "Forward passes.", &pager_stats::steps},
    {"steps_with_miss", "Forward passes with at least one miss.", &pager_stats::steps_with_miss},
});

inline constexpr auto queue_counters = std::to_array<prometheus_counter<prefetch_queue_stats>>({
    {"queue_added", "Prefetch requests that came to the queue.", &prefetch_queue_stats::added},
    {"queue_repeated", "Prefetch requests of experts that waited already.",
     &prefetch_queue_stats::repeated},
    {"queue_issued", "Prefetch requests that were copied, or found resident.",
     &prefetch_queue_stats::issued},
    {"queue_expired", "Prefetch requests whose visit came first.", &prefetch_queue_stats::expired},
    {"queue_displaced", "Prefetch requests that a full queue lost.",
     &prefetch_queue_stats::displaced},
});

/// `name="value"`, separated by commas, without braces.
inline void append_prometheus_label(std::string& out, std::string_view name,
                                    std::string_view value) {
  if (!out.empty()) out += ',';
  out.append(name).append("=\"");
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  out += '"';
}

/// Each name may stand, and stands once.
[[nodiscard]] inline bool are_prometheus_labels(std::span<const prometheus_label> labels) noexcept {
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

}  // namespace detail

/// A text about several caches: each family is written once, however many have samples of it.
///
/// Pre: no two adds of one kind have the same labels. Threads: none of its own; a cache is read as by any
/// other call of it.
class prometheus_page {
 public:
  void add(const pager_stats& stats, prometheus_labels labels = {}) {
    const auto own = text_of(labels);
    for (const auto& [name, help, field] : detail::pager_counters)
      count(name, help, own, stats.*field);
    for (const auto& [kind, word] : request_classes) {
      const auto which = with(own, "kind", word);
      const auto& counted = stats.by_kind[static_cast<std::size_t>(kind)];
      count("accesses_by_kind", "Accesses by class of the request.", which, counted.accesses);
      count("hits_by_kind", "Hits by class of the request.", which, counted.hits);
    }
    for (std::size_t layer = 0; layer < stats.per_layer.size(); ++layer) {
      const auto which = with(own, "layer", std::to_string(layer));
      const auto& counted = stats.per_layer[layer];
      count("accesses_by_layer", "Accesses by layer.", which, counted.accesses);
      count("hits_by_layer", "Hits by layer.", which, counted.hits);
      count("collision_misses_by_layer", "Collision misses by layer.", which, counted.collisions);
    }
  }
  void add(const prefetch_queue& queue, prometheus_labels labels = {}) {
    const auto own = text_of(labels);
    for (const auto& [name, help, field] : detail::queue_counters)
      count(name, help, own, queue.stats().*field);
    sample("hotset_queue_waiting", "Prefetch requests that wait.", "gauge", own, queue.size());
  }
  /// A running slot_cache: its pager and its queue.
  template <class Cache>
    requires requires(const Cache& cache) {
      { cache.stats() } -> std::convertible_to<pager_stats>;
      { cache.queue() } -> std::convertible_to<const prefetch_queue&>;
    }
  void add(const Cache& cache, prometheus_labels labels = {}) {
    add(cache.stats(), labels);
    add(cache.queue(), labels);
  }

  /// Families in the order in which they came, samples in the order of adding.
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const auto& f : families_) {
      out.append("# HELP ").append(f.name).append(" ").append(f.help).append("\n# TYPE ");
      out.append(f.name).append(" ").append(f.type).append("\n").append(f.samples);
    }
    return out;
  }

 private:
  struct family {
    std::string name;
    std::string_view help;
    std::string_view type;
    std::string samples{};
  };

  static std::string text_of(prometheus_labels labels) {
    std::string out;
    HOTSET_ASSERT(detail::are_prometheus_labels(labels.all()));
    for (const auto& [name, value] : labels.all())
      detail::append_prometheus_label(out, name, value);
    return out;
  }
  static std::string with(std::string labels, std::string_view name, std::string_view value) {
    detail::append_prometheus_label(labels, name, value);
    return labels;
  }

  void count(std::string_view name, std::string_view help, const std::string& labels,
             std::uint64_t value) {
    sample("hotset_" + std::string(name) + "_total", help, "counter", labels, value);
  }
  void sample(const std::string& name, std::string_view help, std::string_view type,
              const std::string& labels, std::uint64_t value) {
    auto at = std::ranges::find(families_, name, &family::name);
    if (at == families_.end()) at = families_.insert(at, {name, help, type});
    at->samples += name;
    if (!labels.empty()) at->samples.append("{").append(labels).append("}");
    at->samples.append(" ").append(std::to_string(value)).append("\n");
  }

  std::vector<family> families_;
};

/// The text of pager_stats, of a prefetch_queue, or of a running slot_cache (its pager and its queue), with the same
/// labels on each sample. For several caches use one prometheus_page. Allocates.
template <class Counted>
  requires requires(prometheus_page page, const Counted& counted) { page.add(counted); }
[[nodiscard]] std::string prometheus_text(const Counted& counted, prometheus_labels labels = {}) {
  prometheus_page page;
  page.add(counted, labels);
  return page.text();
}

}  // namespace hotset
