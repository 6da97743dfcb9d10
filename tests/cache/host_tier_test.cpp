// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/host_tier.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/admission/after_n_uses.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/inline_backend.hpp"
#include "random_source.hpp"

namespace hotset::host_tier_test {
namespace {

using support::pattern;

/// Experts of three tensors whose bytes are made when they are read, at several precisions: other bytes, other sizes.
class made_disk {
 public:
  static constexpr std::array<std::uint64_t, 3> full{96, 33, 257};
  static constexpr std::array<std::uint64_t, 3> half{48, 17, 129};

  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id p) const noexcept {
    if (key == absent) return {};
    return p == 0 ? full : half;
  }
  [[nodiscard]] bool read(expert_key key, precision_id p, std::size_t tensor, std::uint64_t at,
                          std::span<std::byte> to) const noexcept {
    ++reads;
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = pattern(key, tensor + 3 * index_of(p), at + i);
    if (meeting != 0) meet();
    return failing == 0 || --failing != 0;
  }

  expert_key absent = no_key;
  mutable std::atomic<int> reads{0};    ///< of tensors
  mutable std::atomic<int> failing{0};  ///< counts down; the read at 1 fails
  int meeting = 0;                      ///< reads that wait for one another

 private:
  void meet() const noexcept {
    std::unique_lock lock(mutex_);
    ++met_;
    all_.notify_all();
    all_.wait(lock, [&] { return met_ >= meeting; });
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable all_;
  mutable int met_ = 0;
};

const geometry model{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {96 + 33 + 257}};
const std::vector<expert_layout> layouts{{{{"gate", 96}, {"up", 33}, {"down", 257}}}};
using lru_tier = host_tier<made_disk, pager<lru>>;

std::unique_ptr<lru_tier> tier_of(const made_disk& disk, std::int64_t slots) {
  return lru_tier::create(
             model,
             pager<lru>({.layout = pool_layout::shared(host_tier_shape(model), slots).value()}),
             disk, layouts)
      .value();
}
/// Whether all tensors of an expert are read, and right.
template <class Reader>
bool reads(const Reader& from, expert_key key, precision_id p = {}) {
  const auto sizes = from.sizes(key, p);
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    std::vector<std::byte> to(sizes[t]);
    if (!from.read(key, p, t, 0, to)) return false;
    for (std::size_t i = 0; i < to.size(); ++i)
      EXPECT_EQ(to[i], pattern(key, t + 3 * index_of(p), i));
  }
  return !sizes.empty();
}

TEST(host_tier, what_it_holds_is_not_read_again) {
  const made_disk disk;
  const auto tier = tier_of(disk, 3);
  for (int round = 0; round < 5; ++round)
    for (const auto e : each<expert_id>(3)) EXPECT_TRUE(reads(*tier, {1_layer, e}));
  EXPECT_EQ(disk.reads, 3 * 3);
  EXPECT_EQ(tier->stats().accesses, 15U) << "an expert is one access, not one for each tensor";
  EXPECT_EQ(tier->stats().hits, 12U);
}

TEST(host_tier, gives_up_what_its_policy_says) {
  const made_disk disk;
  const auto tier = tier_of(disk, 2);
  for (const auto e : {1_expert, 2_expert, 1_expert, 3_expert, 1_expert})
    EXPECT_TRUE(reads(*tier, {0_layer, e}));
  EXPECT_EQ(disk.reads, 3 * 3) << "2 was given up for 3, and 1 stayed";
  EXPECT_TRUE(reads(*tier, {0_layer, 2_expert}));
  EXPECT_EQ(disk.reads, 3 * 4);
}

TEST(host_tier, takes_the_bytes_that_it_is_given_and_no_more) {
  const auto shape = host_tier_shape(model);
  const auto room =
      pool_layout::within(shape, cache_scope::shared, 5 * (96 + 33 + 257) + 100).value();
  EXPECT_EQ(room.slots(), 5U);
}

TEST(host_tier, a_read_that_fails_leaves_nothing_and_the_next_one_is_another) {
  made_disk disk;
  const auto tier = tier_of(disk, 4);
  disk.failing = 2;  // its second tensor
  EXPECT_FALSE(reads(*tier, {0_layer, 5_expert}));
  EXPECT_EQ(tier->stats().failed_fills, 1U);
  EXPECT_TRUE(reads(*tier, {0_layer, 5_expert}));
  EXPECT_TRUE(reads(*tier, {0_layer, 5_expert}));
  EXPECT_EQ(disk.reads, 2 + 3);
}

TEST(host_tier, an_expert_that_is_not_there_is_not_there) {
  made_disk disk;
  disk.absent = {0_layer, 6_expert};
  const auto tier = tier_of(disk, 4);
  EXPECT_TRUE(tier->sizes(disk.absent, {}).empty());
  EXPECT_FALSE(reads(*tier, disk.absent));
}

TEST(host_tier, what_admission_refuses_goes_by) {
  const made_disk disk;
  using picky = pager<lru, after_n_uses>;
  const auto tier = host_tier<made_disk, picky>::create(
                        model,
                        picky({.layout = pool_layout::shared(host_tier_shape(model), 4).value(),
                               .admission = {.uses = 2}}),
                        disk, layouts)
                        .value();
  EXPECT_TRUE(reads(*tier, {0_layer, 1_expert}));
  EXPECT_EQ(tier->passed_by(), 3U) << "its three tensors";
  EXPECT_EQ(tier->stats().fills, 0U);
  EXPECT_TRUE(reads(*tier, {0_layer, 1_expert}));
  EXPECT_EQ(tier->stats().fills, 1U);
}

TEST(host_tier, precisions_are_held_apart) {
  auto mixed = model;
  mixed.lower_precisions = {{48 + 17 + 129}};
  const auto shape = host_tier_shape(mixed);
  EXPECT_EQ(shape.layers, 4);
  EXPECT_THAT(shape.expert_bytes, testing::ElementsAre(386U, 386U, 194U, 194U));
  EXPECT_FALSE(shape.validate());
  const made_disk disk;
  auto both = layouts;
  both.push_back({{{"gate", 48}, {"up", 17}, {"down", 129}}});
  const auto tier =
      lru_tier::create(
          mixed,
          pager<lru>({.layout = pool_layout::within(shape, cache_scope::shared, 4000).value()}),
          disk, both)
          .value();
  for (int round = 0; round < 2; ++round)
    for (const auto p : {precision_id{0}, precision_id{1}})
      EXPECT_TRUE(reads(*tier, {1_layer, 3_expert}, p));
  EXPECT_EQ(disk.reads, 6);
}

TEST(host_tier, a_pager_of_another_shape_is_refused) {
  const made_disk disk;
  const auto bad = lru_tier::create(
      model, pager<lru>({.layout = pool_layout::shared(model, 4).value()}), disk, layouts);
  EXPECT_EQ(
      bad.error().message,
      "a host tier of 2 layers of 8 experts, top-2, accepted: 2 of 8, top-1 (host_tier_shape)");
}

TEST(host_tier, an_expert_that_several_want_is_read_once) {
  made_disk disk;
  const auto tier = tier_of(disk, 4);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] { right += reads(*tier, {1_layer, 2_expert}) ? 1 : 0; });
  for (auto& t : threads) t.join();
  EXPECT_EQ(right, 6);
  EXPECT_EQ(disk.reads, 3);
}

