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

template <class Stats>
struct prometheus_counter {
  std::string_view name;
  std::string_view help;
  std::uint64_t Stats::*field;
};

inline constexpr auto pager_counters = std::to_array<prometheus_counter<pager_stats>>({
    {"hotset_visits_total", "Visits: one layer in one forward pass.", &pager_stats::visits},
    {"hotset_accesses_total", "Distinct experts of visits.", &pager_stats::accesses},
    {"hotset_hits_total", "Accesses to experts that were resident before the visit.",
     &pager_stats::hits},
    {"hotset_prefetch_hits_total", "Hits that were the first use of a prefetched expert.",
     &pager_stats::prefetch_hits},
    {"hotset_misses_total", "Accesses that were no hits.", &pager_stats::misses},
    {"hotset_compulsory_misses_total", "Misses that were the first use of an expert.",
     &pager_stats::compulsory_misses},
    {"hotset_collision_misses_total",
     "Misses of experts that were evicted earlier in the same step, or before the use that they "
     "were "
     "prefetched for.",
     &pager_stats::collision_misses},
    {"hotset_precision_misses_total",
     "Misses of experts that were resident at too low a precision.",
     &pager_stats::precision_misses},
    {"hotset_bypasses_total", "Misses that were refused a slot.", &pager_stats::bypasses},
    {"hotset_dropped_misses_total", "Misses that a policy left out.", &pager_stats::dropped_misses},
    {"hotset_substituted_misses_total", "Misses that other experts stood in for.",
     &pager_stats::substituted_misses},
    {"hotset_fills_total", "Copies on demand.", &pager_stats::fills},
    {"hotset_speculative_fills_total", "Copies of prefetches.", &pager_stats::speculative_fills},
    {"hotset_late_prefetches_total", "Prefetch hits whose copy was still on its way.",
     &pager_stats::late_prefetches},
    {"hotset_wasted_prefetches_total", "Prefetched experts that lost their slot before a use.",
     &pager_stats::wasted_prefetches},
    {"hotset_cancelled_prefetches_total", "Prefetches taken back before a byte of them moved.",
     &pager_stats::cancelled_prefetches},
    {"hotset_refused_prefetches_total", "Prefetches for which there was no slot to take.",
     &pager_stats::refused_prefetches},
    {"hotset_evictions_total", "Experts that lost their slot.", &pager_stats::evictions},
    {"hotset_pre_evictions_total", "Of them, ahead of a visit.", &pager_stats::pre_evictions},
    {"hotset_filled_bytes_total", "Bytes copied: on demand, prefetched and warm.",
     &pager_stats::bytes_filled},
    {"hotset_demand_bytes_total", "Bytes copied on demand.", &pager_stats::bytes_demand},
    {"hotset_refetched_bytes_total",
     "Bytes copied on demand of experts that were evicted too early.",
     &pager_stats::bytes_refetched},
    {"hotset_warm_bytes_total", "Bytes copied to fill a cache before its first use.",
     &pager_stats::bytes_warm},
    {"hotset_prefetched_bytes_total", "Bytes of prefetches that were begun.",
     &pager_stats::bytes_prefetched},
    {"hotset_prefetch_used_bytes_total", "Bytes of prefetches that were used.",
     &pager_stats::bytes_prefetch_used},
    {"hotset_prefetch_wasted_bytes_total", "Bytes of prefetches that lost their slot before a use.",
     &pager_stats::bytes_prefetch_wasted},
    {"hotset_prefetch_cancelled_bytes_total", "Bytes of prefetches that were taken back.",
     &pager_stats::bytes_prefetch_cancelled},
    {"hotset_failed_fills_total", "Copies that failed.", &pager_stats::failed_fills},
    {"hotset_ignored_ids_total", "Routed ids that named no expert.", &pager_stats::ignored_ids},
    {"hotset_split_visits_total", "Visits that needed more than one group.",
     &pager_stats::split_visits},
    {"hotset_groups_total", "Groups of split visits.", &pager_stats::groups},
    {"hotset_steps_total", "Forward passes.", &pager_stats::steps},
    {"hotset_steps_with_miss_total", "Forward passes with at least one miss.",
     &pager_stats::steps_with_miss},
});

