// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/expert_pool.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/memory_budget.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "paging_samples.hpp"
#include "tiny_moe/model/kv_pool.hpp"

namespace expert_pool_test {
namespace {

using namespace paging_samples;
using hotset::status;

constexpr std::uint64_t slot_bytes = 23040;  // of one layer
constexpr std::uint64_t unit_bytes = 12 * slot_bytes;
constexpr std::size_t block_tokens = 2;
constexpr std::uint64_t block_bytes = block_tokens * 9216;

/// Sessions that overlap and share a prefix.
std::vector<serving_request> sessions() {
  std::vector<serving_request> out;
  for (std::size_t i = 0; i < 5; ++i)
    out.push_back(
        {.arrival = 3 * i, .prompt = bytes_of(text.substr(0, 20 + 3 * i)), .tokens = 6 + i});
  return out;
}

/// Experts and blocks in one budget, used by an engine.
struct shared_memory {
  shared_memory(std::uint64_t cap, std::uint64_t block_count, std::uint64_t spare = 0)
      : budget(cap * unit_bytes + block_count * block_bytes + spare),
        experts(make_paged_experts(weights(), paging(budget), "lru")),
        blocks(weights().config(),
               {.block_tokens = block_tokens, .blocks = block_count, .budget = &budget}),
        decoder(weights(), *experts, blocks, {.max_positions = 256, .max_tokens = 16}) {
    EXPECT_EQ(experts->slots()->open(cap), status::ok);
  }
  static paging_config paging(hotset::memory_budget& budget) {
    const auto shape = geometry_of(weights(), 16);
    return {.layout = hotset::pool_layout::per_layer(shape, shape.experts).value(),
            .memory = &budget};
  }
  expert_pool& slots() { return *experts->slots(); }
  status resize(std::uint64_t cap, std::uint64_t block_count) {
    experts->drain();
    return hotset::resize_both(slots(), cap, blocks, block_count);
  }
  void expect_accounted() {
    EXPECT_EQ(budget.in_use(), slots().capacity() * unit_bytes + blocks.capacity() * block_bytes);
    EXPECT_LE(budget.peak(), budget.limit());
  }
  std::vector<std::vector<std::uint8_t>> serve_all(const between_steps& between) {
    const auto report = serve(decoder, sessions(), {.max_sessions = 3, .max_tokens = 16}, between);
    std::vector<std::vector<std::uint8_t>> out;
    for (const auto& one : report.requests) {
      EXPECT_EQ(one.refusal, "");
      out.push_back(one.output);
    }
    return out;
  }

