// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/reroute.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "reroute_samples.hpp"

namespace hotset::reroute_test {
namespace {

using reroute_samples::batch;
using testing::Each;
using testing::ElementsAre;

/// An engine's ids, before and after rerouting, as numbers.
std::vector<std::int32_t> numbers_of(const std::vector<expert_id>& ids) {
  return support::routed_ids(ids).ids;
}
struct answer {
  std::vector<std::int32_t> out;
  reroute_result result;
};
answer reroute_of(const batch& b) {
  answer a{std::vector<std::int32_t>(b.ids.size(), -77), {}};
  a.result = reroute(b.rows(), b.ids, b.adapter_of_token, a.out);
  return a;
}
answer reroute_in_place(const batch& b) {
  answer a{numbers_of(b.ids), {}};
  a.result = reroute(b.rows(), a.out, b.adapter_of_token, a.out);
  return a;
}
void expect_the_rule(const batch& b) {
  std::uint64_t refused = 0;
  const auto expected = numbers_of(reroute_samples::rerouted(b, refused));
  for (const auto& a : {reroute_of(b), reroute_in_place(b)}) {
    ASSERT_EQ(a.result.code, status::ok);
    ASSERT_EQ(a.out, expected);
    ASSERT_EQ(a.result.refused, refused);
  }
}

TEST(reroute, is_figure_4) {
  const auto b = reroute_samples::figure_4();
  for (const auto& a : {reroute_of(b), reroute_in_place(b)}) {
    EXPECT_EQ(a.result.code, status::ok);
    EXPECT_EQ(a.result.refused, 0U);
    EXPECT_EQ(a.out, numbers_of(reroute_samples::figure_4_rerouted()));
  }
}

// Hazard 6: a negative id must not wrap, and an id past the base model must not name an adapter's expert.
TEST(reroute, negative_ids_stay_and_ids_out_of_range_become_no_expert) {
  auto b = reroute_samples::figure_4();
  b.tokens = 4;
  b.top_k = 12;
  b.adapter_of_token = {0, -1, 2, -5};
  b.ids = support::expert_ids({-1, -9, 64,   -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                               -1, 63, 65,   -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                               -2, 3,  80,   -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                               3,  14, 1000, -1, -1, -1, -1, -1, -1, -1, -1, -1});
  for (const auto& a : {reroute_of(b), reroute_in_place(b)}) {
    auto expected = numbers_of(b.ids);
    for (const auto place : {2, 14, 25, 26, 38}) expected[static_cast<std::size_t>(place)] = -1;
    EXPECT_EQ(a.out, expected);
    EXPECT_EQ(a.result.refused, 5U);
  }
}

TEST(reroute, agrees_with_the_formula_on_random_batches) {
  support::random_source random(0x5eed);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    expect_the_rule(reroute_samples::random_batch(random));
    if (HasFatalFailure()) return;
  }
}

TEST(reroute, agrees_with_the_formula_for_every_top_k_and_number_of_tokens) {
  support::random_source random(17);
  auto b = reroute_samples::random_batch(random);
  while (b.adapters < 3 || b.experts < 20) b = reroute_samples::random_batch(random);
  for (b.top_k = 1; b.top_k <= 33; ++b.top_k)
    for (b.tokens = 1; b.tokens <= 35; ++b.tokens) {
      SCOPED_TRACE(testing::Message() << "top_k " << b.top_k << ", tokens " << b.tokens);
      b.adapter_of_token.resize(static_cast<std::size_t>(b.tokens));
      b.ids.resize(static_cast<std::size_t>(b.tokens * b.top_k));
      for (auto& adapter : b.adapter_of_token) adapter = random.id_below(b.adapters + 2) - 1;
      for (auto& id : b.ids) id = expert_id{random.id_below(b.experts + 2) - 1};
      expect_the_rule(b);
      if (HasFatalFailure()) return;
    }
}

// Offsets into this many rows need more than 31 bits.
TEST(reroute, rows_may_be_more_than_31_bits_can_address) {
  constexpr std::int32_t experts = 1 << 30;
  constexpr std::size_t bytes = 3 * std::size_t{experts} * sizeof(expert_id);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "12 GiB of addresses cannot be had";
  auto* const rows = static_cast<expert_id*>(memory);
  rows[2 * std::size_t{experts} + 5] = 41_expert;
  rows[3 * std::size_t{experts} - 1] = 42_expert;
  std::vector<std::int32_t> ids(64, -3);
  ids[0] = 5;
  ids[1] = ids[63] = experts - 1;
  ids[2] = experts;
  ids[62] = 7;
  auto expected = ids;
  expected[0] = 41;
  expected[1] = 42;
  expected[2] = -1;
  std::vector<std::int32_t> out(ids.size());
  const auto done = reroute({rows, 3, experts}, ids, std::vector<std::int32_t>{2, -1}, out);
  EXPECT_EQ(done.refused, 1U);
  EXPECT_EQ(out, expected);
  (void)::munmap(memory, bytes);
}

TEST(reroute, an_empty_batch_is_one) {
  EXPECT_EQ(reroute({nullptr, 0, 4}, {}, {}, {}).code, status::ok);
  const std::vector<std::int32_t> tokens_of_no_ids{0, 1};
  EXPECT_EQ(reroute({nullptr, 0, 4}, {}, tokens_of_no_ids, {}).code, status::ok);
}

TEST(reroute, a_map_of_no_adapter_has_the_base_model_alone) {
  const std::vector<std::int32_t> ids{0, 3, 4, -2};
  std::vector<std::int32_t> out(4);
  const redirect_rows none{nullptr, 0, 4};
  EXPECT_EQ(reroute(none, ids, std::vector<std::int32_t>{-1, 0}, out).refused, 1U);
  EXPECT_THAT(out, ElementsAre(0, 3, -1, -2));
}

TEST(reroute, lengths_that_do_not_belong_together_are_refused_and_nothing_is_written) {
  const std::vector<std::int32_t> ids{0, 1, 2, 3};
  std::vector<std::int32_t> out(4, -77);
  const redirect_rows none{nullptr, 0, 4};
  const std::vector<std::int32_t> adapters{-1, -1, -1};
  EXPECT_EQ(reroute(none, ids, adapters, out).code, status::invalid_argument);
  EXPECT_EQ(reroute(none, ids, {}, out).code, status::invalid_argument);
  EXPECT_EQ(reroute(none, ids, std::span(adapters).first(2), std::span(out).first(3)).code,
            status::invalid_argument);
  EXPECT_THAT(out, Each(-77));
}

}  // namespace
}  // namespace hotset::reroute_test
