// SPDX-License-Identifier: Apache-2.0
// Adapters in device memory: content after loads, evictions and reloads.
#include "hotset/adapters/adapter_registry.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "hotset/adapters/page_pool.hpp"
#include "hotset/adapters/reroute.hpp"
#include "hotset/cuda/copies/adapter_uploader.hpp"
#include "hotset/cuda/maps/expert_maps.hpp"
#include "hotset/cuda/maps/reroute_kernel.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "random_source.hpp"
#include "test_support.hpp"

namespace hotset::gpu::adapter_registry_test {
namespace {

using registry_type = adapter_registry<cuda::virtual_memory, cuda::adapter_uploader>;

constexpr std::int32_t layers = 3, experts = 8, places = 2, most_tuned = 3, known = 5;
constexpr std::size_t weights = 2;
constexpr std::size_t weight_words[weights] = {700 * 1024, 300 * 1024};  // ends inside a page

std::uint32_t content(std::int32_t adapter, layer_id layer, std::size_t weight, expert_id expert) {
  const auto all = ((adapter * layers + number(layer)) * 16 + number(expert)) * 2 +
                   static_cast<std::int32_t>(weight);
  return 0x9e3779b9U * static_cast<std::uint32_t>(all + 1);
}
std::string name_of(std::int32_t adapter) {
  return std::string(1, static_cast<char>('a' + adapter));
}

std::vector<std::vector<expert_id>> tuned_by(std::int32_t adapter) {
  std::vector<std::vector<expert_id>> out(layers);
  for (std::int32_t l = 0; l < layers; ++l)
    for (std::int32_t i = 0; i < (adapter + l) % (most_tuned + 1); ++i)
      out[static_cast<std::size_t>(l)].push_back(expert_id{(adapter + 2 * i + l) % experts});
  return out;
}

/// The base model and five adapters; two of them fit.
struct device_adapters {
  cuda::virtual_memory memory = virtual_memory_of_device_0();
  page_pool<cuda::virtual_memory> pool =
      page_pool<cuda::virtual_memory>::create(
          memory, {.page_bytes = memory.granularity(), .most_pages = 1024})
          .value();
  test_stream compute;
  std::unique_ptr<cuda::adapter_uploader> copies =
      cuda::adapter_uploader::create(
          cuda::system_runtime(),
          {.pieces = 3, .piece_bytes = 1000000, .readers = {compute.handle()}})
          .value();
  registry_type registry = made_registry();

