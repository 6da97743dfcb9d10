// SPDX-License-Identifier: Apache-2.0
// Device slots that appear and disappear while a cache serves from them: every resident's bytes follow it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "hotset/cache/expert_slots.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "random_source.hpp"
#include "test_support.hpp"

namespace hotset::gpu::elastic_bank_test {
namespace {

const geometry shape{.layers = 3, .experts = 12, .top_k = 2, .max_tokens_per_visit = 4};
constexpr std::size_t tensor_bytes_of[] = {700 * 1024, 3 * 1024 * 1024};  // below and above a page

std::byte content(expert_key key, std::size_t tensor) {
  return static_cast<std::byte>(number(key.layer) * 71 + number(key.expert) * 5 +
                                static_cast<int>(tensor) * 31 + 1);
}

struct elastic_device_cache {
  pool_layout layout = pool_layout::per_layer(shape, shape.experts).value();
  std::vector<expert_layout> layouts{{{{"up", tensor_bytes_of[0]}, {"down", tensor_bytes_of[1]}}}};
  std::vector<std::vector<std::byte>> bytes;
  memory_expert_source source = made_source();
  memory_budget budget{std::uint64_t{1} << 30};
  cuda::virtual_memory memory = virtual_memory_of_device_0();
  cuda::slot_bank bank =
      cuda::slot_bank::create_elastic(cuda::system_runtime(), memory, layout, layouts, budget, {})
          .value();
  cuda::pinned_memory pages{cuda::system_runtime(), std::uint64_t{1} << 20};
  cuda::stream stream = cuda::stream::create(cuda::system_runtime(), 0).value();

  memory_expert_source made_source() {
    auto out = memory_expert_source::create(shape, layouts).value();
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      std::vector<tensor_bytes> views;
      for (std::size_t t = 0; t < 2; ++t)
        views.emplace_back(bytes.emplace_back(tensor_bytes_of[t], content(shape.key(k), t)));
      if (out.add(shape.key(k), views)) throw std::runtime_error("a tensor was refused");
    }
    return out;
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    for (std::size_t t = 0; t < 2; ++t) {
      const auto place = bank.bytes(slot, t);
      std::vector<std::byte> found(place.size());
      HOTSET_REQUIRE(cudaMemcpy(found.data(), place.data(), place.size(), cudaMemcpyDefault));
      if (std::ranges::any_of(found, [&](std::byte b) { return b != content(key, t); }))
        return false;
    }
    return true;
  }
};

TEST(gpu_elastic_bank, resizes_while_a_cache_serves) {
  HOTSET_NEEDS_A_DEVICE();
  elastic_device_cache d;
  const auto copies = cuda::cuda_backend<memory_expert_source>::create(
                          cuda::system_runtime(), d.source, d.bank, d.pages,
                          {.staging_pieces = 4, .staging_piece_bytes = 1 << 20})
                          .value();
  slot_cache cache(pager<lru>({.layout = d.layout}), *copies);
  expert_slots pool(cache, d.bank, d.stream);
  auto visit = cache.make_visit();
  support::random_source random(1);
  ASSERT_EQ(pool.open(6), status::ok);
  const auto* const first = d.bank.bytes(0_slot, 0).data();
  for (int round = 0; round < 20; ++round) {
    for (int n = 0; n < 9; ++n) {
      std::vector<std::int32_t> ids(2);
      for (auto& id : ids) id = random.id_below(shape.experts);
      const routing_view view{.layer = static_cast<layer_id>(n % shape.layers), .experts = ids};
      ASSERT_EQ(cache.resolve(view, d.stream, visit), status::ok);
      cache.release(visit, d.stream);
    }
    const auto units = 2 + random.below(11);
    ASSERT_EQ(units < pool.capacity() ? pool.shrink(units) : pool.grow(units), status::ok);
    EXPECT_EQ(d.budget.in_use(), units * pool.unit_bytes());
    EXPECT_GE(d.bank.device_bytes(), d.budget.in_use());
    EXPECT_EQ(d.bank.bytes(0_slot, 0).data(), first);
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      const auto key = shape.key(k);
      const auto slot = cache.row(key.layer)[static_cast<std::size_t>(key.expert)];
      if (slot != no_slot) {
        EXPECT_TRUE(d.holds(slot, key));
      }
    }
  }
  EXPECT_FALSE(copies->trouble());
}

}  // namespace
}  // namespace hotset::gpu::elastic_bank_test