  hotset::memory_budget budget;
  std::unique_ptr<paged_provider> experts;
  kv_pool blocks;
  batch_engine decoder;
};

/// Expected answer of each request: alone, with all experts resident.
std::vector<std::vector<std::uint8_t>> expected() {
  std::vector<std::vector<std::uint8_t>> out;
  for (const auto& one : sessions()) out.push_back(alone(one));
  return out;
}

TEST(expert_pool, is_there_only_with_a_budget) {
  shared_memory parts(6, 40);
  EXPECT_EQ(parts.slots().unit_bytes(), unit_bytes);
  EXPECT_EQ(parts.slots().capacity(), 6U);
  EXPECT_EQ(parts.slots().in_use(), 4U);  // a token's
  EXPECT_TRUE(parts.slots().drained());
  parts.expect_accounted();
  paging_config plain;
  plain.layout = layout_of(weights(), cache_scope::per_layer, "6", 16);
  EXPECT_EQ(make_paged_experts(weights(), plain, "lru")->slots(), nullptr);
}

// (D1), (D2): repeatedly from the fewest experts to the most and back, while sessions run.
TEST(expert_pool, a_full_cycle_in_mid_session_changes_no_byte) {
  constexpr std::uint64_t budget = 10 * unit_bytes + 60 * block_bytes;
  shared_memory parts(10, 60);
  std::uint64_t cycles = 0;
  const auto outputs = parts.serve_all([&](const drained_point& now) {
    const auto least = std::max(now.least_blocks, parts.blocks.in_use());
    const auto cap = now.step % 2 == 0 ? 4 : (budget - least * block_bytes) / unit_bytes;
    ASSERT_EQ(parts.resize(cap, (budget - cap * unit_bytes) / block_bytes), status::ok);
    parts.expect_accounted();
    ++cycles;
  });
  EXPECT_EQ(outputs, expected());
  EXPECT_GT(cycles, 20U);
  EXPECT_LE(parts.budget.peak(), budget);
}

// (D3): the growth of the experts is refused at its first slot, its second, ... its last. The blocks that were freed
// for it return: the earlier split remains.
TEST(expert_pool, a_refusal_at_any_slot_keeps_the_split) {
  constexpr std::uint64_t cap = 6;
  constexpr std::uint64_t blocks = 120;
  for (std::uint64_t given = 0; given <= 44; ++given) {
    SCOPED_TRACE("blocks given back: " + std::to_string(given));
    shared_memory parts(cap, blocks);
    // This many slots fit into the memory that the blocks leave; 3 experts more in 12 layers need 36.
    ASSERT_LT(given * block_bytes / slot_bytes, 36U);
    std::uint64_t refused = 0;
    const auto outputs = parts.serve_all([&](const drained_point&) {
      if (parts.blocks.in_use() > blocks - given) return;
      ++refused;
      ASSERT_EQ(parts.resize(cap + 3, blocks - given), status::exceeds_memory);
      ASSERT_EQ(parts.slots().capacity(), cap);
      ASSERT_EQ(parts.blocks.capacity(), blocks);
      parts.expect_accounted();
    });
    EXPECT_EQ(outputs, expected());
    EXPECT_GT(refused, 10U);
  }
}

// Reverse case: the experts freed memory, and the blocks' growth is refused.
TEST(expert_pool, a_refusal_of_blocks_restores_the_experts) {
  for (std::uint64_t cap = 4; cap < 9; ++cap) {
    shared_memory parts(9, 60);
    const auto too_many = 60 + (9 - cap) * unit_bytes / block_bytes + 1;
    const auto outputs = parts.serve_all([&](const drained_point&) {
      ASSERT_EQ(parts.resize(cap, too_many), status::exceeds_memory);
      ASSERT_EQ(parts.slots().capacity(), 9U);
      ASSERT_EQ(parts.blocks.capacity(), 60U);
      parts.expect_accounted();
    });
    EXPECT_EQ(outputs, expected()) << "cap " << cap;
  }
}

// The freed memory is taken meanwhile: the engine continues with less and takes the rest when it can.
TEST(expert_pool, continues_with_less_if_the_undo_is_refused_too) {
  for (std::uint64_t slots = 0; slots < 36; slots += 5) {
    SCOPED_TRACE("slots that fit: " + std::to_string(slots));
    shared_memory parts(6, 70);
    const auto all = parts.budget.limit();
    std::uint64_t refused = 0;
    const auto outputs = parts.serve_all([&](const drained_point& now) {
      const auto left = std::max({now.least_blocks, parts.blocks.in_use(), std::uint64_t{24}});
      parts.budget.set_limit(6 * unit_bytes + left * block_bytes + slots * slot_bytes);
      const auto before = parts.blocks.capacity();
      const auto moved = parts.resize(9, left);
      refused += moved == status::exceeds_memory ? 1U : 0U;
      ASSERT_EQ(parts.slots().capacity(), 6U);
      ASSERT_LE(parts.blocks.capacity(), before);
      ASSERT_GE(parts.blocks.capacity(), left);
      parts.budget.set_limit(all);
      ASSERT_EQ(parts.resize(6, 70), status::ok);
    });
    EXPECT_EQ(outputs, expected());
    EXPECT_GT(refused, 10U);
  }
}

TEST(expert_pool, blocks_of_sessions_cannot_be_taken) {
  shared_memory parts(6, 70);
  std::uint64_t refused = 0;
  const auto outputs = parts.serve_all([&](const drained_point&) {
    const auto held = parts.blocks.in_use();
    if (held == 0) return;
    ASSERT_EQ(parts.resize(7, held - 1), status::invalid_argument);
    ASSERT_EQ(parts.resize(3, 70), status::invalid_argument);  // a token needs four
    ASSERT_EQ(parts.slots().capacity(), 6U);
    ASSERT_EQ(parts.blocks.capacity(), 70U);
    ++refused;
  });
  EXPECT_EQ(outputs, expected());
  EXPECT_GT(refused, 10U);
}

}  // namespace
}  // namespace expert_pool_test
