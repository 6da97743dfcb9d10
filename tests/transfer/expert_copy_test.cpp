// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/expert_copy.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "watched_source.hpp"

namespace hotset::expert_copy_test {
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
    for (std::uint64_t from = 0; from < whole; from += part) {
      const auto done = copy.copy(f, from, part);
      ASSERT_EQ(done.bytes, std::min(part, whole - from));
      ASSERT_EQ(done.total, whole);
    }
    ASSERT_TRUE(experts.holds(2_slot, f.key)) << part;
  }
}

TEST_F(expert_copies, the_origin_is_asked_once_for_each_part) {
  const support::watched_source watched(experts.source);
  const expert_copy<support::watched_source> of(watched, experts.bank);
  EXPECT_EQ(of.copy(fill_of({1_layer, 2_expert}, 0_slot), 90, 200).bytes, 200U)
      << "of three tensors";
  EXPECT_EQ(watched.asked.size(), 1U);
  EXPECT_EQ(of.copy(fill_of({1_layer, 2_expert}, 0_slot), 0, 0).bytes, whole);
  EXPECT_EQ(watched.asked.size(), 2U);
}

TEST_F(expert_copies, an_absent_expert_has_no_part) {
  experts.source.remove({0_layer, 3_expert});
  EXPECT_EQ(copy.copy(fill_of({0_layer, 3_expert}, 0_slot), 0, 0).bytes, 0U);
  EXPECT_EQ(copy.copy(fill_of({0_layer, 3_expert}, 0_slot), 50, 10).bytes, 0U)
      << "gone between two parts";
}

TEST_F(expert_copies, tensors_that_do_not_match_the_slot_are_not_copied) {
  const host_experts smaller{
      pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value(), {96, 33}};
  const expert_copy<memory_expert_source> fewer(smaller.source, experts.bank);
  EXPECT_EQ(fewer.copy(fill_of({0_layer, 1_expert}, 0_slot), 0, 0).bytes, 0U);
  const expert_copy<memory_expert_source> more(experts.source, smaller.bank);
  EXPECT_EQ(more.copy(fill_of({0_layer, 1_expert}, 0_slot), 0, 0).bytes, 0U);
}

/// Records the calls of `read_all`.
class batch_source {
 public:
  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key, precision_id) const noexcept {
    return sizes_;
  }
  [[nodiscard]] bool read(expert_key, precision_id, std::size_t, std::uint64_t,
                          std::span<std::byte>) const noexcept {
    ADD_FAILURE() << "a part was read alone";
    return false;
  }
  [[nodiscard]] bool read_all(expert_key key, precision_id,
                              std::span<const tensor_part> parts) const noexcept {
    calls.push_back(parts.size());
    for (const auto& [tensor, at, to] : parts)
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = support::pattern(key, tensor, at + i);
    return !failing;
  }
  mutable std::vector<std::size_t> calls;  ///< number of parts
  bool failing = false;

 private:
  std::array<std::uint64_t, 3> sizes_{96, 33, 257};
};
static_assert(batch_reader<batch_source>);
static_assert(!batch_reader<support::watched_source>);

TEST_F(expert_copies, an_origin_that_reads_tensors_together_is_read_once) {
  batch_source batch;
  const expert_copy<batch_source> of(batch, experts.bank);
  const auto f = fill_of({1_layer, 5_expert}, 3_slot);
  const auto done = of.copy(f, 0, 10);
  EXPECT_EQ(done.bytes, whole) << "in one call, though chunks are of 10 bytes";
  EXPECT_EQ(batch.calls, std::vector<std::size_t>{3});
  EXPECT_TRUE(experts.holds(3_slot, f.key));
  batch.failing = true;
  EXPECT_EQ(of.copy(f, 0, 0).bytes, 0U);
}

}  // namespace
}  // namespace hotset::expert_copy_test
