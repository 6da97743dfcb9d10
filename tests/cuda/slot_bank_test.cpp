// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/slot_bank.hpp"

#include <array>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda {
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
    for (slot_id s = 0; s < 5; ++s)
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

// Hazard 18: memory on another device than the one that the engine meant.
TEST(cuda_slot_bank, takes_the_memory_of_the_device_that_it_names) {
  fake_cuda_runtime api;
  api.devices = 2;
  const auto bank = slot_bank::create(api, pools(), layouts, {.device = 1}).value();
  EXPECT_EQ(bank.device(), 1);
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  EXPECT_EQ(device, 0);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {.device = 2}).reason().message,
              HasSubstr("cudaSetDevice"));
}

TEST(cuda_slot_bank, leaves_nothing_behind_when_memory_is_refused) {
  fake_cuda_runtime api;
  api.fail("cudaMalloc", 3, error_code::memory_allocation);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {}).reason().message,
              HasSubstr("for 2 slots of tensor 'all': cudaMalloc: fakeError (2)"));
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_THAT(slot_bank::create(api, pools(), layouts, {.alignment = 48}).reason().message,
              HasSubstr("accepted: a power of two"));
  EXPECT_THAT(slot_bank::create(api, pools(), {layouts[0]}, {}).reason().message,
              HasSubstr("no layout for size class 1"));
}

// Hazard 13: a captured graph keeps the addresses that it was captured with.
TEST(cuda_slot_bank, addresses_survive_a_move) {
  fake_cuda_runtime api;
  auto bank = slot_bank::create(api, pools(), layouts, {}).value();
  const auto* const before = bank.bytes(1, 1).data();
  const auto moved = std::move(bank);
  EXPECT_EQ(moved.bytes(1, 1).data(), before);
  EXPECT_EQ(api.calls("cudaFree"), 0U);
}

}  // namespace
}  // namespace hotset::cuda
