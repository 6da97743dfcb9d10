// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Metrics of a running cache: counters of its decisions, times of its copies and waits, slots and budget. One thread
/// runs the cache, another may read the metrics as Prometheus text. docs/metrics.md lists them.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/cache/prometheus.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/transfer/prefetch_queue.hpp"
#include "hotset/transfer/transfer_observer.hpp"
#include "hotset/version.hpp"

namespace hotset {

namespace detail {

/// Words that one thread writes and others read as a whole. The writer never waits. No data race: all are atomics.
/// A release store of a word orders it after the store of the odd version; an acquire load orders it before the second
/// load of the version.
class shared_words {
 public:
  explicit shared_words(std::size_t count) : words_(count) {}

  /// Calls write(set), which calls set(value) once for each word, in order. Threads: one writer.
  template <class Write>
  void store(Write write) noexcept {
    const auto version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::size_t i = 0;
    write([&](std::uint64_t value) { words_[i++].store(value, std::memory_order_release); });
    version_.store(version + 2, std::memory_order_release);
  }
  [[nodiscard]] std::vector<std::uint64_t> load() const {
    std::vector<std::uint64_t> out(words_.size());
    while (true) {
      const auto version = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = words_[i].load(std::memory_order_acquire);
      if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version) return out;
    }
  }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
  std::atomic<std::uint64_t> version_ = 0;
};

/// Times and bytes of copies. Threads: safe.
class copy_times {
 public:
  void add(std::uint64_t nanoseconds, std::uint64_t bytes) noexcept {
    std::size_t bucket = 0;
    while (bucket < bounds.size() && nanoseconds > bounds[bucket].first) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(nanoseconds, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  void write(prometheus_page& page, std::string_view copy) const {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i <= bounds.size(); ++i) {
      below += counts_[i].load(std::memory_order_relaxed);
      page.sample(std::to_string(below), "_bucket",
                  {{"copy", copy}, {"le", i < bounds.size() ? bounds[i].second : "+Inf"}});
    }
    page.sample(prometheus_page::seconds(nanoseconds_.load(std::memory_order_relaxed)), "_sum",
                {{"copy", copy}});
    page.sample(std::to_string(below), "_count", {{"copy", copy}});
  }

 private:
  /// Upper bounds of the buckets, in nanoseconds and as text in seconds.
  static constexpr auto bounds = std::to_array<std::pair<std::uint64_t, std::string_view>>({
      {10'000, "0.00001"},
      {30'000, "0.00003"},
      {100'000, "0.0001"},
      {300'000, "0.0003"},
      {1'000'000, "0.001"},
      {3'000'000, "0.003"},
      {10'000'000, "0.01"},
      {30'000'000, "0.03"},
      {100'000'000, "0.1"},
      {300'000'000, "0.3"},
      {1'000'000'000, "1"},
  });

  std::array<std::atomic<std::uint64_t>, bounds.size() + 1> counts_{};
  std::atomic<std::uint64_t> nanoseconds_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
};

/// Slots and bytes of a cache.
struct cache_room {
  std::uint64_t slots = 0;
  std::uint64_t residents = 0;
  std::uint64_t slot_bytes = 0;
};
/// Pager: a pager. Units: bytes are 0 if the shape does not know the bytes of an expert.
template <class Pager>
[[nodiscard]] cache_room room_of(const Pager& pages) noexcept {
  const auto& layout = pages.layout();
  cache_room out;
  for (const auto p : each<pool_id>(layout.pools())) {
    const auto& pool = layout.at(p);
    const auto layer = pool.layers.front();
    // set_quota changes the pool of the highest precision alone.
    const auto slots = static_cast<std::uint64_t>(
        layout.pool_of_layer(layer) == p ? pages.quota(layer) : pool.slots);
    out.slots += slots;
    out.residents += slots - pages.free_slots(p);
    if (!layout.shape().expert_bytes.empty())
      out.slot_bytes += slots * layout.shape().bytes_of(layer, pool.precision);
  }
  return out;
}

}  // namespace detail

/// Pass it to a backend as its observer, and call `publish` between visits, such as after each step.
/// Threads: one calls `publish`; every other call is safe. `publish` takes no lock and never waits.
class cache_metrics final : public transfer_observer {
 public:
  /// `policy`: name of the eviction policy.
  cache_metrics(const geometry& shape, std::string policy)
      : policy_(std::move(policy)),
        keys_(shape.keys()),
        layers_(shape.layer_count()),
        shared_(words_of(layers_)) {}

  void on_copy(const ended_copy& copy) noexcept override {
    if (copy.arrived)
      copies_[copy.is_ahead() ? 1 : 0].add(nanoseconds_between(copy.submitted, copy.end),
                                           copy.bytes);
  }
  void on_wait(const ended_wait& wait) noexcept override {
    stalled_.fetch_add(nanoseconds_between(wait.begin, wait.end), std::memory_order_relaxed);
    stalls_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Copies the counters of a cache for readers. Cache: a slot_cache of the shape. `budget`: memory that the slots
  /// share with other pools; null: none. `stats`: counters to show in place of the cache's own.
  template <class Cache>
  void publish(const Cache& cache, const memory_budget* budget, const pager_stats& stats) {
    HOTSET_ASSERT(stats.per_layer.size() == layers_);
    const auto room = detail::room_of(cache.pager());
    const auto limit = budget != nullptr ? budget->limit() : room.slot_bytes;
    const auto used = budget != nullptr ? budget->in_use() : room.slot_bytes;
    const auto& queue = cache.queue();
    shared_.store([&](auto set) {
      set(room.slots), set(room.residents), set(room.slot_bytes), set(limit), set(used);
      set(queue.size());
      for (const auto& counter : detail::queue_counters) set(queue.stats().*counter.field);
      for (const auto& counter : detail::pager_counters) set(stats.*counter.field);
      each_count(stats, set);
    });
  }
  template <class Cache>
  void publish(const Cache& cache, const memory_budget* budget = nullptr) {
    publish(cache, budget, cache.stats());
  }

  /// Prometheus text. Counters are those of the last `publish`; times are up to date.
  [[nodiscard]] std::string text() const {
    detail::prometheus_page page({});
    const auto words = shared_.load();
    auto next = words.begin();
    page.begin("info", "Version of hotset and eviction policy of the cache; always 1.", "gauge");
    page.sample("1", {}, {{"version", HOTSET_VERSION_TEXT}, {"policy", policy_}});
    page.gauge("experts", "Experts of the model: layers times experts per layer.", keys_);
    page.gauge("slots", "Slots that may hold experts now.", *next++);
    page.gauge("resident_experts",
               "Experts that have a slot, including those whose copy has not arrived.", *next++);
    page.gauge("slot_bytes", "Memory of the slots.", *next++);
    page.gauge("budget_bytes",
               "Limit on the memory that the slots share with other pools; without other pools, "
               "the memory of the slots.",
               *next++);
    page.gauge("budget_used_bytes", "Part of the budget in use, by slots and by other pools.",
               *next++);
    write_times(page);
    const auto waiting = *next++;
    prefetch_queue_stats queue;
    for (const auto& counter : detail::queue_counters) queue.*counter.field = *next++;
    pager_stats stats;
    for (const auto& counter : detail::pager_counters) stats.*counter.field = *next++;
    stats.per_layer.resize(layers_);
    each_count(stats, [&](std::uint64_t& count) { count = *next++; });
    page.add(stats);
    page.add(queue, waiting);
    return page.text;
  }

  /// Time that visits have waited for copies.
  [[nodiscard]] std::uint64_t stalled_nanoseconds() const noexcept {
    return stalled_.load(std::memory_order_relaxed);
  }

 private:
  /// Counts by request class and by layer.
  template <class Stats, class Use>
  static void each_count(Stats& stats, Use use) {
    for (auto& kind : stats.by_kind) use(kind.accesses), use(kind.hits);
    for (auto& layer : stats.per_layer) use(layer.accesses), use(layer.hits), use(layer.collisions);
  }
  static std::size_t words_of(std::size_t layers) {
    constexpr std::size_t of_room = 6;
    return of_room + detail::queue_counters.size() + detail::pager_counters.size() +
           2 * pager_stats().by_kind.size() + 3 * layers;
  }
  void write_times(detail::prometheus_page& page) const {
    using page_type = detail::prometheus_page;
    page.begin("stall_seconds", "Time that visits waited for copies.");
    page.sample(page_type::seconds(stalled_nanoseconds()), {}, {});
    page.begin("stalls", "Waits of visits for copies.");
    page.sample(stalls_.load(std::memory_order_relaxed));
    page.begin("copy_seconds", "Time of a copy from its submission to its arrival.", "histogram");
    for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].write(page, names[i]);
    page.begin("link_bytes", "Bytes that completed copies have moved.");
    for (std::size_t i = 0; i < copies_.size(); ++i)
      page.sample(copies_[i].bytes(), "copy", names[i]);
  }

  static constexpr std::array<std::string_view, 2> names = {"demand", "prefetch"};

  std::string policy_;
  std::size_t keys_;
  std::size_t layers_;
  detail::shared_words shared_;
  std::array<detail::copy_times, 2> copies_{};
  std::atomic<std::uint64_t> stalled_ = 0;
  std::atomic<std::uint64_t> stalls_ = 0;
};

}  // namespace hotset
