// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/request_shapes.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace request_shapes_test {
namespace {

using namespace tiny_moe;
using bytes = std::vector<std::uint8_t>;

const std::vector<std::string> texts{"the quick brown fox jumps over the lazy dog. ",
                                     "for (int i = 0; i < n; ++i) sum += a[i]; "};

/// Three requests: two turns of a conversation, and another one.
hotset::kv_trace two_turns() {
  hotset::kv_trace kv;
  kv.timestamp = {1000, 2500, 2500};
  kv.input_length = {1024, 1500, 600};
  kv.output_length = {64, 10, 320};
  kv.block_end = {2, 5, 7};
  kv.blocks = {7, 8, 7, 8, 9, 70, 71};
  return kv;
}

bytes first(const bytes& of, std::size_t count) {
  return {of.begin(), of.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(request_shapes, times_and_lengths_are_scaled_from_the_trace) {
  const auto made = shaped_requests(two_turns(), texts,
                                    {.scale = 32, .steps_per_second = 10, .first_arrival = 5});
  std::vector<std::array<std::size_t, 3>> found;
  for (const auto& one : made) found.push_back({one.arrival, one.prompt.size(), one.tokens});
  const std::array<std::size_t, 3> wanted[] = {{5, 32, 2}, {20, 46, 1}, {20, 18, 10}};
  EXPECT_THAT(found, testing::ElementsAreArray(wanted)) << "at least one token is generated";
}

TEST(request_shapes, equal_blocks_are_equal_bytes_and_others_differ_early) {
  const auto made = shaped_requests(two_turns(), texts, {.scale = 32});
  EXPECT_EQ(first(made[0].prompt, 32), first(made[1].prompt, 32));
  EXPECT_NE(first(made[0].prompt, 4), first(made[2].prompt, 4));
}

/// Requests of so many tokens, each of one block or of none.
hotset::kv_trace requests_of(std::uint64_t count, std::uint32_t tokens, bool blocks) {
  hotset::kv_trace kv;
  for (std::uint64_t r = 0; r < count; ++r) {
    kv.timestamp.push_back(r);
    kv.input_length.push_back(tokens);
    kv.output_length.push_back(1);
    if (blocks) kv.blocks.push_back(r);
    kv.block_end.push_back(kv.blocks.size());
  }
  return kv;
}

TEST(request_shapes, prompts_without_blocks_and_of_many_blocks_share_nothing) {
  std::set<bytes> beginnings;
  for (const auto& one : shaped_requests(requests_of(200, 64, false), texts, {.scale = 4}))
    beginnings.insert(first(one.prompt, 8));
  EXPECT_EQ(beginnings.size(), 200U);
  std::set<bytes> prompts;
  for (const auto& one : shaped_requests(requests_of(5000, 512, true), texts, {.scale = 32}))
    prompts.insert(one.prompt);
  EXPECT_EQ(prompts.size(), 5000U);
}

TEST(request_shapes, the_same_seed_gives_the_same_texts_and_only_the_first_are_taken) {
  const auto one = shaped_requests(two_turns(), texts, {.seed = 3});
  EXPECT_EQ(shaped_requests(two_turns(), texts, {.seed = 3})[1].prompt, one[1].prompt);
  bool differs = false;
  for (std::uint64_t seed = 4; seed < 8; ++seed)
    differs =
        differs || shaped_requests(two_turns(), texts, {.seed = seed})[1].prompt != one[1].prompt;
  EXPECT_TRUE(differs);
  EXPECT_EQ(shaped_requests(two_turns(), texts, {.most = 2}).size(), 2U);
}

TEST(request_shapes, refuse_invalid_values) {
  EXPECT_FALSE(request_scaling{}.validate());
  EXPECT_TRUE(request_scaling{.scale = 0}.validate());
  EXPECT_TRUE((request_scaling{.steps_per_second = 0}.validate()));
  EXPECT_TRUE((request_scaling{.steps_per_second = 1e30}.validate()));
}

}  // namespace
}  // namespace request_shapes_test