  device_adapters() {
    for (std::int32_t a = 0; a < known; ++a)
      if (const auto bad = registry.add(name_of(a), tuned_by(a)))
        throw std::runtime_error(bad->message);
    for (const auto l : each<layer_id>(layers))
      for (std::size_t w = 0; w < weights; ++w)
        for (const auto e : each<expert_id>(experts)) {
          const std::vector<std::uint32_t> words(weight_words[w], content(-1, l, w, e));
          HOTSET_REQUIRE(
              cudaMemcpy(at(l, w, e), words.data(), words.size() * 4, cudaMemcpyDefault));
        }
    HOTSET_REQUIRE(cudaStreamSynchronize(nullptr));
  }
  registry_type made_registry() {
    return registry_type::create(pool, *copies,
                                 {.layers = layers,
                                  .experts = experts,
                                  .adapters = places,
                                  .most_tuned = most_tuned,
                                  .expert_bytes = {weight_words[0] * 4, weight_words[1] * 4},
                                  .host_bytes = std::uint64_t{1} << 30,
                                  .most_known = known},
                                 [](const adapter_part& part, std::span<std::byte> bytes) {
                                   const std::uint32_t word =
                                       content(part.adapter.front() - 'a', part.layer, part.weight,
                                               part.expert);
                                   for (std::size_t i = 0; i < bytes.size(); i += 4)
                                     std::memcpy(&bytes[i], &word, 4);
                                   return true;
                                 })
        .value();
  }
  [[nodiscard]] std::byte* at(layer_id layer, std::size_t weight, expert_id place) const {
    return registry.tensor(layer, weight).addresses().data() +
           static_cast<std::size_t>(place) * weight_words[weight] * 4;
  }
  /// True if every word of an expert is the content.
  [[nodiscard]] bool holds(layer_id layer, std::size_t weight, expert_id place,
                           std::uint32_t word) const {
    std::vector<std::uint32_t> words(weight_words[weight]);
    HOTSET_REQUIRE(
        cudaMemcpy(words.data(), at(layer, weight, place), words.size() * 4, cudaMemcpyDefault));
    return std::ranges::all_of(words, [word](std::uint32_t w) { return w == word; });
  }
  /// Checks the base model for -1.
  [[nodiscard]] bool is_right(std::int32_t adapter) const {
    const auto tuned =
        adapter < 0 ? std::vector<std::vector<expert_id>>(layers) : tuned_by(adapter);
    for (const auto l : each<layer_id>(layers))
      for (const auto e : each<expert_id>(experts)) {
        const auto& mine = tuned[static_cast<std::size_t>(l)];
        const bool is_tuned = std::ranges::find(mine, e) != mine.end();
        const auto place = adapter < 0 ? e
                                       : registry.map(l).row(registry.index_of(
                                             name_of(adapter)))[static_cast<std::size_t>(e)];
        for (std::size_t w = 0; w < weights; ++w)
          if (!holds(l, w, place, content(is_tuned ? adapter : -1, l, w, e))) return false;
      }
    return true;
  }
};

TEST(adapter_registry_on_a_device, every_expert_is_that_of_the_adapter_that_the_maps_name) {
  HOTSET_NEEDS_A_DEVICE();
  device_adapters on_device;
  auto& registry = on_device.registry;
  support::random_source random(0xada9);
  std::vector<int> pins(known, 0);
  for (int step = 0; step < 60; ++step) {
    const auto a = static_cast<std::int32_t>(random.below(known));
    const auto i = static_cast<std::size_t>(a);
    if (pins[i] != 0 && random.one_in(2)) {
      ASSERT_EQ(registry.release(name_of(a)), adapter_status::ok);
      --pins[i];
    } else if (registry.acquire(name_of(a)).code == adapter_status::ok) {
      ++pins[i];
      ASSERT_TRUE(on_device.is_right(a)) << "step " << step;
    }
  }
  EXPECT_GT(registry.stats().evictions, 5U);
  EXPECT_TRUE(on_device.is_right(-1));
  for (std::int32_t a = 0; a < known; ++a) {
    const bool is_there = registry.index_of(name_of(a)) >= 0;
    EXPECT_TRUE(!is_there || on_device.is_right(a)) << a;
  }
}

TEST(adapter_registry_on_a_device, the_kernel_redirects_by_the_maps_of_now) {
  HOTSET_NEEDS_A_DEVICE();
  device_adapters on_device;
  auto& registry = on_device.registry;
  cuda::sticky_failure failures;
  auto maps =
      cuda::expert_maps::create(cuda::system_runtime(), registry, layers, 0, failures).value();
  const auto compute = cuda::stream::borrow(cuda::system_runtime(), on_device.compute.handle());
  support::random_source random(3);
  std::vector<expert_id> ids(64 * 4);
  std::vector<std::int32_t> adapter_of_token(64);
  for (auto& id : ids) id = static_cast<expert_id>(random.below(experts));
  for (auto& a : adapter_of_token) a = static_cast<std::int32_t>(random.below(places + 1)) - 1;
  const device_array<expert_id> device_ids(ids);
  const device_array<std::int32_t> device_adapters_of(adapter_of_token);
  const device_array<expert_id> out(ids.size());
  for (std::int32_t a = 0; a < known; ++a) {
    ASSERT_EQ(registry.acquire(name_of(a)).code, adapter_status::ok);
    ASSERT_EQ(maps.update(registry, compute), cuda::error_code::success);
    for (const auto l : each<layer_id>(layers)) {
      const cuda::reroute_arguments arguments{
          maps.rows(l), device_ids.data(), device_adapters_of.data(), 64, 4, out.data(), nullptr};
      HOTSET_REQUIRE(cuda::launch_reroute(arguments, on_device.compute.handle()));
      on_device.compute.synchronize();
      const auto& map = registry.map(l);
      std::vector<std::int32_t> wanted(ids.size());
      ASSERT_EQ(
          reroute({map.rows().data(), map.adapters(), map.experts()}, ids, adapter_of_token, wanted)
              .refused,
          0U);
      EXPECT_TRUE(std::ranges::equal(out.download(), id_view<expert_id>(wanted)))
          << "adapter " << a << ", layer " << l;
    }
    ASSERT_EQ(registry.release(name_of(a)), adapter_status::ok);
  }
}

}  // namespace
}  // namespace hotset::gpu::adapter_registry_test