inline constexpr auto queue_counters = std::to_array<prometheus_counter<prefetch_queue_stats>>({
    {"hotset_queue_added_total", "Prefetch requests that came to the queue.",
     &prefetch_queue_stats::added},
    {"hotset_queue_repeated_total", "Prefetch requests of experts that waited already.",
     &prefetch_queue_stats::repeated},
    {"hotset_queue_issued_total", "Prefetch requests that were copied, or found resident.",
     &prefetch_queue_stats::issued},
    {"hotset_queue_expired_total", "Prefetch requests whose visit came first.",
     &prefetch_queue_stats::expired},
    {"hotset_queue_displaced_total", "Prefetch requests that a full queue lost.",
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

[[nodiscard]] inline bool is_prometheus_name(std::string_view name) noexcept {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto letter_or_digit = [letter](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, letter_or_digit) &&
         !name.starts_with("__") && name != "kind" && name != "layer";
}

/// Each name may stand, and stands once.
[[nodiscard]] inline bool are_prometheus_labels(
    std::span<const std::pair<std::string_view, std::string_view>> labels) noexcept {
  return std::ranges::all_of(labels, [&](const auto& label) {
    return is_prometheus_name(label.first) &&
           std::ranges::count(labels, label.first, [](const auto& l) { return l.first; }) == 1;
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
      sample(name, help, "counter", own, stats.*field);
    constexpr std::array<std::string_view, 3> kinds{"decode", "prefill", "verify"};
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const auto which = with(own, "kind", kinds[kind]);
      const auto& counted = stats.by_kind[kind];
      sample("hotset_accesses_by_kind_total", "Accesses by class of the request.", "counter", which,
             counted.accesses);
      sample("hotset_hits_by_kind_total", "Hits by class of the request.", "counter", which,
             counted.hits);
    }
    for (std::size_t layer = 0; layer < stats.per_layer.size(); ++layer) {
      const auto which = with(own, "layer", std::to_string(layer));
      const auto& counted = stats.per_layer[layer];
      sample("hotset_accesses_by_layer_total", "Accesses by layer.", "counter", which,
             counted.accesses);
      sample("hotset_hits_by_layer_total", "Hits by layer.", "counter", which, counted.hits);
      sample("hotset_collision_misses_by_layer_total", "Collision misses by layer.", "counter",
             which, counted.collisions);
    }
  }
  void add(const prefetch_queue& queue, prometheus_labels labels = {}) {
    const auto own = text_of(labels);
    for (const auto& [name, help, field] : detail::queue_counters)
      sample(name, help, "counter", own, queue.stats().*field);
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
    std::string_view name;
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

  void sample(std::string_view name, std::string_view help, std::string_view type,
              const std::string& labels, std::uint64_t value) {
    auto at = std::ranges::find(families_, name, &family::name);
    if (at == families_.end()) at = families_.insert(at, {name, help, type});
    at->samples += name;
    if (!labels.empty()) at->samples.append("{").append(labels).append("}");
    at->samples.append(" ").append(std::to_string(value)).append("\n");
  }

  std::vector<family> families_;
};

/// One cache's counters, with the same labels on each. Allocates.
[[nodiscard]] inline std::string prometheus_text(const pager_stats& stats,
                                                 prometheus_labels labels = {}) {
  prometheus_page page;
  page.add(stats, labels);
  return page.text();
}

/// What became of prefetch requests, and how many wait.
[[nodiscard]] inline std::string prometheus_text(const prefetch_queue& queue,
                                                 prometheus_labels labels = {}) {
  prometheus_page page;
  page.add(queue, labels);
  return page.text();
}

/// A running slot_cache: its pager and its queue. Where there are several, use one prometheus_page.
template <class Cache>
  requires requires(prometheus_page page, const Cache& cache) { page.add(cache); }
[[nodiscard]] std::string prometheus_text(const Cache& cache, prometheus_labels labels = {}) {
  prometheus_page page;
  page.add(cache, labels);
  return page.text();
}

}  // namespace hotset
