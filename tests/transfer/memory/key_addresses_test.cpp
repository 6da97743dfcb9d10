// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/key_addresses.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/inline_backend.hpp"
#include "random_source.hpp"

namespace hotset::key_addresses_test {
namespace {

using support::pattern;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
constexpr std::array<std::uint64_t, 2> sizes{5000, 12288};
const std::vector<expert_layout> layouts{{{{"up", sizes[0]}, {"down", sizes[1]}}}};

class addresses_by_key : public testing::TestWithParam<absent_pages> {
 protected:
  void SetUp() override {
    auto made = key_addresses::create(shape, layouts, GetParam());
    if (!made) GTEST_SKIP() << made.error().message;
    if (made->page_bytes() != 4096) GTEST_SKIP() << "pages of " << made->page_bytes() << " bytes";
    places.emplace(*std::move(made));
  }
  void write(expert_key key) {
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      const auto to = places->bytes(key, t);
      for (std::size_t at = 0; at < to.size(); ++at) to[at] = pattern(key, t, at);
    }
  }
  [[nodiscard]] bool holds(expert_key key) const {
    for (std::size_t t = 0; t < sizes.size(); ++t)
      if (!support::holds(places->bytes(key, t), key, t)) return false;
    return true;
  }
  /// Pages that the held experts touch, counted anew.
  [[nodiscard]] std::uint64_t expected_bytes() const {
    std::uint64_t pages = 0;
    for (const auto l : each<layer_id>(shape.layers))
      for (const auto size : sizes)
        for (std::uint64_t page = 0; page * 4096 < size * 8; ++page) {
          bool used = false;
          for (const auto e : each<expert_id>(8))
            used = used || (places->is_held({l, e}) && index_of(e) * size < (page + 1) * 4096 &&
                            (index_of(e) + 1) * size > page * 4096);
          pages += used ? 1 : 0;
        }
    return pages * 4096;
  }

  std::optional<key_addresses> places;
};

TEST_P(addresses_by_key, lie_one_behind_the_other_at_a_stride_of_the_bytes) {
  const auto all = places->addresses(1_layer, 0);
  EXPECT_EQ(all.size(), 8 * sizes[0]);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.data()) % 4096, 0U);
  EXPECT_EQ(places->bytes({1_layer, 3_expert}, 0).data(), all.data() + 3 * sizes[0]);
  EXPECT_EQ(places->tensors({0_layer, 0_expert}), 2U);
  EXPECT_EQ(places->held_bytes(), 0U);
}

TEST_P(addresses_by_key, a_page_that_neighbours_share_is_counted_once_and_kept_while_one_is_held) {
  const expert_key left{0_layer, 1_expert}, right{0_layer, 2_expert};
  ASSERT_EQ(places->hold(left), memory_status::ok);
  ASSERT_EQ(places->hold(right), memory_status::ok);
  EXPECT_EQ(places->held_bytes(), (3 + 6) * 4096U) << "5,000..15,000 and 12,288..36,864";
  write(left);
  write(right);
  places->drop(left);
  EXPECT_TRUE(holds(right));
  EXPECT_EQ(places->held_bytes(), (2 + 3) * 4096U);
  places->drop(right);
  EXPECT_EQ(places->held_bytes(), 0U);
}

TEST_P(addresses_by_key, holding_and_dropping_twice_is_as_once) {
  const expert_key key{1_layer, 7_expert};
  for (int n = 0; n < 2; ++n) ASSERT_EQ(places->hold(key), memory_status::ok);
  write(key);
  EXPECT_EQ(places->hold(key), memory_status::ok);
  EXPECT_TRUE(holds(key)) << "what is held keeps its bytes";
  for (int n = 0; n < 2; ++n) places->drop(key);
  EXPECT_FALSE(places->is_held(key));
  EXPECT_EQ(places->held_bytes(), 0U);
  EXPECT_EQ(places->hold({2_layer, 0_expert}), memory_status::invalid_argument);
  places->drop({0_layer, 8_expert});
}

TEST_P(addresses_by_key, any_order_of_holding_and_dropping_keeps_what_is_held) {
  support::random_source random(7);
  for (int n = 0; n < 2000; ++n) {
    const auto key = shape.key(random.below(shape.keys()));
    if (places->is_held(key)) {
      ASSERT_TRUE(holds(key));
      places->drop(key);
    } else {
      ASSERT_EQ(places->hold(key), memory_status::ok);
      write(key);
    }
    if (n % 50 == 0) {
      ASSERT_EQ(places->held_bytes(), expected_bytes());
      for (std::size_t k = 0; k < shape.keys(); ++k)
        if (places->is_held(shape.key(k))) {
          ASSERT_TRUE(holds(shape.key(k)));
        }
    }
  }
}

