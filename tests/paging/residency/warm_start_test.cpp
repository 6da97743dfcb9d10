// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/warm_start.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

namespace warm_start_test {
namespace {

using namespace hotset;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};

TEST(warm_start, keeps_the_last_keys_of_each_pool) {
  const auto layout = pool_layout::per_layer(shape, 2).value();
  const std::vector<expert_key> keys{{0_layer, 1_expert},
                                     {1_layer, 1_expert},
                                     {0_layer, 2_expert},
                                     {0_layer, 3_expert},
                                     {7_layer, 0_expert}};
  const std::vector<expert_key> kept{{1_layer, 1_expert}, {0_layer, 2_expert}, {0_layer, 3_expert}};
  EXPECT_EQ(warm_keys_that_fit(keys, layout), kept);
}

TEST(warm_start, popular_keys_come_last) {
  std::vector<double> profile(16, 0);
  profile[3] = 5;
  profile[4] = 9;
  profile[5] = 5;
  profile[12] = 1;
  const std::vector<expert_key> tied_lower_wanted_more{
      {1_layer, 4_expert}, {0_layer, 5_expert}, {0_layer, 3_expert}, {0_layer, 4_expert}};
  EXPECT_EQ(popular_warm_keys(profile, pool_layout::shared(shape, 16).value()),
            tied_lower_wanted_more);
  const std::vector<expert_key> two_each{
      {1_layer, 4_expert}, {0_layer, 3_expert}, {0_layer, 4_expert}};
  EXPECT_EQ(popular_warm_keys(profile, pool_layout::per_layer(shape, 2).value()), two_each);
}

TEST(residency_snapshot, comes_back_as_it_was) {
  const residency_snapshot saved{
      2, 8, {{1_layer, 7_expert}, {0_layer, 0_expert}, {0_layer, 3_expert}}};
  const auto bytes = saved.encode();
  auto loaded = residency_snapshot::decode(bytes);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->layers, 2);
  EXPECT_EQ(loaded->experts, 8);
  EXPECT_EQ(loaded->keys, saved.keys);
}

TEST(residency_snapshot, every_changed_byte_and_every_cut_is_refused) {
  const auto bytes =
      residency_snapshot{2, 8, {{1_layer, 7_expert}, {0_layer, 0_expert}, {0_layer, 3_expert}}}
          .encode();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto broken = bytes;
    broken[at] ^= std::byte{0x40};
    EXPECT_FALSE(residency_snapshot::decode(broken)) << "byte " << at;
    EXPECT_FALSE(residency_snapshot::decode(std::span(bytes).first(at))) << "cut at " << at;
  }
}

TEST(warm_start, a_restored_pager_decides_as_the_saved_one) {
  const auto layout = pool_layout::shared(shape, 6).value();
  pager<lru> first({.layout = layout});
  auto plan = first.make_plan();
  const auto visit = [&plan](pager<lru>& p, layer_id layer, step_id step, expert_id a,
                             expert_id b) {
    const expert_id routed[] = {a, b};
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.experts = routed;
    ASSERT_EQ(p.plan(view, plan), status::ok);
    ASSERT_EQ(p.commit(plan), status::ok);
  };
  for (step_id s = 0; s < 20; ++s)
    for (const auto l : each<layer_id>(2))
      visit(first, l, s, static_cast<expert_id>((s * 3) % 8),
            static_cast<expert_id>((s * 5 + 1) % 8));

  const auto bytes = residency_snapshot{2, 8, first.residents()}.encode();
  auto saved = residency_snapshot::decode(bytes);
  ASSERT_TRUE(saved);
  pager<lru> second({.layout = layout});
  auto rest = std::span<const expert_key>(saved->keys);
  while (!rest.empty()) {
    const auto [planned, consumed] = second.plan_warm(rest, plan);
    ASSERT_EQ(planned, status::ok);
    std::vector<fill> fills(plan.fills().begin(), plan.fills().end());
    ASSERT_EQ(second.commit(plan), status::ok);
    for (const auto& f : fills) second.arrived(f.slot, f.generation);
    rest = rest.subspan(consumed);
  }
  EXPECT_EQ(second.residents(), first.residents());
  for (step_id s = 20; s < 40; ++s)
    for (const auto l : each<layer_id>(2)) {
      const auto a = static_cast<expert_id>((s * 7) % 8);
      const auto b = static_cast<expert_id>((s * 5 + 1) % 8);
      visit(first, l, s, a, b);
      visit(second, l, s, a, b);
      EXPECT_EQ(second.residents(), first.residents());
    }
}

}  // namespace
}  // namespace warm_start_test
