// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/expert_copy.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"

namespace hotset {
namespace {

using support::fill_of;
using support::host_experts;

class expert_copies : public testing::Test {
 protected:
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  expert_copy<memory_expert_source> copy{experts.source, experts.bank};
  const std::uint64_t whole = 96 + 33 + 257;
};

TEST_F(expert_copies, parts_of_any_length_make_a_whole) {
  for (std::uint64_t part = 1; part <= whole; part += 13) {
    const auto f = fill_of({1_layer, static_cast<expert_id>(part % 8)}, 2_slot);
    ASSERT_EQ(copy.bytes(f), whole);
    for (std::uint64_t from = 0; from < whole; from += part)
      ASSERT_TRUE(copy.copy(f, from, std::min(part, whole - from)));
    ASSERT_TRUE(experts.holds(2_slot, f.key)) << part;
  }
}

TEST_F(expert_copies, an_absent_expert_has_no_bytes_and_no_part) {
  experts.source.remove({0_layer, 3_expert});
  const auto f = fill_of({0_layer, 3_expert}, 0_slot);
  EXPECT_EQ(copy.bytes(f), 0U);
  EXPECT_FALSE(copy.copy(f, 0, whole)) << "gone between two parts";
}

TEST_F(expert_copies, tensors_that_are_not_those_of_the_slot_are_not_copied) {
  const host_experts smaller{
      pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value(), {96, 33}};
  const expert_copy<memory_expert_source> fewer(smaller.source, experts.bank);
  EXPECT_EQ(fewer.bytes(fill_of({0_layer, 1_expert}, 0_slot)), 0U);
  const expert_copy<memory_expert_source> more(experts.source, smaller.bank);
  EXPECT_EQ(more.bytes(fill_of({0_layer, 1_expert}, 0_slot)), 0U);
}

}  // namespace
}  // namespace hotset
