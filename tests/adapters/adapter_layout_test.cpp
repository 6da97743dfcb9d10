// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/adapter_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::adapter_layout_test {
namespace {

using testing::HasSubstr;
using counts = std::vector<std::int32_t>;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr double gib = 1024.0 * mib;

adapter_layout made(adapter_layout::config setup) {
  return adapter_layout::create(std::move(setup)).value();
}

// One tensor of one layer: two base experts of 3 bytes, pages of 4; adapters with one and two experts.
adapter_layout::config tiny(std::uint64_t stride = 0) {
  return {.layers = 1,
          .experts = 2,
          .tensor_bytes = {3},
          .page_bytes = 4,
          .tuned = {1, 2},
          .stride = stride};
}

TEST(adapter_layout, counts_a_case_worked_by_hand) {
  const auto layout = made(tiny());
  EXPECT_EQ(layout.adapters(), 2U);
  EXPECT_EQ(layout.most_tuned(), 2);
  EXPECT_EQ(layout.stride(), 2U) << "E_max, where none is given";
  EXPECT_EQ(layout.exact_bytes(), (2U + 1 + 2) * 3);
  EXPECT_EQ(layout.padding_bytes(), (2U + 2 * 2) * 3);
  EXPECT_EQ(layout.merged_bytes(), 2 * 2U * 3);
  // Bytes 0..5, 6..8, 12..17: pages 0, 1; 1, 2; 3, 4.
  EXPECT_EQ(layout.virtual_bytes(), 5U * 4);
  // Bytes 0..5, 6..8, 9..14: pages 0, 1; 1, 2; 2, 3.
  EXPECT_EQ(layout.dense_bytes(), 4U * 4);
  EXPECT_EQ(layout.reserved_bytes(), 5U * 4) << "18 bytes";
  EXPECT_DOUBLE_EQ(layout.fragmentation(), 6.0 / 5);
}

TEST(adapter_layout, a_gap_of_whole_pages_is_not_mapped) {
  // Bytes 0..5, 6..8, 15..20: pages 0, 1; 1, 2; 3, 4, 5.
  EXPECT_EQ(made(tiny(3)).virtual_bytes(), 6U * 4);
  // Bytes 0..5, 6..8, 18..23: pages 0, 1; 1, 2; 4, 5.
  EXPECT_EQ(made(tiny(4)).virtual_bytes(), 5U * 4);
  EXPECT_EQ(made(tiny(4)).reserved_bytes(), 8U * 4);
  EXPECT_EQ(made(tiny(4)).padding_bytes(), 18U) << "a stride is not padding";
}

TEST(adapter_layout, every_placement_has_the_other_weights_and_merged_ones_once_for_each_model) {
  auto setup = tiny();
  setup.resident_bytes = 1000;
  const auto layout = made(setup);
  EXPECT_EQ(layout.exact_bytes(), 1015U);
  EXPECT_EQ(layout.virtual_bytes(), 1020U);
  EXPECT_EQ(layout.dense_bytes(), 1016U);
  EXPECT_EQ(layout.padding_bytes(), 1018U);
  EXPECT_EQ(layout.merged_bytes(), 2 * 1006U);
}

TEST(adapter_layout, sparsity_is_of_the_adapters_largest_layer) {
  const auto layout =
      made({.layers = 3, .experts = 8, .tensor_bytes = {1}, .tuned = {4, 2, 3, 1, 0, 1, 0, 0, 0}});
  EXPECT_DOUBLE_EQ(layout.sparsity(0), 3.0 / 12);
  EXPECT_DOUBLE_EQ(layout.sparsity(1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(layout.sparsity(2), 0) << "it tuned nothing";
  EXPECT_DOUBLE_EQ(layout.sparsity(), 25.0 / 36) << "against E_max";
  EXPECT_EQ(layout.most_tuned(1), 1);
  EXPECT_EQ(layout.tuned(0), 9U);
  EXPECT_EQ(layout.tuned(), 11U);
}

TEST(adapter_layout, the_aligned_stride_is_the_smallest_of_whole_pages_in_every_tensor) {
  const auto stride = [](std::vector<std::uint64_t> tensors, std::uint64_t page, std::int32_t e) {
    return made({.layers = 1,
                 .experts = 64,
                 .tensor_bytes = std::move(tensors),
                 .page_bytes = page,
                 .tuned = {e}})
        .aligned_stride();
  };
  EXPECT_EQ(stride({11 * mib, 11 * mib / 2}, 2 * mib, 13), 16U) << "V2-Lite: a multiple of 4";
  EXPECT_EQ(stride({11 * mib, 11 * mib / 2}, 2 * mib, 12), 12U);
  EXPECT_EQ(stride({4 * mib}, 2 * mib, 13), 13U);
  EXPECT_EQ(stride({3}, 4, 2), 4U);
  EXPECT_EQ(stride({4, 9}, 12, 13), 24U) << "multiples of 3 and of 4";
  EXPECT_EQ(stride({7}, 2 * mib, 1), 2 * mib);
  EXPECT_EQ(stride({3}, 4, 0), 0U);
}

TEST(adapter_layout, may_be_of_no_adapter) {
  const auto layout = made({.layers = 2, .experts = 3, .tensor_bytes = {5}, .page_bytes = 4});
  EXPECT_EQ(layout.adapters(), 0U);
  EXPECT_EQ(layout.exact_bytes(), 30U);
  EXPECT_EQ(layout.padding_bytes(), 30U);
  EXPECT_EQ(layout.virtual_bytes(), 32U);
  EXPECT_EQ(layout.dense_bytes(), 32U);
  EXPECT_EQ(layout.merged_bytes(), 0U);
  EXPECT_DOUBLE_EQ(layout.fragmentation(), 1);
  EXPECT_DOUBLE_EQ(layout.sparsity(), 0);
}

/// Marks each page that holds bytes of an expert.
std::uint64_t marked(const adapter_layout::config& setup, bool dense) {
  std::uint64_t pages = 0;
  const auto width = static_cast<std::size_t>(setup.layers);
  const auto adapters = setup.tuned.size() / width;
  const auto stride =
      setup.stride != 0 ? setup.stride : static_cast<std::uint64_t>(std::ranges::max(setup.tuned));
  for (std::size_t l = 0; l < width; ++l)
    for (const auto bytes : setup.tensor_bytes) {
      const auto base = static_cast<std::uint64_t>(setup.experts);
      std::vector<bool> is_mapped((base + adapters * stride) * bytes / setup.page_bytes + 1);
      const auto mark = [&](std::uint64_t first, std::uint64_t count) {
        for (auto at = first * bytes; at < (first + count) * bytes; ++at)
          is_mapped[at / setup.page_bytes] = true;
      };
      mark(0, base);
      auto next = base;
      for (std::size_t a = 0; a < adapters; ++a) {
        const auto count = static_cast<std::uint64_t>(setup.tuned[a * width + l]);
        mark(dense ? next : base + a * stride, count);
        next += count;
      }
      pages += static_cast<std::uint64_t>(std::ranges::count(is_mapped, true));
    }
  return pages * setup.page_bytes + setup.resident_bytes;
}

TEST(adapter_layout, agrees_with_marked_pages_on_random_configurations) {
  support::random_source random(0xada97);
  for (int round = 0; round < 2000; ++round) {
    adapter_layout::config setup{.layers = 1 + random.id_below(4),
                                 .experts = 1 + random.id_below(9),
                                 .tensor_bytes = {},
                                 .page_bytes = 1 + random.below(40),
                                 .resident_bytes = random.below(3) * 17};
    for (auto tensors = 1 + random.below(3); tensors > 0; --tensors)
      setup.tensor_bytes.push_back(1 + random.below(60));
    setup.tuned.resize(static_cast<std::size_t>(setup.layers) * (1 + random.below(6)));
    for (auto& e : setup.tuned) e = random.one_in(3) ? 0 : random.id_below(setup.experts + 1);
    const auto most = static_cast<std::uint64_t>(std::ranges::max(setup.tuned));
    if (most > 0 && random.one_in(2)) setup.stride = most + random.below(9);
    const auto layout = made(setup);
    ASSERT_EQ(layout.virtual_bytes(), marked(setup, false)) << "round " << round;
    ASSERT_EQ(layout.dense_bytes(), marked(setup, true)) << "round " << round;
    ASSERT_LE(layout.exact_bytes(), layout.dense_bytes());
    ASSERT_LE(layout.exact_bytes(), layout.padding_bytes());

    auto step = most;  // tries each stride of whole pages
    const auto is_whole = [&](std::uint64_t bytes) { return step * bytes % setup.page_bytes == 0; };
    while (!std::ranges::all_of(setup.tensor_bytes, is_whole)) ++step;
    ASSERT_EQ(layout.aligned_stride(), step) << "round " << round;
  }
}

TEST(adapter_layout, refuses_invalid_values_and_names_the_number) {
  const auto reason = [](auto&& change) {
    auto setup = tiny();
    change(setup);
    const auto layout = adapter_layout::create(setup);
    return layout ? std::string("accepted") : layout.error().message;
  };
  using config = adapter_layout::config;
  EXPECT_EQ(reason([](config&) {}), "accepted");
  EXPECT_EQ(reason([](config& c) { c.layers = 0; }), "layers = 0, accepted: 1..65536");
  EXPECT_EQ(reason([](config& c) { c.experts = 0; }), "experts = 0, accepted: 1..1048576");
  EXPECT_EQ(reason([](config& c) { c.tensor_bytes = {}; }), "tensors = 0, accepted: 1..64");
  EXPECT_THAT(reason([](config& c) { c.tensor_bytes = {3, 0}; }), HasSubstr("tensor_bytes = 0"));
  EXPECT_THAT(reason([](config& c) { c.page_bytes = 0; }), HasSubstr("page_bytes = 0"));
  EXPECT_EQ(reason([](config& c) { c.layers = 3; }),
            "tuned counts = 2, accepted: 3 for each adapter");
  EXPECT_EQ(reason([](config& c) {
              c.tuned = {1, 3};
            }),
            "tuned experts of a layer = 3, accepted: 0..2");
  EXPECT_THAT(reason([](config& c) { c.tuned = {1, -1}; }), HasSubstr("= -1"));
  EXPECT_EQ(reason([](config& c) { c.stride = 1; }), "stride = 1, accepted: 2..1099511627776");
}

TEST(adapter_layout, refuses_bytes_that_do_not_fit_64_bits_and_accepts_the_last_that_do) {
  constexpr auto most = adapter_layout::most_extent;
  adapter_layout::config setup{.layers = 1,
                               .experts = 1,
                               .tensor_bytes = {most},
                               .page_bytes = most,
                               .tuned = {1},
                               .stride = (adapter_layout::most_bytes - 2 * most) / most};
  const auto layout = adapter_layout::create(setup);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->virtual_bytes(), 2 * most);
  ++setup.stride;
  EXPECT_THAT(adapter_layout::create(setup).error().message, HasSubstr("bytes of all places"));
  setup.stride = most;
  EXPECT_THAT(adapter_layout::create(setup).error().message, HasSubstr("bytes of all places"));
  setup.stride = 0;
  setup.resident_bytes = adapter_layout::most_bytes;
  EXPECT_THAT(adapter_layout::create(setup).error().message, HasSubstr("bytes of all places"));
  setup.resident_bytes = adapter_layout::most_bytes / 2;
  EXPECT_TRUE(adapter_layout::create(setup));
  setup.tuned = {0, 0, 0};
  EXPECT_THAT(adapter_layout::create(setup).error().message, HasSubstr("bytes of merged models"));
}

// --- The paper's adapters. Its Table 1 gives the largest and the mean count of experts in 26 layers. A mean with two
// decimals over 26 layers determines the sum. The paper does not publish the counts of each layer: these decrease
// evenly.

struct published {
  std::int32_t most;
  std::int32_t sum;
};
constexpr published gate_math{12, 183}, gate_intent{12, 247}, token_math{9, 159};
/// Section 5.4 adds the adapters in this order, then the table continues.
const std::vector<published> table_1{gate_math, gate_intent, token_math, {8, 185},  {11, 201},
                                     {8, 134},  {12, 191},   {10, 171},  {13, 122}, {6, 100}};

/// The largest count in one layer; the other 25 layers decrease evenly around the remaining mean.
counts derived(published adapter) {
  constexpr std::int32_t others = 25;
  const auto rest = adapter.sum - adapter.most;
  const auto high = std::min(adapter.most * others, 2 * rest - others);  // times 25, as low
  const auto low = 2 * rest - high;
  counts out{adapter.most};
  std::int32_t before = 0;
  for (std::int32_t k = 1; k <= others; ++k) {
    const auto until = (48 * k * high - (high - low) * k * (k - 1)) / (48 * others);
    out.push_back(until - before);
    before = until;
  }
  return out;
}

/// DeepSeek-V2-Lite in bf16: 15,706,484,224 parameters, 29.26 GiB; pages of 2 MiB.
adapter_layout v2_lite(std::size_t adapters, std::uint64_t stride = 0) {
  constexpr std::uint64_t expert = 33 * mib / 2;
  adapter_layout::config setup{.layers = 26,
                               .experts = 64,
                               .tensor_bytes = {11 * mib, 11 * mib / 2},
                               .resident_bytes = 2 * 15'706'484'224U - 26 * 64 * expert,
                               .tuned = {},
                               .stride = stride};
  for (std::size_t a = 0; a < adapters; ++a)
    std::ranges::copy(derived(table_1[a % table_1.size()]), std::back_inserter(setup.tuned));
  return made(setup);
}

TEST(expertweave, the_derived_counts_agree_with_table_1) {
  const std::vector<double> sparsity{.41, .21, .32, .11, .30, .36, .39, .34, .64, .36};
  const auto layout = v2_lite(10);
  for (std::size_t a = 0; a < table_1.size(); ++a) {
    EXPECT_EQ(layout.tuned(a), static_cast<std::uint64_t>(table_1[a].sum)) << a;
    EXPECT_EQ(layout.most_tuned(a), table_1[a].most) << a;
    EXPECT_NEAR(layout.sparsity(a), sparsity[a], .0051) << a;
  }
}

TEST(expertweave, padding_fragments_table_1_as_26_layers_of_E_max_13_do) {
  const auto layout = v2_lite(10);
  EXPECT_EQ(layout.most_tuned(), 13);
  EXPECT_EQ(layout.padded_experts(), 5044U) << "26 x (64 + 10 x 13)";
  EXPECT_EQ(layout.held_experts(), 3357U) << "26 x 64 + 1,693";
  EXPECT_DOUBLE_EQ(layout.fragmentation(), 5044.0 / 3357);
}

TEST(expertweave, memory_is_that_of_figure_9) {
  struct row {
    std::size_t adapters;
    double exact, padding;
  };
  for (const auto& [n, exact, padding] :
       {row{1, 32.20, 34.28}, row{2, 36.18, 39.31}, row{3, 38.75, 44.34}, row{10, 56.54, 83.72},
        row{20, 83.82, 138.18}}) {
    const auto layout = v2_lite(n);
    EXPECT_NEAR(static_cast<double>(layout.exact_bytes()) / gib, exact, .0051) << n;
    EXPECT_NEAR(static_cast<double>(layout.padding_bytes()) / gib, padding, .0051) << n;
    EXPECT_NEAR(static_cast<double>(layout.merged_bytes()) / gib, 29.2556 * static_cast<double>(n),
                .0001 * static_cast<double>(n))
        << n;
    EXPECT_LT(layout.virtual_bytes(), layout.padding_bytes()) << n;
  }
}

TEST(expertweave, kv_tokens_use_the_remaining_exact_bytes) {
  constexpr double budget = 52.72 * gib;
  const std::vector<double> thousands{708, 571, 482};
  for (std::size_t n = 1; n <= 3; ++n) {
    const auto left = budget - static_cast<double>(v2_lite(n).exact_bytes());
    EXPECT_NEAR(left / 31'104 / 1000, thousands[n - 1], .51) << n;
  }
}

TEST(expertweave, whole_pages_between_adapters_halve_the_waste) {
  const auto waste = [](std::size_t adapters, std::uint64_t stride) {
    const auto layout = v2_lite(adapters, stride);
    return static_cast<double>(layout.virtual_bytes() - layout.exact_bytes()) / gib;
  };
  // The second decimal depends on the counts of each layer.
  EXPECT_NEAR(waste(1, 12), .03, .015);
  EXPECT_NEAR(waste(2, 12), .06, .015);
  EXPECT_NEAR(waste(3, 12), .10, .015);
  EXPECT_NEAR(waste(10, 13), .64, .015);
  EXPECT_NEAR(waste(20, 13), 1.27, .015);
  EXPECT_NEAR(waste(10, 16), .31, .015);
  EXPECT_NEAR(waste(20, 16), .63, .015);
  EXPECT_EQ(v2_lite(10).aligned_stride(), 16U);
}

}  // namespace
}  // namespace hotset::adapter_layout_test
