// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters_1_includes.inc"
#include "hotset/transfer/memory/host_virtual_memory.hpp"

namespace {

using hotset::expert_id;
using namespace hotset::literals;

/// Routes two tokens of the adapter and one of the base model through layer 1.
std::string served(std::vector<std::int32_t>& ids, std::vector<std::vector<expert_id>> experts,
                   bool can_read = true) {
  auto memory = hotset::host_virtual_memory::create().value();
  const auto fail = [](const std::string& why) { return why; };
  constexpr std::int32_t layers = 2;
  constexpr std::size_t gate_up_bytes = 96;
  constexpr std::size_t down_bytes = 48;
  constexpr std::uint64_t host_bytes = 1 << 20;
  const std::size_t page_bytes = memory.granularity();
  constexpr std::uint32_t pages = 64;
  const auto& experts_of_each_layer = experts;
  const hotset::layer_id layer = 1_layer;
  const std::vector<std::int32_t> adapter_of_token{0, -1, 0};
  const auto read_part = [can_read](const hotset::adapter_part& part, std::span<std::byte> bytes) {
    std::ranges::fill(bytes, static_cast<std::byte>(part.expert));
    return can_read;
  };
#include "adapters_1.inc"
  // Reads as a kernel would.
  for (const auto place : ids) {
    if (place < 64) continue;
    EXPECT_EQ(adapters->tensor(layer, 0).bytes(expert_id{place})[5], std::byte{9});
  }
  return "served";
}

TEST(adapters_document, a_token_of_an_adapter_reads_its_experts) {
  std::vector<std::int32_t> ids{9, 3, 9, 3, 4, 5};
  EXPECT_EQ(served(ids, {{1_expert, 2_expert}, {9_expert}}), "served");
  EXPECT_THAT(ids, testing::ElementsAre(64, 3, 9, 3, 4, 5));
}

TEST(adapters_document, an_adapter_that_cannot_be_served_is_reported) {
  std::vector<std::int32_t> ids{9, 3, 9, 3, 64, 5};
  EXPECT_EQ(served(ids, {{1_expert, 2_expert}, {9_expert}}), "no such expert or adapter");
  EXPECT_EQ(served(ids, {{1_expert, 1_expert}, {9_expert}}),
            "adapter law: layer 0: expert 1 is named twice");
  EXPECT_EQ(served(ids, {{1_expert}, {9_expert}}, false), "the adapter could not be read");
}

}  // namespace
