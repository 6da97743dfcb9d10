// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/compute_on_host.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::compute_on_host_test {
namespace {

static_assert(compute_on_host::traits.is_exact && !compute_on_host::traits.fetches_all &&
              !compute_on_host::traits.needs_logits);

const geometry shape{.layers = 1, .experts = 16, .top_k = 2, .max_tokens_per_visit = 8};

std::vector<miss> used(const std::vector<std::uint32_t>& uses) {
  std::vector<miss> misses;
  for (const auto n : uses)
    misses.push_back({.expert = static_cast<expert_id>(misses.size()), .uses = n});
  return misses;
}
/// 'f' for each miss that is fetched, 'h' for each that stays on the host.
std::string ask(compute_on_host policy, const std::vector<miss>& misses) {
  std::vector<miss_decision> out(misses.size());
  policy.decide(misses, {}, {}, {}, out);
  std::string text;
  for (const auto& d : out) {
    EXPECT_EQ(d.precision, 0);
    text += d.action == miss_action::fetch ? 'f' : d.action == miss_action::host ? 'h' : '?';
  }
  return text;
}

TEST(compute_on_host, without_a_split_everything_stays) {
  EXPECT_EQ(ask(compute_on_host(shape, {}), used({1, 2, 3})), "hhh");
  EXPECT_EQ(ask(compute_on_host(shape, {.fetch_cost = 0.01}), used({9})), "h");
}

TEST(compute_on_host, a_held_lower_copy_is_a_miss) {
  const std::vector<miss> held{{.expert = 1_expert, .uses = 1, .held = 1_precision}};
  EXPECT_EQ(ask(compute_on_host(shape, {}), held), "h");
  EXPECT_EQ(ask(compute_on_host(shape, {host_split::bandwidth_matched, 1.0, 2.0}), held), "f");
}

// Tries every subset that could be fetched; the slower side determines the time.
TEST(compute_on_host, no_subset_is_done_sooner) {
  support::random_source random(7);
  for (int round = 0; round < 300; ++round) {
    const auto count = random.below(9);
    std::vector<std::uint32_t> uses;
    for (std::uint64_t n = 0; n < count; ++n)
      uses.push_back(static_cast<std::uint32_t>(1 + random.below(4)));
    const auto fetch_cost = static_cast<double>(1 + random.below(9)) / 2;
    const auto host_cost = static_cast<double>(1 + random.below(9)) / 2;
    const auto text = ask(
        compute_on_host(shape, {host_split::bandwidth_matched, fetch_cost, host_cost}), used(uses));
    const auto time = [&](std::uint64_t fetched) {
      return std::max(static_cast<double>(fetched) * fetch_cost,
                      static_cast<double>(count - fetched) * host_cost);
    };
    const auto got = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), 'f'));
    for (std::uint64_t f = 0; f <= count; ++f) {
      EXPECT_LE(time(got), time(f));
      if (f < got) {
        EXPECT_LT(time(got), time(f)) << "fewer fetches would do";
      }
    }
    for (std::size_t a = 0; a < count; ++a)
      for (std::size_t b = 0; b < count; ++b)
        if (uses[a] > uses[b] || (uses[a] == uses[b] && a < b)) {
          EXPECT_FALSE(text[a] == 'h' && text[b] == 'f') << text;
        }
  }
}

TEST(compute_on_host, refuses_costs_that_are_none) {
  for (const double x :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(compute_on_host::config{.fetch_cost = x}.validate());
    EXPECT_TRUE(compute_on_host::config{.host_cost = x}.validate());
  }
}

}  // namespace
}  // namespace hotset::compute_on_host_test
