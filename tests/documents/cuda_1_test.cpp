// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset {
namespace {

template <class Launch>
std::string serve_a_layer(cuda::runtime& api, const pool_layout& layout,
                          const std::vector<expert_layout>& layouts,
                          const memory_expert_source& source,
                          std::span<const std::byte> mapped_file, cuda::stream_handle cuda_stream,
                          const routing_view& view, Launch launch_experts) {
  const std::uint64_t budget = 1 << 20;
  cuda::sticky_failure failures;
  const auto fail = [](std::string_view reason) { return std::string(reason); };
#include "cuda_1.inc"
  return served == status::ok ? "ok" : fail(describe(served));
}

TEST(cuda_document, its_visit_is_served_group_by_group) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};
  const auto layout = pool_layout::per_layer(shape, 3).value();
  support::fake_cuda_runtime api;
  const std::vector<expert_layout> layouts{{{{"tensor", 64}}}};
  const std::vector<std::byte> mapped_file(shape.keys() * 64);
  auto source = memory_expert_source::create(shape, layouts).value();
  for (std::size_t k = 0; k < shape.keys(); ++k) {
    const auto bytes = std::span(mapped_file).subspan(k * 64, 64);
    ASSERT_FALSE(source.add(shape.key(k), std::span(&bytes, 1)));
  }
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5, 6, 7};
  routing_view view;
  view.layer = 1_layer;
  view.experts = ids;
  auto engine = cuda::stream::create(api, 0).value();
  std::size_t tokens = 0;
  EXPECT_EQ(serve_a_layer(api, layout, layouts, source, mapped_file, engine.handle(), view,
                          [&](const slot_id* row, auto group, auto* base, auto) {
                            EXPECT_NE(row, nullptr);
                            EXPECT_NE(base, nullptr);
                            tokens += group.size();
                          }),
            "ok");
  EXPECT_EQ(tokens, 4U);
  EXPECT_THAT(api.violations(), testing::IsEmpty());
}

}  // namespace
}  // namespace hotset
