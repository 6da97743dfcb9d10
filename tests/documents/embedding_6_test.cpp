// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cache_steps.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/routing/router_order.hpp"

namespace hotset {
namespace {

struct gate_in_order : support::slot_cache_wide {
  std::string run(layer_id layer) {
    std::vector<expert_id> ids{0_expert, 1_expert};
    std::vector<float> weights{0.6F, 0.4F};
    const std::vector<float> probabilities{0, 0, 0, 0, 0, 0, 0.7F, 0.3F};
    const routing_view view{
        .layer = layer, .experts = ids, .weights = weights, .probabilities = probabilities};
    router_order routing(support::cache_shape, {});
    auto gate = current_gate::create(support::cache_shape, {}).value();
    next_layer_top_k prefetcher(support::cache_shape, {});
    std::vector<prefetch_request> requests(prefetcher.most_requests());
    const auto fail = [](std::string_view reason) { return std::string(reason); };
    const auto take = [&](auto edited) { std::ranges::copy(edited, ids.begin()); };
    const auto launch = [this](auto tokens, auto, auto&) { computed += tokens.size(); };
#include "embedding_6.inc"
    return served == status::ok ? "ok" : fail(describe(served));
  }
  std::size_t computed = 0;
};

TEST_F(gate_in_order, the_gates_predictions_are_being_copied) {
  EXPECT_EQ(run(0_layer), "ok");
  EXPECT_EQ(computed, 1U);
  EXPECT_EQ(cache.stats().speculative_fills, 2U);
  EXPECT_NE(locate(1, 6), no_slot);
  EXPECT_NE(locate(1, 7), no_slot);
  EXPECT_EQ(cache.drain(), status::ok);
}

}  // namespace
}  // namespace hotset
