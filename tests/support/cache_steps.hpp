// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A slot_cache over a scripted backend, with kernels that check the bytes they read.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "pager_walk.hpp"
#include "scripted_backend.hpp"
#include "written_ids.hpp"

namespace hotset::support {

inline const geometry cache_shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

class slot_cache_steps : public testing::Test {
 protected:
  using cache_type = slot_cache<pager<lru>, scripted_backend>;

  explicit slot_cache_steps(std::int64_t slots = 3)
      : backend(static_cast<std::size_t>(slots)),
        cache(pager<lru>({.layout = pool_layout::shared(cache_shape, slots).value()}), backend),
        visit(cache.make_visit()) {}

  status resolve(step_id step, written_layer layer, routed_ids ids) {
    return resolve(visit, step, layer, std::move(ids));
  }
  status resolve(cache_visit& into, step_id step, written_layer layer, routed_ids ids) {
    ids_.push_back(std::move(ids.ids));
    return cache.resolve({.layer = layer, .step = step, .experts = ids_.back()}, stream, into);
  }
  /// Enqueues a kernel that expects the planned expert in every slot.
  void launch() {
    const auto& plan = visit.plan();
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const expert_key key{plan.context().layer, plan.experts()[i]};
      const auto slot = static_cast<std::size_t>(plan.slots()[i]);
      backend.launch(stream, [this, key, slot] {
        ++kernels;
        EXPECT_EQ(backend.content[slot], key) << "a kernel read a slot that holds something else";
      });
    }
  }
  /// Enqueues the kernel and runs all enqueued work.
  void finish() {
    cache.release(visit, stream);
    backend.run(stream);
  }
  void whole(step_id step, written_layer layer, routed_ids ids) {
    ASSERT_EQ(resolve(step, layer, std::move(ids)), status::ok);
    while (true) {
      launch();
      cache.release(visit, stream);
      if (!visit.more()) break;
      ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
    }
    expect_consistent(cache.pager());
  }
  status prefetch(std::vector<prefetch_request> requests) {
    return cache.prefetch({}, requests, stream);
  }
  std::uint32_t pins_of(written_layer layer, written_expert e) {
    return cache.pager().slot(locate(layer, e)).pins;
  }
  slot_id locate(written_layer layer, written_expert e) { return cache.pager().locate({layer, e}); }

  scripted_backend backend;
  scripted_backend::stream_type stream;
  cache_type cache;
  cache_visit visit;
  int kernels = 0;

 private:
  std::deque<std::vector<std::int32_t>> ids_;  ///< outlive their visits
};
struct slot_cache_wide : slot_cache_steps {
  slot_cache_wide() : slot_cache_steps(5) {}
};

}  // namespace hotset::support
