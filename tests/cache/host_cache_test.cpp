// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/host_cache.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"

namespace hotset::host_cache_test {
namespace {

using testing::HasSubstr;

/// Every byte of an expert is the number of its key.
struct numbered_experts {
  explicit numbered_experts(const geometry& shape) {
    for (std::size_t k = 0; k < shape.keys(); ++k)
      bytes.emplace_back(shape.bytes_of(shape.key(k).layer), static_cast<std::byte>(k));
  }
  [[nodiscard]] std::vector<std::span<const std::byte>> views() const {
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::vector<std::byte>> bytes;
};
std::string refusal(const geometry& shape, const std::vector<std::span<const std::byte>>& experts,
                    std::int64_t slots = 3) {
  const auto made = make_host_cache<lru>(shape, slots, experts);
  return made ? "" : made.error().message;
}

TEST(host_cache, serves_the_bytes_of_the_experts_that_are_routed) {
  const geometry shape{.layers = 3,
                       .experts = 8,
                       .top_k = 2,
                       .max_tokens_per_visit = 4,
                       .expert_bytes = {64, 32, 64}};
  const numbered_experts experts(shape);
  auto made = make_host_cache<lru>(shape, 3, experts.views());
  ASSERT_TRUE(made) << made.error().message;
  auto& cache = **made;
  std::size_t used = 0;
  for (step_id step = 0; step < 40; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      std::vector<expert_id> ids;
      for (std::uint64_t n = 0; n < 8; ++n)
        ids.push_back(static_cast<expert_id>((step / 4 + n * n) % 8));
      const auto check = [&](const visit_group& group) {
        for (const auto e : group.experts()) {
          const auto bytes = cache.bytes(group.row()[index_of(e)]);
          ASSERT_EQ(bytes.size(), shape.bytes_of(layer));
          EXPECT_EQ(bytes.back(), static_cast<std::byte>(shape.index({layer, e})));
          ++used;
        }
      };
      ASSERT_EQ(cache.serve({.layer = layer, .step = step, .experts = ids}, check), status::ok);
    }
  EXPECT_EQ(cache.settle(), status::ok);
  EXPECT_EQ(cache.stats().visits, 120U);
  EXPECT_GE(used, cache.stats().accesses);
}

TEST(host_cache, refuses_experts_that_are_not_the_models) {
  const geometry shape{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {16}};
  const numbered_experts experts(shape);
  auto views = experts.views();
  EXPECT_EQ(refusal(shape, views), "");
  EXPECT_THAT(refusal(shape, views, 0), HasSubstr("slots"));
  views[5] = views[5].first(15);
  EXPECT_THAT(refusal(shape, views),
              HasSubstr("layer 1, expert 1, tensor 'expert' has 15 bytes, accepted: 16"));
  views.pop_back();
  EXPECT_EQ(refusal(shape, views), "7 experts, accepted: layers x experts (8)");
}

}  // namespace
}  // namespace hotset::host_cache_test
