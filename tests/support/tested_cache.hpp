// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A slot_cache of any pager over an unruly backend, behind one interface, with allocations of its calls counted.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/cache/slot_cache.hpp"
#include "pager_walk.hpp"
#include "unruly_backend.hpp"
#include "watched_allocations.hpp"

namespace hotset::support {

class tested_cache {
 public:
  virtual ~tested_cache() = default;
  [[nodiscard]] virtual cache_visit make_visit() const = 0;
  virtual status resolve(const routing_view& view, cache_visit& visit) = 0;
  virtual status resolve_next(cache_visit& visit) = 0;
  virtual void release(cache_visit& visit) = 0;
  virtual void abandon(cache_visit& visit) = 0;
  virtual status prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                          const forecast& expected) = 0;
  virtual status warm(std::span<const expert_key> keys) = 0;
  virtual status invalidate(expert_key key) = 0;
  virtual status invalidate(layer_id layer) = 0;
  virtual status set_quota(layer_id layer, std::int32_t slots) = 0;
  virtual status compact(const std::function<void(slot_id, slot_id)>& moved) = 0;
  virtual status drain() = 0;
  virtual status settle() = 0;

  [[nodiscard]] virtual std::span<const slot_id> row(layer_id layer) const = 0;
  [[nodiscard]] virtual std::uint64_t row_version(layer_id layer) const = 0;
  [[nodiscard]] virtual pager_stats stats() const = 0;
  [[nodiscard]] virtual const prefetch_queue& queue() const = 0;
  [[nodiscard]] virtual const pool_layout& layout() const = 0;
  [[nodiscard]] virtual const slot_entry& slot(slot_id s) const = 0;
  [[nodiscard]] virtual slot_id locate(expert_key key) const = 0;
  [[nodiscard]] virtual precision_id precision_of(slot_id s) const = 0;
  [[nodiscard]] virtual std::int32_t quota(layer_id layer) const = 0;
  [[nodiscard]] virtual std::int32_t least_quota(layer_id layer) const = 0;
  [[nodiscard]] virtual std::vector<expert_key> residents() = 0;
  virtual void expect_consistent() = 0;
};

template <class Pager>
class tested_slot_cache final : public tested_cache {
 public:
  tested_slot_cache(typename Pager::config setup, const slot_cache_config& config,
                    unruly_backend& backend, event_trail& trail)
      : trail_(trail), cache_(Pager(std::move(setup)), backend, config) {}

  [[nodiscard]] cache_visit make_visit() const override { return cache_.make_visit(); }
  status resolve(const routing_view& view, cache_visit& visit) override {
    return watched("resolve", [&] { return cache_.resolve(view, stream_, visit); });
  }
  status resolve_next(cache_visit& visit) override {
    return watched("resolve_next", [&] { return cache_.resolve_next(stream_, visit); });
  }
  void release(cache_visit& visit) override {
    (void)watched("release", [&] {
      cache_.release(visit, stream_);
      return status::ok;
    });
  }
  void abandon(cache_visit& visit) override {
    (void)watched("abandon", [&] {
      cache_.abandon(visit, stream_);
      return status::ok;
    });
  }
  status prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                  const forecast& expected) override {
    return watched("prefetch",
                   [&] { return cache_.prefetch(context, requests, stream_, expected); });
  }
  status warm(std::span<const expert_key> keys) override {
    return watched("warm", [&] { return cache_.warm(keys, stream_); });
  }
  status invalidate(expert_key key) override {
    return watched("invalidate", [&] { return cache_.invalidate(key); });
  }
  status invalidate(layer_id layer) override {
    return watched("invalidate", [&] { return cache_.invalidate(layer); });
  }
  status set_quota(layer_id layer, std::int32_t slots) override {
    return watched("set_quota", [&] { return cache_.set_quota(layer, slots); });
  }
  status compact(const std::function<void(slot_id, slot_id)>& moved) override {
    return cache_.compact(std::ref(moved));
  }
  status drain() override {
    return watched("drain", [&] { return cache_.drain(); });
  }
  status settle() override {
    return watched("settle", [&] { return cache_.settle(); });
  }

  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const override {
    return cache_.row(layer);
  }
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const override {
    return cache_.row_version(layer);
  }
  [[nodiscard]] pager_stats stats() const override { return cache_.stats(); }
  [[nodiscard]] const prefetch_queue& queue() const override { return cache_.queue(); }
  [[nodiscard]] const pool_layout& layout() const override { return cache_.pager().layout(); }
  [[nodiscard]] const slot_entry& slot(slot_id s) const override { return cache_.pager().slot(s); }
  [[nodiscard]] slot_id locate(expert_key key) const override { return cache_.pager().locate(key); }
  [[nodiscard]] precision_id precision_of(slot_id s) const override {
    return cache_.pager().precision_of(s);
  }
  [[nodiscard]] std::int32_t quota(layer_id layer) const override {
    return cache_.pager().quota(layer);
  }
  [[nodiscard]] std::int32_t least_quota(layer_id layer) const override {
    return cache_.pager().least_quota(layer);
  }
  [[nodiscard]] std::vector<expert_key> residents() override { return cache_.pager().residents(); }
  void expect_consistent() override { support::expect_consistent(cache_.pager()); }

 private:
  template <class Call>
  status watched(const char* name, Call call) {
    auto out = status::ok;
    if (const auto made = allocations_of([&] { out = call(); }); made != 0)
      trail_.fault(std::string(name) + " allocated, " + std::to_string(made) + " times");
    return out;
  }

  event_trail& trail_;
  unruly_backend::stream_type stream_;
  slot_cache<Pager, unruly_backend> cache_;
};

/// What a cache is built from, whatever its pager.
struct cache_setup {
  pool_layout layout;
  visit_split split = visit_split::by_token;
  prefetch_guard guard = prefetch_guard::named;
  slot_cache_config cache{};
};
using cache_factory =
    std::function<std::unique_ptr<tested_cache>(const cache_setup&, unruly_backend&, event_trail&)>;

template <class Pager>
cache_factory factory_of(const typename Pager::eviction_type::config& eviction = {},
                         const typename Pager::admission_type::config& admission = {},
                         const typename Pager::miss_type::config& miss = {}) {
  return [=](const cache_setup& setup, unruly_backend& backend, event_trail& trail) {
    typename Pager::config config{.layout = setup.layout,
                                  .eviction = eviction,
                                  .admission = admission,
                                  .miss = miss,
                                  .split = setup.split,
                                  .guard = setup.guard};
    return std::make_unique<tested_slot_cache<Pager>>(std::move(config), setup.cache, backend,
                                                      trail);
  };
}

}  // namespace hotset::support
