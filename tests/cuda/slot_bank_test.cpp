// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/slot_bank.hpp"

#include <array>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_driver.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"

namespace hotset::cuda::slot_bank_test {
namespace {

using support::fake_cuda_runtime;
using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {30, 8}};
const std::vector<expert_layout> layouts{{{{"up", 20}, {"down", 10}}}, {{{"all", 8}}}};
pool_layout pools() {
  return pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value();
}

TEST(cuda_slot_bank, every_slot_has_a_place_of_its_own_and_the_tail_is_padded) {
  fake_cuda_runtime api;
  {
    const auto bank =
        slot_bank::create(api, pools(), layouts, {.alignment = 32, .tail_padding = 100}).value();
    EXPECT_EQ(bank.slots(), 5U);
    EXPECT_EQ(bank.device_bytes(), (3U * 32 + 100) * 2 + 2 * 32 + 100);
    std::set<const std::byte*> starts;
    for (const auto s : each<slot_id>(5))
      for (std::size_t t = 0; t < bank.tensors(s); ++t) {
        const auto place = bank.bytes(s, t);
        EXPECT_TRUE(starts.insert(place.data()).second);
        const auto at = bank.places().at(s, t);
        EXPECT_EQ(place.data(), bank.base(at.array) + at.offset);
        EXPECT_EQ(place.size(), at.bytes);
      }
    EXPECT_EQ(starts.size(), 8U);
  }
  EXPECT_EQ(api.leaks(), 0U);
}

// Hazard 18: memory on another device than the engine intended.
TEST(cuda_slot_bank, takes_the_memory_of_the_device_that_it_names) {
  fake_cuda_runtime api;
  api.devices = 2;
  const auto bank = slot_bank::create(api, pools(), layouts, {.device = 1}).value();
  EXPECT_EQ(bank.device(), 1);
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  EXPECT_EQ(device, 0);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {.device = 2}).error().message,
              HasSubstr("cudaSetDevice"));
}

TEST(cuda_slot_bank, has_no_effect_if_memory_is_refused) {
  fake_cuda_runtime api;
  api.fail("cudaMalloc", 3, error_code::memory_allocation);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {}).error().message,
              HasSubstr("for 2 slots of tensor 'all': cudaMalloc: fakeError (2)"));
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {.alignment = 48}).error().message,
              HasSubstr("accepted: a power of two"));
  EXPECT_THAT(slot_bank::create(api, pools(), {layouts[0]}, {}).error().message,
              HasSubstr("no layout for size class 1"));
}

// Hazard 13: a captured graph keeps its addresses.
TEST(cuda_slot_bank, addresses_survive_a_move) {
  fake_cuda_runtime api;
  auto bank = slot_bank::create(api, pools(), layouts, {}).value();
  const auto* const before = bank.bytes(1_slot, 1).data();
  const auto moved = std::move(bank);
  EXPECT_EQ(moved.bytes(1_slot, 1).data(), before);
  EXPECT_EQ(api.calls("cudaFree"), 0U);
}

// Hazard 13: addresses in a captured graph survive a resize, and the tail of the last slot has memory.
TEST(cuda_slot_bank, an_elastic_one_has_memory_behind_held_slots_alone) {
  constexpr std::size_t page = 4096;
  fake_cuda_runtime api;
  support::fake_cuda_driver driver(page);
  memory_budget budget(1 << 20);
  {
    auto memory = virtual_memory::create(driver, 0).value();
    auto bank = slot_bank::create_elastic(api, memory, pools(), layouts, budget,
                                          {.alignment = page, .tail_padding = page})
                    .value();
    EXPECT_TRUE(bank.is_elastic());
    EXPECT_EQ(bank.device_bytes(), 0U);
    EXPECT_EQ(bank.slot_bytes(0), 2 * page);
    auto* const first = bank.bytes(0_slot, 0).data();
    ASSERT_EQ(bank.hold(0, 2), status::ok);
    EXPECT_EQ(bank.held(0), 2U);
    EXPECT_EQ(budget.in_use(), 4 * page);
    EXPECT_EQ(bank.device_bytes(), 6 * page);  // two slots and the tail of each array
    EXPECT_EQ(bank.bytes(0_slot, 0).data(), first);
    EXPECT_TRUE(driver.has_access(bank.bytes(1_slot, 1).data() + 2 * page - 1));
    EXPECT_FALSE(driver.has_access(bank.bytes(2_slot, 1).data() + page));
    EXPECT_FALSE(driver.has_access(bank.bytes(3_slot, 0).data()));
    ASSERT_EQ(bank.hold(0, 0), status::ok);
    EXPECT_FALSE(driver.has_access(first));
    EXPECT_EQ(driver.physical_bytes(), 0U);
    EXPECT_EQ(bank.hold(0, 3), status::ok);
    EXPECT_EQ(bank.bytes(0_slot, 0).data(), first);
  }
  EXPECT_EQ(budget.in_use(), 0U);
  EXPECT_THAT(driver.leaks(), testing::IsEmpty());
  EXPECT_THAT(driver.violations(), testing::IsEmpty());
}

TEST(cuda_slot_bank, an_elastic_one_takes_memory_of_its_own_device) {
  fake_cuda_runtime api;
  support::fake_cuda_driver driver(4096);
  memory_budget budget(1 << 20);
  auto memory = virtual_memory::create(driver, 1).value();
  EXPECT_THAT(slot_bank::create_elastic(api, memory, pools(), layouts, budget, {}).error().message,
              HasSubstr("virtual memory of device 1, accepted: of device 0"));
  auto whole = slot_bank::create(api, pools(), layouts, {}).value();
  EXPECT_FALSE(whole.is_elastic());
  EXPECT_EQ(whole.hold(0, 1), status::invalid_argument);
  EXPECT_EQ(whole.held(0), 3U);
}

TEST(cuda_slot_bank, copies_a_slot_in_the_order_of_the_stream) {
  fake_cuda_runtime api;
  {
    auto bank = slot_bank::create(api, pools(), layouts, {}).value();
    const auto order = stream::create(api, 0).value();
    api.launch(order.handle(), [&] {  // runs as late as possible
      bank.bytes(0_slot, 0)[19] = std::byte{7};
      bank.bytes(0_slot, 1)[9] = std::byte{8};
    });
    ASSERT_EQ(bank.copy_slot(0_slot, 2_slot, order), status::ok);
    EXPECT_EQ(api.pending(), 3U);
    ASSERT_EQ(bank.finish(order), status::ok);
    EXPECT_EQ(bank.bytes(2_slot, 0)[19], std::byte{7});
    EXPECT_EQ(bank.bytes(2_slot, 1)[9], std::byte{8});
    api.fail("cudaMemcpyAsync on the device", 2);
    EXPECT_EQ(bank.copy_slot(0_slot, 1_slot, order), status::fill_failed);
    api.fail("cudaStreamSynchronize", 1);
    EXPECT_EQ(bank.finish(order), status::fill_failed);
    EXPECT_EQ(bank.finish(order), status::ok);
  }
  EXPECT_THAT(api.violations(), testing::IsEmpty());
}
static_assert(hotset::slot_bank<slot_bank, stream>);

}  // namespace
}  // namespace hotset::cuda::slot_bank_test
