// SPDX-License-Identifier: Apache-2.0
// The backend compared with its floor, plain copies of the same pieces from the same memory; and the host's time for
// a visit.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/eviction/lru.hpp"
#include "paged_model.hpp"

namespace {

using namespace hotset;
using namespace hotset::gpu_bench;
using backend = cuda::cuda_backend<memory_expert_source>;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t pieces[] = {500'000, 900'000, 4'500'000, 9'400'000, 17'000'000};
constexpr std::size_t host_bytes = std::size_t{256} << 20U;
constexpr std::size_t misses = 4;  ///< per visit

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// Experts of one tensor, with one slot each.
struct fills_of_a_size {
  fills_of_a_size(std::size_t piece, std::size_t count, bool page_locked)
      : model(pool_layout::shared(
                  {.layers = 1, .experts = static_cast<std::int32_t>(count), .top_k = 1},
                  static_cast<std::int64_t>(count))
                  .value(),
              {piece}, page_locked),
        engine(cuda::stream::create(cuda::system_runtime(), 0).value()),
        copies(backend::create(cuda::system_runtime(), model.source, model.bank, model.pages,
                               {.staging_pieces = page_locked ? 0U : 32U, .staging_threads = 8})
                   .value()) {
    for (std::size_t i = 0; i < count; ++i) {
      fill f;
      f.key = {layer_id{0}, static_cast<expert_id>(i)};
      f.slot = static_cast<slot_id>(i);
      fills.push_back(f);
    }
  }
  /// Units: GB/s, from the first call until the last byte has arrived.
  double through_the_backend() {
    const auto start = clock_type::now();
    std::vector<ticket> sent;
    for (std::size_t i = 0; i + misses <= fills.size(); i += misses)
      sent.push_back(copies->submit(std::span(fills).subspan(i, misses), engine, urgency::now).id);
    for (const auto t : sent)
      if (copies->wait(t) != transfer_state::arrived) throw std::runtime_error("a fill failed");
    return gigabytes() / seconds_since(start);
  }
  double plain() {
    auto& api = cuda::system_runtime();
    const auto start = clock_type::now();
    for (std::size_t i = 0; i + misses <= fills.size(); i += misses)
      for (auto n = i; n < i + misses; ++n) {
        const auto to = model.bank.bytes(fills[n].slot, 0);
        const auto from = model.source.tensors(fills[n].key, precision_id{0})[0];
        HOTSET_REQUIRE(api.copy({to.data(), from.data(), to.size()}, engine.handle()));
      }
    HOTSET_REQUIRE(api.synchronize_stream(engine.handle()));
    return gigabytes() / seconds_since(start);
  }
  [[nodiscard]] double gigabytes() const {
    return static_cast<double>(fills.size() / misses * misses * model.expert_bytes()) * 1e-9;
  }

  gpu::paged_model model;
  cuda::stream engine;
  std::unique_ptr<backend> copies;
  std::vector<fill> fills;
};

/// A cache with small experts, so that the link is not measured.
struct small_visits {
  static constexpr std::int32_t experts = 128;
  static constexpr std::int32_t top_k = 8;
  const geometry shape{.layers = 1, .experts = experts, .top_k = top_k};
  const pool_layout layout = pool_layout::shared(shape, 64).value();
  gpu::paged_model model{layout, {4096, 4096, 4096}, true};
  cuda::sticky_failure failures;
  cuda::stream engine = cuda::stream::create(cuda::system_runtime(), 0).value();
  cuda::map_rows rows = cuda::map_rows::create(cuda::system_runtime(), shape, {}, failures).value();
  std::unique_ptr<backend> copies =
      backend::create(cuda::system_runtime(), model.source, model.bank, model.pages, {}).value();
  slot_cache<pager<lru>, backend> cache{pager<lru>({.layout = layout}), *copies};
  cache_visit visit = cache.make_visit();
  step_id step = 0;

  /// Host time of `resolve`, or of the whole visit. Units: microseconds per visit. `missing` of the eight experts are
  /// not resident.
  double host_time(int missing, bool whole, int visits) {
    double total = 0;
    for (int n = 0; n < visits; ++n) {
      std::vector<expert_id> ids;
      // The last eight stay; the missing ones repeat after more experts than there are slots.
      for (const auto id : each<expert_id>(top_k - missing)) ids.push_back(id);
      for (int m = 0; m < missing; ++m)
        ids.push_back(expert_id{top_k + next_++ % (experts - top_k)});
      routing_view view;
      view.step = ++step;
      view.experts = ids;
      const auto start = clock_type::now();
      const auto resolved = cache.resolve(view, engine, visit);
      if (!whole) total += seconds_since(start);
      const auto updated = rows.update(cache, layer_id{0}, engine);
      cache.release(visit, engine);
      if (whole) total += seconds_since(start);
      if (resolved != status::ok || updated != cuda::error_code::success)
        throw std::runtime_error("a visit failed");
      if (n % 16 == 15) HOTSET_REQUIRE(cuda::system_runtime().synchronize_stream(engine.handle()));
    }
    return total / visits * 1e6;
  }

 private:
  std::int32_t next_ = 0;
};

}  // namespace

HOTSET_BENCH(fills) {
  for (const std::size_t piece : pieces) {
    const auto most = host_bytes / piece / misses * misses;
    const auto count = out.quick() ? std::min<std::size_t>(most, 16) : most;
    const auto end = "/piece:" + std::to_string(piece);
    fills_of_a_size page_locked(piece, count, true);
    fills_of_a_size pageable(piece, count, false);
    compare(out, "GB/s",
            {{"fills/plain" + end, [&] { return page_locked.plain(); }},
             {"fills/backend" + end, [&] { return page_locked.through_the_backend(); }},
             {"fills/staged" + end, [&] { return pageable.through_the_backend(); }}});
  }
}

HOTSET_BENCH(visits) {
  small_visits cache;
  const int visits = out.quick() ? 200 : 2000;
  (void)cache.host_time(4, true, 200);
  compare(out, "us",
          {{"visit/resolve/hits:8", [&] { return cache.host_time(0, false, visits); }},
           {"visit/whole/hits:8", [&] { return cache.host_time(0, true, visits); }},
           {"visit/resolve/hits:4/misses:4", [&] { return cache.host_time(4, false, visits); }},
           {"visit/whole/hits:4/misses:4", [&] { return cache.host_time(4, true, visits); }}});
}