/// Bytes of every expert, made when they are read.
struct made_experts {
  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key, precision_id) const noexcept {
    return key_addresses_test::sizes;
  }
  [[nodiscard]] bool read(expert_key key, precision_id, std::size_t t, std::uint64_t at,
                          std::span<std::byte> to) const noexcept {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = pattern(key, t, at + i);
    return good.fetch_sub(1) != 1;
  }
  mutable std::atomic<int> good{-1};  ///< counts down; the read at 1 fails
};

// The engine's kernel takes ids as the router gave them; a pager decides which of them have memory.
TEST_P(addresses_by_key, a_cache_holds_as_many_experts_as_it_has_slots) {
  made_experts source;
  const auto layout = pool_layout::shared(shape, 3).value();
  inline_backend<made_experts, key_addresses> backend(source, *places);
  const departure_sink gone{[](void* who, const departure& of) noexcept {
                              static_cast<key_addresses*>(who)->drop(of.key);
                            },
                            &*places};
  slot_cache<pager<lru>, inline_backend<made_experts, key_addresses>> cache(
      pager<lru>({.layout = layout, .departures = gone}), backend);
  auto visit = cache.make_visit();
  inline_stream stream;
  support::random_source random(3);
  int failed = 0;
  for (step_id step = 0; step < 2000; ++step) {
    if (random.one_in(9)) source.good = 1 + random.id_below(4);
    const std::array ids{random.id_below(8), random.id_below(8)};
    routing_view view;
    view.layer = layer_id{static_cast<std::int32_t>(step % 2)};
    view.step = step;
    view.experts = ids;
    const auto served = cache.serve(view, stream, visit, [&](const visit_group&) {
      for (const auto id : ids) ASSERT_TRUE(holds({view.layer, expert_id{id}}));
    });
    if (served != status::ok) ++failed;
    std::size_t held = 0;
    for (std::size_t k = 0; k < shape.keys(); ++k) held += places->is_held(shape.key(k)) ? 1U : 0U;
    ASSERT_LE(held, 3U) << "step " << step;
  }
  EXPECT_GT(failed, 10);
  EXPECT_LT(failed, 1000);
}

TEST_P(addresses_by_key, threads_of_a_backend_may_hold_while_others_are_dropped) {
  const made_experts source;
  host_backend<made_experts, key_addresses> backend(source, *places, {.threads = 3});
  host_stream stream;
  for (std::int32_t n = 0; n < 300; ++n) {
    std::vector<fill> fills;
    for (std::int32_t i = 0; i < 4; ++i) {
      fill f;
      f.key = {0_layer, expert_id{(n + i) % 8}};
      f.slot = slot_id{i};
      fills.push_back(f);
    }
    const auto sent = backend.submit(fills, stream, urgency::now);
    if (n > 0) places->drop({0_layer, expert_id{(n - 1) % 8}});
    ASSERT_EQ(backend.wait(sent.id), transfer_state::arrived);
    for (const auto& f : fills) ASSERT_TRUE(holds(f.key));
  }
}

TEST_P(addresses_by_key, a_cache_of_another_shape_is_refused) {
  EXPECT_FALSE(places->check(pool_layout::shared(shape, 3).value()));
  EXPECT_EQ(places->check(pool_layout::shared({.layers = 3, .experts = 8, .top_k = 2}, 3).value())
                ->message,
            "a cache of 3 layers of 8 experts at 1 precisions, accepted: 2 of 8 at 1");
}

INSTANTIATE_TEST_SUITE_P(each_kind, addresses_by_key,
                         testing::Values(absent_pages::guarded, absent_pages::zeros),
                         [](const auto& one) {
                           return one.param == absent_pages::guarded ? "guarded" : "zeros";
                         });

TEST(key_addresses_death_test, reading_an_expert_that_is_not_held_stops_the_program) {
  auto places = key_addresses::create(shape, layouts);
  if (!places) GTEST_SKIP() << places.error().message;
  const auto* const byte = places->bytes({0_layer, 4_expert}, 1).data();
  EXPECT_DEATH((void)*static_cast<const volatile std::byte*>(byte), "");
}

TEST(key_addresses, what_cannot_be_is_refused) {
  EXPECT_EQ(key_addresses::create({.layers = 0, .experts = 8, .top_k = 2}, layouts).error().message,
            "layers = 0, accepted: 1 or more");
  EXPECT_EQ(key_addresses::create(shape, {}).error().message, "no layout for size class 0");
  auto two = shape;
  two.expert_bytes = {100};
  two.lower_precisions = {{50}};
  EXPECT_EQ(key_addresses::create(two, layouts).error().message,
            "addresses by key of 2 precisions, accepted: 1");
  const std::vector<expert_layout> huge{{{{"up", std::uint64_t{1} << 62U}}}};
  EXPECT_THAT(key_addresses::create(shape, huge).error().message, testing::HasSubstr("accepted: "));
}

}  // namespace
}  // namespace hotset::key_addresses_test
