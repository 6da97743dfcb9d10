// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A slot_cache of any policies over an unruly backend; counts allocations of its calls.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/policy/any/any_admission_policy.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "pager_walk.hpp"
#include "unruly_backend.hpp"
#include "watched_allocations.hpp"

namespace hotset::support {

class tested_cache {
 public:
  using pager_type = pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

  tested_cache(pager_type::config setup, const slot_cache_config& config, unruly_backend& backend,
               event_trail& trail)
      : trail_(trail), cache_(pager_type(std::move(setup)), backend, config) {}

  [[nodiscard]] cache_visit make_visit() const { return cache_.make_visit(); }
  status resolve(const routing_view& view, cache_visit& visit) {
    return watched("resolve", [&] { return cache_.resolve(view, stream_, visit); });
  }
  status resolve_next(cache_visit& visit) {
    return watched("resolve_next", [&] { return cache_.resolve_next(stream_, visit); });
  }
  void release(cache_visit& visit) {
    (void)watched("release", [&] {
      cache_.release(visit, stream_);
      return status::ok;
    });
  }
  void abandon(cache_visit& visit) {
    (void)watched("abandon", [&] {
      cache_.abandon(visit, stream_);
      return status::ok;
    });
  }
  status prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                  const forecast& expected) {
    return watched("prefetch",
                   [&] { return cache_.prefetch(context, requests, stream_, expected); });
  }
  status warm(std::span<const expert_key> keys) {
    return watched("warm", [&] { return cache_.warm(keys, stream_); });
  }
  template <class What>
  status invalidate(What what) {
    return watched("invalidate", [&] { return cache_.invalidate(what); });
  }
  status set_quota(layer_id layer, std::int32_t slots) {
    return watched("set_quota", [&] { return cache_.set_quota(layer, slots); });
  }
  template <class Moved>
  status compact(const Moved& moved) {
    return cache_.compact(std::ref(moved));
  }
  status drain() {
    return watched("drain", [&] { return cache_.drain(); });
  }
  status settle() {
    return watched("settle", [&] { return cache_.settle(); });
  }

  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const { return cache_.row(layer); }
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const {
    return cache_.row_version(layer);
  }
  [[nodiscard]] pager_stats stats() const { return cache_.stats(); }
  [[nodiscard]] const prefetch_queue& queue() const { return cache_.queue(); }
  [[nodiscard]] const pager_type& pages() const { return cache_.pager(); }
  [[nodiscard]] pager_type& pages() { return cache_.pager(); }

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
  slot_cache<pager_type, unruly_backend> cache_;
};

/// Parameters of a cache, independent of its pager.
struct cache_setup {
  pool_layout layout;
  visit_split split = visit_split::by_token;
  prefetch_guard guard = prefetch_guard::named;
  slot_cache_config cache{};
};
using cache_factory =
    std::function<std::unique_ptr<tested_cache>(const cache_setup&, unruly_backend&, event_trail&)>;

/// A cache with the policies of the pager type.
template <class Pager>
cache_factory factory_of(const typename Pager::eviction_type::config& eviction = {},
                         const typename Pager::admission_type::config& admission = {},
                         const typename Pager::miss_type::config& miss = {}) {
  return [=](const cache_setup& setup, unruly_backend& backend, event_trail& trail) {
    return std::make_unique<tested_cache>(
        tested_cache::pager_type::config{
            .layout = setup.layout,
            .eviction = any_eviction_policy::holding<typename Pager::eviction_type>(eviction),
            .admission = any_admission_policy::holding<typename Pager::admission_type>(admission),
            .miss = any_miss_policy::holding<typename Pager::miss_type>(miss),
            .split = setup.split,
            .guard = setup.guard},
        setup.cache, backend, trail);
  };
}

}  // namespace hotset::support
