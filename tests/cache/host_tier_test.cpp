// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/host_tier.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

/// Generates the three tensors of an expert when they are read; precisions differ in bytes and sizes.
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
/// Whether all tensors of an expert are read correctly.
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

TEST(host_tier, cached_experts_are_not_read_again) {
  const made_disk disk;
  const auto tier = tier_of(disk, 3);
  for (int round = 0; round < 5; ++round)
    for (const auto e : each<expert_id>(3)) EXPECT_TRUE(reads(*tier, {1_layer, e}));
  EXPECT_EQ(disk.reads, 3 * 3);
  EXPECT_EQ(tier->stats().accesses, 15U) << "an expert is one access, not one for each tensor";
  EXPECT_EQ(tier->stats().hits, 12U);
}

TEST(host_tier, evicts_in_its_policys_order) {
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

TEST(host_tier, a_failed_read_keeps_nothing_and_is_repeated) {
  made_disk disk;
  const auto tier = tier_of(disk, 4);
  disk.failing = 2;  // the expert's second tensor
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

TEST(host_tier, refused_experts_are_streamed) {
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

/// Reads the tensors of an expert together.
class batch_disk : public made_disk {
 public:
  [[nodiscard]] bool read_all(expert_key key, precision_id p,
                              std::span<const tensor_part> parts) const noexcept {
    ++batches;
    return std::ranges::all_of(parts, [&](const tensor_part& part) {
      return read(key, p, part.tensor, part.at, part.to);
    });
  }
  mutable std::atomic<int> batches{0};
};

/// Copies an expert twice by a backend with small chunks over a tier. Returns the number of batches.
template <class Pager>
int batches_of_two_copies(const batch_disk& disk, Pager decisions) {
  using tier_type = host_tier<batch_disk, Pager>;
  static_assert(batch_reader<tier_type>);
  const auto tier = tier_type::create(model, std::move(decisions), disk, layouts).value();
  const auto bank = host_slot_bank::create(pool_layout::shared(model, 4).value(), layouts).value();
  host_backend<tier_type> backend(*tier, bank, {.pace = unpaced(16)});
  host_stream stream;
  for (const auto slot : each<slot_id>(2)) {
    const fill what{.key = {1_layer, 5_expert}, .slot = slot};
    const auto sent = backend.submit(std::span(&what, 1), stream, urgency::now);
    EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
    EXPECT_TRUE(support::slot_holds(bank, slot, what.key));
  }
  EXPECT_EQ(tier->stats().accesses, 2U);
  return disk.batches;
}

TEST(host_tier, a_disk_that_reads_tensors_together_is_read_once_for_an_expert) {
  static_assert(!batch_reader<lru_tier>, "its disk has no read_all");
  const auto room = pool_layout::shared(host_tier_shape(model), 4).value();
  const batch_disk disk;
  EXPECT_EQ(batches_of_two_copies(disk, pager<lru>({.layout = room})), 1);
  const batch_disk streamed;
  using picky = pager<lru, after_n_uses>;
  EXPECT_EQ(batches_of_two_copies(streamed, picky({.layout = room, .admission = {.uses = 3}})), 2)
      << "also where the expert passes by";
}

TEST(host_tier, a_failed_read_of_tensors_together_keeps_nothing) {
  batch_disk disk;
  const auto tier =
      host_tier<batch_disk, pager<lru>>::create(
          model, pager<lru>({.layout = pool_layout::shared(host_tier_shape(model), 4).value()}),
          disk, layouts)
          .value();
  disk.failing = 3;
  EXPECT_FALSE(reads(*tier, {0_layer, 5_expert}));
  EXPECT_EQ(tier->stats().failed_fills, 1U);
  EXPECT_TRUE(reads(*tier, {0_layer, 5_expert}));
  EXPECT_EQ(disk.batches, 2);
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
  disk.meeting = 3;  // none of the three first reads ends before the others have started
  const auto tier = tier_of(disk, 4);
  std::vector<std::thread> threads;
  for (const auto e : each<expert_id>(3))
    threads.emplace_back([&tier, e] { EXPECT_TRUE(reads(*tier, {0_layer, e})); });
  for (auto& t : threads) t.join();
}

TEST(host_tier, streams_if_every_slot_is_being_read) {
  made_disk disk;
  disk.meeting = 2;
  const auto tier = tier_of(disk, 1);  // the second expert finds no slot to evict
  std::vector<std::thread> threads;
  for (const auto e : each<expert_id>(2))
    threads.emplace_back([&tier, e] { EXPECT_TRUE(reads(*tier, {0_layer, e})); });
  for (auto& t : threads) t.join();
  EXPECT_GE(tier->passed_by(), 1U);
}

// Late failures, several threads and evictions in both tiers at once; every wrong byte is detected.
TEST(host_tier, a_cache_over_it_serves_the_right_bytes_after_failures) {
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
    const routing_view view{
        .layer = layer_id{static_cast<std::int32_t>(step % 2)}, .step = step, .experts = ids};
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

/// Every byte of an expert is its current version on the disk; two bytes, or one at the lower precision.
class versioned_disk {
 public:
  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key, precision_id p) const noexcept {
    return std::span(sizes_).subspan(index_of(p), 1);
  }
  [[nodiscard]] bool read(expert_key key, precision_id, std::size_t, std::uint64_t,
                          std::span<std::byte> to) const noexcept {
    const auto version = of(key).load();
    std::ranges::fill(to, static_cast<std::byte>(version));
    ++reads;
    if (key == held_up && version == 1) support::gate::pass(&gate);
    return true;
  }
  /// Records the invalidation, as an upper tier does.
  void invalidate(expert_key key) const noexcept {
    if (before_forgetting) before_forgetting();
    forgotten.push_back(key);
  }
  void invalidate(layer_id layer) const noexcept { forgotten.push_back({layer, no_expert}); }

  [[nodiscard]] std::atomic<int>& of(expert_key key) const {
    return versions_[index_of(key.layer) * 8 + index_of(key.expert)];
  }
  void change(expert_key key) { ++of(key); }

  expert_key held_up = no_key;  ///< reads its first version, and nothing else before the gate opens
  mutable support::gate gate{};
  mutable std::atomic<int> reads{0};
  mutable std::vector<expert_key> forgotten;
  std::function<void()> before_forgetting;

 private:
  std::array<std::uint64_t, 2> sizes_{2, 1};
  mutable std::array<std::atomic<int>, 16> versions_{1, 1, 1, 1, 1, 1, 1, 1,
                                                     1, 1, 1, 1, 1, 1, 1, 1};
};
const geometry bytes_model{.layers = 2, .experts = 8, .top_k = 1, .expert_bytes = {2}};
const std::vector<expert_layout> bytes_layouts{{{{"version", 2}}}, {{{"version", 1}}}};

template <class Disk>
std::unique_ptr<host_tier<Disk, pager<lru>>> bytes_tier(const Disk& disk, std::uint64_t slots,
                                                        const geometry& of = bytes_model) {
  auto room = pool_layout::within(host_tier_shape(of), cache_scope::shared, 2 * slots).value();
  return host_tier<Disk, pager<lru>>::create(of, pager<lru>({.layout = std::move(room)}), disk,
                                             bytes_layouts)
      .value();
}
template <class Reader>
int version_in(const Reader& from, expert_key key, precision_id p = {}) {
  std::byte got{};
  EXPECT_TRUE(from.read(key, p, 0, 0, {&got, 1}));
  return static_cast<int>(got);
}

TEST(host_tier_invalidation, forgets_the_expert_at_every_precision_and_no_other) {
  versioned_disk disk;
  auto mixed = bytes_model;
  mixed.lower_precisions = {{1}};
  const auto tier = bytes_tier(disk, 30, mixed);
  const expert_key key{1_layer, 3_expert};
  const expert_key other{1_layer, 4_expert};
  for (const auto p : {0_precision, 1_precision})
    for (const auto k : {key, other}) EXPECT_EQ(version_in(*tier, k, p), 1);
  disk.change(key);
  disk.change(other);
  tier->invalidate(key);
  for (const auto p : {0_precision, 1_precision}) {
    EXPECT_EQ(version_in(*tier, key, p), 2);
    EXPECT_EQ(version_in(*tier, other, p), 1) << "it was not named";
  }
  EXPECT_THAT(disk.forgotten, testing::ElementsAre(key)) << "the disk may keep bytes, too";
}

TEST(host_tier_invalidation, forgets_a_layer_and_no_other) {
  versioned_disk disk;
  const auto tier = bytes_tier(disk, 16);
  const auto all_are = [&](layer_id layer, int version) {
    for (const auto e : each<expert_id>(8)) EXPECT_EQ(version_in(*tier, {layer, e}), version);
  };
  all_are(0_layer, 1);
  all_are(1_layer, 1);
  for (const auto l : each<layer_id>(2))
    for (const auto e : each<expert_id>(8)) disk.change({l, e});
  tier->invalidate(1_layer);
  all_are(1_layer, 2);
  all_are(0_layer, 1);
  EXPECT_THAT(disk.forgotten, testing::ElementsAre(expert_key{1_layer, no_expert}));
}

TEST(host_tier_invalidation, of_an_absent_expert_does_nothing) {
  const versioned_disk disk;
  const auto tier = bytes_tier(disk, 2);
  tier->invalidate(expert_key{1_layer, 3_expert});
  tier->invalidate(expert_key{7_layer, 3_expert});
  tier->invalidate(7_layer);
  EXPECT_EQ(version_in(*tier, {1_layer, 3_expert}), 1);
}

// Otherwise a read between the two invalidations would copy old bytes into the upper tier again.
TEST(host_tier_invalidation, the_level_below_is_invalidated_first) {
  versioned_disk disk;
  const auto tier = bytes_tier(disk, 4);
  const expert_key key{1_layer, 3_expert};
  disk.before_forgetting = [&] {
    EXPECT_EQ(version_in(*tier, key), 1);
    disk.change(key);
  };
  tier->invalidate(key);
  EXPECT_EQ(version_in(*tier, key), 2);
}

// Bytes that were read before the invalidation must not enter the tier after it.
TEST(host_tier_invalidation, waits_for_a_read_that_is_under_way) {
  versioned_disk disk;
  disk.held_up = {0_layer, 2_expert};
  const auto tier = bytes_tier(disk, 4);
  std::thread reader([&] { EXPECT_EQ(version_in(*tier, disk.held_up), 1); });
  while (disk.reads == 0) std::this_thread::yield();
  disk.change(disk.held_up);
  std::thread forgetting([&] { tier->invalidate(disk.held_up); });
  // The read of the old bytes started before the invalidation, wherever that is when the gate opens.
  std::this_thread::yield();
  disk.gate.open();
  reader.join();
  forgetting.join();
  EXPECT_EQ(version_in(*tier, disk.held_up), 2);
}

// A read that starts after an invalidation has returned never gets earlier bytes.
TEST(host_tier_invalidation, holds_while_other_threads_read) {
  versioned_disk disk;
  const auto below = bytes_tier(disk, 5);
  const auto tier = bytes_tier(*below, 3);
  std::array<std::atomic<int>, 8> invalidated{};
  std::atomic<int> reads = 0;
  std::atomic<int> stale = 0;
  constexpr int enough = 6000;
  std::vector<std::thread> readers;
  for (std::uint64_t t = 0; t < 3; ++t)
    readers.emplace_back([&, t] {
      support::random_source random(t);
      while (reads++ < enough) {
        const auto e = random.id_below(8);
        const auto least = invalidated[static_cast<std::size_t>(e)].load();
        if (version_in(*tier, {0_layer, expert_id{e}}) < least) ++stale;
      }
    });
  support::random_source random(9);
  while (reads < enough) {
    const expert_key key{0_layer, expert_id{random.id_below(8)}};
    if (disk.of(key) < 250) disk.change(key);  // a version is one byte
    random.one_in(8) ? tier->invalidate(key.layer) : tier->invalidate(key);
    invalidated[index_of(key.expert)] = disk.of(key).load();
    std::this_thread::yield();
  }
  for (auto& r : readers) r.join();
  EXPECT_EQ(stale, 0);
}

/// A cache over two tiers, with each backend that reads on the host.
template <class Backend>
struct invalidated_cache : testing::Test {};
using lower_tier = host_tier<versioned_disk, pager<lru>>;
using upper_tier = host_tier<lower_tier, pager<lru>>;
using readers_of_tiers = testing::Types<inline_backend<upper_tier>, host_backend<upper_tier>>;
TYPED_TEST_SUITE(invalidated_cache, readers_of_tiers);

TYPED_TEST(invalidated_cache, serves_no_stale_bytes_from_any_level) {
  versioned_disk disk;
  const auto below = bytes_tier(disk, 5);
  const auto tier = bytes_tier(*below, 4);
  const auto layout = pool_layout::per_layer(bytes_model, 3).value();
  const auto bank = host_slot_bank::create(layout, bytes_layouts).value();
  TypeParam backend(*tier, bank);
  slot_cache<pager<lru>, TypeParam> cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  typename TypeParam::stream_type stream;
  support::random_source random(3);
  for (step_id step = 0; step < 500; ++step) {
    const auto id = random.id_below(8);
    routing_view view{.layer = layer_id{static_cast<std::int32_t>(step % 2)},
                      .step = step,
                      .experts = std::span(&id, 1)};
    const expert_key key{view.layer, expert_id{id}};
    int got = 0;
    ASSERT_EQ(cache.serve(view, stream, visit,
                          [&](const visit_group& group) {
                            got = static_cast<int>(bank.bytes(group.slots()[0], 0)[0]);
                          }),
              status::ok);
    ASSERT_EQ(got, disk.of(key));
    if (!random.one_in(3) || disk.of(key) == 250) continue;
    ASSERT_EQ(random.one_in(4) ? cache.invalidate(key.layer) : cache.invalidate(key), status::ok);
    disk.change(key);
  }
}

TEST(host_tier_invalidation, is_not_called_while_a_cache_still_reads) {
  versioned_disk disk;
  const auto tier = bytes_tier(disk, 4);
  const auto layout = pool_layout::per_layer(bytes_model, 3).value();
  const auto bank = host_slot_bank::create(layout, bytes_layouts).value();
  inline_backend<lower_tier> backend(*tier, bank);
  slot_cache<pager<lru>, inline_backend<lower_tier>> cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  inline_stream stream;
  const std::int32_t id = 3;
  const routing_view view{.layer = 0_layer, .experts = std::span(&id, 1)};
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  EXPECT_EQ(cache.invalidate(expert_key{0_layer, 3_expert}), status::busy);
  EXPECT_EQ(cache.invalidate(expert_key{0_layer, 8_expert}), status::invalid_argument);
  EXPECT_THAT(disk.forgotten, testing::IsEmpty());
  cache.release(visit, stream);
  EXPECT_EQ(cache.invalidate(expert_key{0_layer, 3_expert}), status::ok);
  EXPECT_EQ(cache.invalidate(expert_key{0_layer, 5_expert}), status::ok);
  EXPECT_THAT(disk.forgotten,
              testing::ElementsAre(expert_key{0_layer, 3_expert}, expert_key{0_layer, 5_expert}))
      << "an expert that the cache has not may stand in the tier";
}

}  // namespace
}  // namespace hotset::host_tier_test
