// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache_steps.hpp"
#include "hotset/paging/residency/warm_start.hpp"
#include "hotset/predict/activation_matrix.hpp"

namespace hotset {
namespace {

struct next_day : support::slot_cache_steps {
  std::string begin(const std::vector<std::byte>& yesterday) {
    const auto& shape = support::cache_shape;
    const auto& layout = cache.pager().layout();
    const auto refuse = [](const std::string& reason) { return reason; };
#include "embedding_7.inc"
    return std::string(describe(started));
  }
};

TEST_F(next_day, starts_with_the_most_activated_experts) {
  auto predictor = activation_matrix::create(support::cache_shape, {}).value();
  const auto route = [&](layer_id layer, step_id step, const std::vector<std::int32_t>& ids) {
    (void)predictor.expect({.layer = layer, .step = step, .experts = ids}, {}, 0);
  };
  // Layer 0: expert 3 has a half, 5 and 6 a quarter each; layer 1: expert 7 has all.
  route(0_layer, 0, {3, 5});
  route(0_layer, 1, {3, 6});
  route(1_layer, 1, {7, 7});
  predictor.on_sequence_end(0);
  EXPECT_EQ(begin(predictor.save()), describe(status::ok));
  EXPECT_NE(locate(1, 7), no_slot);
  EXPECT_NE(locate(0, 3), no_slot);
  EXPECT_NE(locate(0, 5), no_slot) << "of equals the lower key";
  EXPECT_EQ(locate(0, 6), no_slot) << "there are three slots";
  EXPECT_EQ(cache.drain(), status::ok);
  EXPECT_EQ(begin({}), "no activation_matrix collection, accepted: a saved one");
}

}  // namespace
}  // namespace hotset
