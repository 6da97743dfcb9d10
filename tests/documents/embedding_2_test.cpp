// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache_steps.hpp"

namespace hotset {
namespace {

struct written_out : support::slot_cache_steps {
  std::string serve(const routing_view& view) {
    const auto layer = view.layer;
    const auto fail = [](std::string_view reason) { return std::string(reason); };
    const auto launch = [this](auto tokens, auto row, auto&) {
      computed += tokens.size();
      EXPECT_EQ(row.size(), 8U);
    };
#include "embedding_2.inc"
    return "ok";
  }
  std::size_t computed = 0;
};

TEST_F(written_out, all_groups_are_served_and_a_failed_visit_is_abandoned) {
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 0, 4, 5, 6};
  EXPECT_EQ(serve({.experts = ids}), "ok");
  EXPECT_EQ(computed, 4U);
  backend.accept = 1;
  EXPECT_EQ(serve({.layer = 1_layer, .experts = ids}), describe(status::fill_failed));
  backend.accept = support::scripted_backend::all;
  EXPECT_EQ(serve({.layer = 1_layer, .experts = ids}), "ok") << "nothing is in the way";
}

}  // namespace
}  // namespace hotset
