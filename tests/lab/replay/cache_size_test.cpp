// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/cache_size.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/sizes.hpp"
#include "sim_samples.hpp"

namespace cache_size_test {
namespace {

using namespace hotset;
using lab::cache_size;
using lab::infeasible_error;
using lab::replay_mode;
using lab::size_request;
using lab::usage_error;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto shared = cache_scope::shared;
constexpr auto per_layer = cache_scope::per_layer;

/// Three layers of 20 experts, top-2; the last layer's experts are larger.
geometry mixed() {
  return {.layers = 3, .experts = 20, .top_k = 2, .expert_bytes = {100, 100, 250}};
}
geometry plain(std::int32_t layers, std::int32_t experts, std::int32_t top_k = 1) {
  return {.layers = layers, .experts = experts, .top_k = top_k};
}

size_request size_of(const std::string& text) {
  return text.ends_with('B') ? size_request::parse_budget(text) : size_request::parse_slots(text);
}
cache_size make(const geometry& shape, cache_scope scope, const std::string& text,
                replay_mode mode = replay_mode::event_atomic, bool size_classes = false) {
  return lab::make_cache_size(shape, scope, size_of(text), mode, size_classes);
}
std::size_t slots(const geometry& shape, cache_scope scope, const std::string& text) {
  return make(shape, scope, text).layout.slots();
}
std::vector<std::int32_t> pools(const cache_size& size) {
  std::vector<std::int32_t> out;
  for (std::size_t p = 0; p < size.layout.pools(); ++p)
    out.push_back(size.layout.at(static_cast<pool_id>(p)).slots);
  return out;
}
/// Slots of mixed()'s two size classes.
std::vector<std::int32_t> by_class(const std::string& text) {
  return pools(make(mixed(), shared, text, replay_mode::event_atomic, true));
}
/// The number after "accepted: "; for a size, the exact one behind it.
std::uint64_t smallest_in(const std::string& message) {
  const auto at = message.find("accepted: ");
  EXPECT_NE(at, std::string::npos) << message;
  auto number = message.substr(at + 10);
  if (const auto exact = number.find('('); exact != std::string::npos)
    number = number.substr(exact + 1);
  number.resize(std::min(number.find_first_of(" ,;)"), number.size()));
  if (number.find('B') != std::string::npos) return lab::read_size(number);
  return std::stoull(number);
}

TEST(cache_size, reads_slots_and_percentages) {
  EXPECT_EQ(size_of("64").what, size_request::unit::slots);
  EXPECT_EQ(size_of("64").count, 64U);
  EXPECT_EQ(size_of("12.5%").what, size_request::unit::percent);
  EXPECT_EQ(size_of("12.5%").value, 12.5);
  EXPECT_EQ(size_of("100%").value, 100);
  EXPECT_EQ(size_of("5%").text, "5%");
}

// SpecMD's sizes: shares of the 16-bit bytes of four models whose experts it keeps at 4 bits.
TEST(cache_size, reads_a_share_of_the_bytes_at_another_precision) {
  EXPECT_EQ(size_of("5%@16:4").what, size_request::unit::percent);
  EXPECT_EQ(size_of("5%@16:4").text, "5%@16:4");
  EXPECT_EQ(slots(plain(16, 64, 8), cache_scope::shared, "5%@16:4"), 205U);
  EXPECT_EQ(slots(plain(32, 8, 2), cache_scope::shared, "5%@16:4"), 51U);
  EXPECT_EQ(slots(plain(32, 16, 2), cache_scope::shared, "5%@16:4"), 102U);
  EXPECT_EQ(slots(plain(24, 60, 4), cache_scope::shared, "5%@16:4"), 288U);
  EXPECT_EQ(slots(plain(16, 64, 8), cache_scope::shared, "5%@16:8"), 102U);
  EXPECT_EQ(slots(plain(16, 64, 8), cache_scope::shared, "5%@8:8"), 51U);
  EXPECT_EQ(slots(plain(16, 64, 8), cache_scope::shared, "25%@16:4"), 1024U);
}

TEST(cache_size, refuses_invalid_sizes) {
  for (const std::string text :
       {"",         "0",          "-1",       "+5",      "6.5",       "64 ",    " 64",
        "x",        "2147483649", "%",        "0%",      "-5%",       "100.1%", "5 %",
        "5%%",      "nan%",       "inf%",     "1e1%",    "0x10",      "5%@",    "5%@16",
        "5%@16:",   "5%@:4",      "5%@4:16",  "5%@16:0", "5%@16:4:2", "5@16:4", "5%@65:4",
        "26%@16:4", "5%@-16:4",   "5%@16:4%", "5%@1.5:1"})
    EXPECT_THAT(refusal<usage_error>([&] { (void)size_request::parse_slots(text); }),
                HasSubstr("slots '" + text + "'"));
}

TEST(cache_size, budgets_distinguish_decimal_and_binary_units) {
  EXPECT_EQ(size_of("1500MiB").count, 1500ULL << 20U);
  EXPECT_EQ(size_of("24GB").count, 24'000'000'000U);
  EXPECT_EQ(size_of("1.5GiB").count, 3ULL << 29U);
  EXPECT_EQ(size_of("1500MiB").what, size_request::unit::bytes);
  EXPECT_EQ(size_request::parse_budget("4096B").count, 4096U);
}

TEST(cache_size, budgets_are_strict) {
  for (const std::string text : {"", "0", "4096", "0MiB", "-1MiB", "10%", "1500 MiB", "1500mib",
                                 "1500Mi", "MiB", "1e3MiB", "99999999TiB"}) {
    SCOPED_TRACE(text);
    const auto message = refusal<usage_error>([&] { (void)size_request::parse_budget(text); });
    EXPECT_THAT(message, HasSubstr("'" + text + "'"));
    EXPECT_THAT(message, HasSubstr("MiB"));
  }
}

TEST(cache_size, scopes_go_by_name) {
  for (const auto scope : {shared, per_layer})
    EXPECT_EQ(lab::parse_scope(lab::name_of(scope)), scope);
  EXPECT_THAT(refusal<usage_error>([] { (void)lab::parse_scope("global"); }),
              HasSubstr("accepted: shared, per-layer"));
}

TEST(cache_size, a_percentage_is_of_the_experts_in_the_scope) {
  EXPECT_EQ(slots(plain(4, 32), shared, "12.5%"), 16U);     // of 128
  EXPECT_EQ(slots(plain(4, 32), per_layer, "12.5%"), 16U);  // 4 in each of 4
  EXPECT_EQ(slots(plain(4, 30), shared, "12.5%"), 15U);     // of 120
  EXPECT_EQ(slots(plain(4, 30), per_layer, "12.5%"), 16U);  // 3.75 in each: 4
  EXPECT_EQ(slots(plain(4, 32), shared, "5%"), 6U);         // 6.4
  EXPECT_EQ(slots(plain(4, 32), per_layer, "5%"), 8U);      // 1.6
  EXPECT_EQ(slots(plain(4, 32), shared, "100%"), 128U);
}

TEST(cache_size, halves_are_rounded_up) {
  EXPECT_EQ(slots(plain(1, 60), shared, "12.5%"), 8U);  // 7.5
  EXPECT_EQ(slots(plain(1, 10), shared, "25%"), 3U);    // 2.5
  EXPECT_EQ(slots(plain(1, 10), shared, "24.9%"), 2U);  // 2.49
  EXPECT_EQ(slots(plain(1, 125), shared, "2.8%"), 4U);  // 3.5, in binary a little less
  EXPECT_EQ(slots(plain(1, 500), shared, "0.7%"), 4U);  // 3.5
}

TEST(cache_size, rounds_as_decimal_arithmetic_does) {
  for (std::uint64_t tenths = 1; tenths <= 1000; ++tenths)
    for (const std::int32_t experts : {7, 60, 100, 125, 128, 250, 500, 1000}) {
      const auto exact = std::max<std::uint64_t>(
          1, (2 * tenths * static_cast<std::uint64_t>(experts) + 1000) / 2000);
      ASSERT_EQ(slots(plain(1, experts), shared, fmt::format("{}.{}%", tenths / 10, tenths % 10)),
                exact)
          << tenths << " tenths of a per cent of " << experts;
    }
}

TEST(cache_size, a_percentage_gives_at_least_one_slot) {
  EXPECT_EQ(slots(plain(2, 8), shared, "0.001%"), 1U);
  EXPECT_EQ(slots(plain(2, 8), per_layer, "0.001%"), 2U);
}

TEST(cache_size, a_number_is_of_the_pool_or_of_every_layer) {
  EXPECT_EQ(slots(plain(4, 128), shared, "64"), 64U);
  EXPECT_THAT(pools(make(plain(4, 128), per_layer, "64")), ElementsAre(64, 64, 64, 64));
}

TEST(cache_size, more_slots_than_experts_are_cut) {
  EXPECT_EQ(slots(plain(4, 8), shared, "64"), 32U);
  EXPECT_EQ(slots(plain(4, 8), per_layer, "2147483648"), 32U);
}

TEST(cache_size, a_budget_counts_slots_of_the_largest_expert_in_shared_scope) {
  EXPECT_THAT(pools(make(mixed(), shared, "2499B")), ElementsAre(9));
  EXPECT_THAT(pools(make(mixed(), shared, "2500B")), ElementsAre(10));
}

TEST(cache_size, a_budget_is_divided_by_the_layers_in_per_layer_scope) {
  EXPECT_THAT(pools(make(mixed(), per_layer, "1500B")), ElementsAre(5, 5, 2));
}

TEST(cache_size, size_classes_get_the_share_of_their_keys) {
  EXPECT_THAT(by_class("30"), ElementsAre(20, 10));
  EXPECT_THAT(by_class("31"), ElementsAre(20, 10)) << "rounded down: never more than was asked for";
  EXPECT_THAT(by_class("25%"), ElementsAre(10, 5));
  EXPECT_THAT(by_class("4500B"), ElementsAre(20, 10)) << "half of all bytes";
  EXPECT_THAT(by_class("60"), ElementsAre(40, 20));
}

TEST(cache_size, shares_of_size_classes_are_exact) {
  for (std::uint64_t thirds = 2; thirds <= 20; ++thirds)
    EXPECT_THAT(by_class(std::to_string(3 * thirds)), ElementsAre(2 * thirds, thirds));
}

TEST(cache_size, without_bytes_a_budget_is_refused) {
  for (const auto scope : {shared, per_layer})
    for (const auto mode :
         {replay_mode::event_atomic, replay_mode::deferred, replay_mode::per_access})
      EXPECT_THAT(refusal<usage_error>([&] { (void)make(plain(2, 8), scope, "1MiB", mode); }),
                  HasSubstr("give sizes in slots"));
}

TEST(cache_size, infeasible_sizes_name_the_smallest_that_works) {
  struct row {
    geometry shape;
    cache_scope scope;
    std::string too_small;
    std::string unit;
    bool size_classes;
  };
  const geometry uneven{.layers = 5, .experts = 9, .top_k = 3, .expert_bytes = {7, 7, 11, 7, 11}};
  for (const auto& r : std::vector<row>{{plain(3, 20, 4), shared, "3", "", false},
                                        {plain(3, 20, 4), shared, "1%", "", false},
                                        {plain(3, 20, 4), per_layer, "3", "", false},
                                        {plain(3, 20, 4), per_layer, "5%", "", false},
                                        {mixed(), shared, "499B", "B", false},
                                        {mixed(), per_layer, "1499B", "B", false},
                                        {mixed(), shared, "5", "", true},
                                        {mixed(), shared, "899B", "B", true},
                                        {uneven, shared, "1", "", true},
                                        {uneven, shared, "1B", "B", true},
                                        {uneven, shared, "1B", "B", false},
                                        {uneven, per_layer, "1B", "B", false}}) {
    SCOPED_TRACE(r.too_small);
    const auto attempt = [&](const std::string& text) {
      return make(r.shape, r.scope, text, replay_mode::event_atomic, r.size_classes);
    };
    const auto message = refusal<infeasible_error>([&] { (void)attempt(r.too_small); });
    EXPECT_THAT(message, HasSubstr("size " + r.too_small));
    EXPECT_THAT(message, HasSubstr(r.unit.empty() ? " slots" : "or more"));
    const auto smallest = smallest_in(message);
    EXPECT_NO_THROW((void)attempt(std::to_string(smallest) + r.unit)) << message;
    EXPECT_THROW((void)attempt(std::to_string(smallest - 1) + r.unit), infeasible_error) << message;
  }
  EXPECT_THAT(refusal<infeasible_error>([] { (void)by_class("5%"); }),
              HasSubstr("accepted: 6 slots"));
  EXPECT_NO_THROW((void)by_class("10%"));
}

TEST(cache_size, a_deferred_replay_has_a_place_for_every_key_and_a_budget) {
  const auto one = make(mixed(), shared, "777B", replay_mode::deferred);
  EXPECT_THAT(pools(one), ElementsAre(60));
  EXPECT_THAT(one.pool_bytes, ElementsAre(777U));
  const auto each = make(mixed(), per_layer, "777B", replay_mode::deferred);
  EXPECT_THAT(pools(each), ElementsAre(20, 20, 20));
  EXPECT_THAT(each.pool_bytes, ElementsAre(259U, 259U, 259U));
  EXPECT_TRUE(make(mixed(), shared, "10").pool_bytes.empty());
  for (const auto* text : {"10", "25%"})
    EXPECT_THAT(
        refusal<usage_error>([&] { (void)make(mixed(), shared, text, replay_mode::deferred); }),
        HasSubstr("accepted: --budget"));
  EXPECT_NO_THROW((void)make(mixed(), per_layer, "1B", replay_mode::deferred)) << "below one token";
}

}  // namespace
}  // namespace cache_size_test
