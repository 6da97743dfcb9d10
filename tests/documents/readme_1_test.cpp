// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "readme_1_includes.inc"

namespace {

using namespace hotset::literals;

const hotset::geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

template <class Backend, class RunExperts>
std::string serve_a_layer(const hotset::pool_layout& layout, Backend& backend,
                          hotset::host_stream& stream, hotset::layer_id layer, hotset::step_id step,
                          const std::vector<std::int32_t>& ids, RunExperts run_experts) {
  const auto fail = [](std::string_view reason) { return std::string(reason); };
#include "readme_1.inc"
  return "ok";
}

TEST(readme, its_loop_serves_a_visit_that_fits_and_one_that_does_not) {
  const auto layout = hotset::pool_layout::per_layer(shape, 3).value();
  hotset::support::host_experts experts(layout);
  hotset::host_backend<hotset::memory_expert_source> backend(experts.source, experts.bank);
  hotset::host_stream stream;
  const std::vector<std::int32_t> few{0, 1};
  const std::vector<std::int32_t> many{0, 1, 2, 3, 4, 5, 6, 7};
  for (const auto& ids : {few, many}) {
    std::size_t tokens = 0;
    EXPECT_EQ(serve_a_layer(layout, backend, stream, 1_layer, 0, ids,
                            [&](auto group, auto row, hotset::host_stream&) {
                              tokens += group.size();
                              for (const auto token : group)
                                for (std::size_t k = 0; k < 2; ++k) {
                                  const hotset::expert_id e{ids[token * 2 + k]};
                                  const auto slot = row[index_of(e)];
                                  ASSERT_NE(slot, hotset::no_slot);
                                  EXPECT_TRUE(experts.holds(slot, {1_layer, e}));
                                }
                            }),
              "ok");
    EXPECT_EQ(tokens, ids.size() / 2);
  }
  EXPECT_EQ(serve_a_layer(layout, backend, stream, 7_layer, 0, few, [](auto, auto, auto&) {}),
            describe(hotset::status::invalid_visit));
}

}  // namespace