TEST(host_tier, different_experts_are_read_beside_each_other) {
  made_disk disk;
  disk.meeting = 3;  // none of three first reads ends before the others have begun
  const auto tier = tier_of(disk, 4);
  std::vector<std::thread> threads;
  for (const auto e : each<expert_id>(3))
    threads.emplace_back([&tier, e] { EXPECT_TRUE(reads(*tier, {0_layer, e})); });
  for (auto& t : threads) t.join();
}

TEST(host_tier, where_every_slot_is_being_read_the_bytes_go_by) {
  made_disk disk;
  disk.meeting = 2;
  const auto tier = tier_of(disk, 1);  // the second expert finds no slot to evict
  std::vector<std::thread> threads;
  for (const auto e : each<expert_id>(2))
    threads.emplace_back([&tier, e] { EXPECT_TRUE(reads(*tier, {0_layer, e})); });
  for (auto& t : threads) t.join();
  EXPECT_GE(tier->passed_by(), 1U);
}

// Late failures, several threads and evictions in both tiers at once; a wrong byte is seen.
TEST(host_tier, a_cache_over_it_serves_the_right_bytes_whatever_fails) {
  made_disk disk;
  const auto tier = tier_of(disk, 6);
  const auto layout = pool_layout::shared(model, 4).value();
  const auto bank = host_slot_bank::create(layout, layouts).value();
  host_backend<lru_tier> backend(*tier, bank, {.threads = 3});
  slot_cache<pager<lru>, host_backend<lru_tier>> cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  host_stream stream;
  support::random_source random(11);
  int failed = 0;
  for (step_id step = 0; step < 3000; ++step) {
    if (random.one_in(7)) disk.failing = 1 + random.id_below(6);
    const std::array ids{random.id_below(8), random.id_below(8)};
    routing_view view;
    view.layer = layer_id{static_cast<std::int32_t>(step % 2)};
    view.step = step;
    view.experts = ids;
    const auto served = cache.serve(view, stream, visit, [&](const visit_group& group) {
      const auto experts = group.plan().experts();
      for (std::size_t i = 0; i < experts.size(); ++i)
        for (std::size_t t = 0; t < 3; ++t)
          ASSERT_TRUE(
              support::holds(bank.bytes(group.plan().slots()[i], t), {view.layer, experts[i]}, t));
    });
    if (served != status::ok) ++failed;
  }
  EXPECT_GT(failed, 10);
  EXPECT_LT(failed, 1500);
  EXPECT_GT(tier->stats().hits, 500U);
}

}  // namespace
}  // namespace hotset::host_tier_test
