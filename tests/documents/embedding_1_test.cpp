// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lfru.hpp"
#include "scripted_backend.hpp"

namespace {

using namespace hotset::literals;

TEST(embedding, its_step_is_served_to_the_end) {
  hotset::support::scripted_backend backend(48 * 32);
  hotset::support::scripted_backend::stream_type stream;
  std::vector<hotset::expert_id> ids(32 * 8);  // 128 experts: more than the layer's slots
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<hotset::expert_id>(i % 128);
  const hotset::layer_id layer = 47_layer;
  const hotset::step_id step = 3;
  std::vector<std::uint32_t> computed;
  const auto fail = [](std::string_view reason) { return std::string(reason); };
  const auto launch = [&](auto tokens, auto row, auto&) {
    EXPECT_EQ(row.size(), 128U);
    computed.insert(computed.end(), tokens.begin(), tokens.end());
  };
  const auto synchronise = [&](auto& engine) { backend.run(engine); };
  const auto run_the_step = [&]() -> std::string {
#include "embedding_1.inc"
    return "ok";
  };
  EXPECT_EQ(run_the_step(), "ok");
  std::ranges::sort(computed);
  std::vector<std::uint32_t> all(32);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(computed, all);
}

}  // namespace
