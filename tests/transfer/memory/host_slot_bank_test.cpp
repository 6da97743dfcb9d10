// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/host_slot_bank.hpp"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::host_slot_bank_test {
namespace {

using support::slot_ids;
using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {30, 8}};
const std::vector<expert_layout> layouts{{{{"up", 20}, {"down", 10}}}, {{{"all", 8}}}};

TEST(host_slot_bank, every_slot_has_a_place_of_its_own_for_every_tensor) {
  const auto layout = pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value();
  const auto bank = host_slot_bank::create(layout, layouts).value();
  ASSERT_EQ(bank.slots(), 5U);
  for (const auto s : each<slot_id>(5)) {
    ASSERT_EQ(bank.tensors(s), s < 3 ? 2U : 1U);
    for (std::size_t t = 0; t < bank.tensors(s); ++t) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bank.bytes(s, t).data()) % 64, 0U);
      std::memset(bank.bytes(s, t).data(), 16 * number(s) + static_cast<int>(t),
                  bank.bytes(s, t).size());
    }
  }
  EXPECT_EQ(bank.bytes(0_slot, 0).size(), 20U);
  EXPECT_EQ(bank.bytes(0_slot, 1).size(), 10U);
  EXPECT_EQ(bank.bytes(4_slot, 0).size(), 8U);
  for (const auto s : each<slot_id>(5))
    for (std::size_t t = 0; t < bank.tensors(s); ++t)
      for (const auto b : bank.bytes(s, t))
        ASSERT_EQ(static_cast<int>(b), 16 * number(s) + static_cast<int>(t));
}

// Hazards 13 and 14 need it: addresses are stable for the bank's lifetime.
TEST(host_slot_bank, addresses_survive_a_move) {
  auto bank = host_slot_bank::create(pool_layout::per_layer(shape, 2).value(), layouts).value();
  const auto* const before = bank.bytes(1_slot, 1).data();
  const auto moved = std::move(bank);
  EXPECT_EQ(moved.bytes(1_slot, 1).data(), before);
}

TEST(host_slot_bank, an_elastic_one_holds_the_first_slots_alone) {
  const auto layout = pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 4}).value();
  memory_budget budget(1000);
  auto bank = host_slot_bank::create_elastic(layout, layouts, budget).value();
  EXPECT_TRUE(bank.is_elastic());
  EXPECT_EQ(budget.in_use(), 0U);
  EXPECT_EQ(bank.slot_bytes(0), 128U);  // two tensors, a cache line each
  EXPECT_EQ(bank.slot_bytes(1), 64U);
  ASSERT_EQ(bank.hold(0, 2), status::ok);
  ASSERT_EQ(bank.hold(1, 4), status::ok);
  EXPECT_EQ(budget.in_use(), 2 * 128U + 4 * 64U);
  const auto write = [&](slot_id s) {
    for (std::size_t t = 0; t < bank.tensors(s); ++t)
      std::memset(bank.bytes(s, t).data(), number(s) + 1, bank.bytes(s, t).size());
  };
  for (const auto s : slot_ids({0, 1, 3, 4, 5, 6})) write(s);
  ASSERT_EQ(bank.hold(1, 1), status::ok);
  ASSERT_EQ(bank.hold(0, 3), status::ok);
  EXPECT_EQ(bank.held(0), 3U);
  EXPECT_EQ(bank.held(1), 1U);
  EXPECT_EQ(budget.in_use(), 3 * 128U + 64U);
  for (const auto s : slot_ids({0, 1, 3}))
    for (std::size_t t = 0; t < bank.tensors(s); ++t)
      for (const auto b : bank.bytes(s, t)) ASSERT_EQ(static_cast<int>(b), s + 1);
}

TEST(host_slot_bank, one_over_the_engines_memory_uses_the_engines_places) {
  const auto layout = pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value();
  std::vector<std::byte> up(2 * 24 + 20);
  std::vector<std::byte> down(30);
  std::vector<std::byte> all(100);
  const std::array<slot_array, 3> arrays{{{up, 24}, {down, 10}, {all, 64}}};
  const auto bank = host_slot_bank::create_over(layout, layouts, arrays).value();
  EXPECT_EQ(bank.bytes(2_slot, 0).data(), up.data() + 48);
  EXPECT_EQ(bank.bytes(2_slot, 0).size(), 20U);
  EXPECT_EQ(bank.bytes(1_slot, 1).data(), down.data() + 10);
  EXPECT_EQ(bank.bytes(4_slot, 0).data(), all.data() + 64);
  EXPECT_EQ(bank.slot_bytes(0), 34U);
  EXPECT_FALSE(bank.check(layout));
}

TEST(host_slot_bank, memory_that_the_slots_do_not_fit_into_is_refused) {
  const auto layout = pool_layout::per_layer(shape, 2).value();
  std::vector<std::byte> memory(1000);
  const std::span<std::byte> some(memory);
  const auto why = [&](std::vector<slot_array> arrays) {
    const auto made = host_slot_bank::create_over(layout, layouts, arrays);
    return made ? "accepted" : made.error().message;
  };
  EXPECT_EQ(why({{some, 20}, {some, 10}}),
            "2 slot arrays, accepted: 3, one for each tensor of each size class");
  EXPECT_EQ(why({{some, 20}, {some, 9}, {some, 8}}),
            "the stride of slot array 1 is 9 bytes, accepted: 10 or more, the bytes of a tensor");
  EXPECT_EQ(why({{some.first(43), 24}, {some, 10}, {some, 8}}),
            "slot array 0 has 43 bytes, accepted: 44 or more, for 2 slots");
  EXPECT_THAT(why({{some, ~std::size_t{0}}, {some, 10}, {some, 8}}), HasSubstr("the stride of"));
  EXPECT_EQ(why({{some.first(44), 24}, {some, 10}, {some, 8}}), "accepted");
}

}  // namespace
}  // namespace hotset::host_slot_bank_test
