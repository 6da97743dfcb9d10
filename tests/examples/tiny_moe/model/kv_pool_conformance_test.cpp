// SPDX-License-Identifier: Apache-2.0
// The KV pool joins the suite of resizable pools; tests/conformance runs it for the library's pools.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "hotset/core/memory_budget.hpp"
#include "random_source.hpp"
#include "resizable_suite.hpp"
#include "tiny_moe/model/kv_pool.hpp"

namespace hotset::support::kv_pool_conformance_test {
namespace {

/// Sequences whose blocks are recognised by their bytes.
class elastic_blocks {
 public:
  using pool_type = tiny_moe::kv_pool;
  static constexpr std::uint64_t most_units = 0x7FFFFFFF;
  static constexpr bool use_varies = true;
  /// Keys and values of two layers, two tokens of eight floats.
  static constexpr std::uint64_t unit_bytes = std::uint64_t{2} * 2 * 2 * 8 * sizeof(float);

  /// Cached blocks take the lowest places: the sequence's blocks, which stay, must move.
  void fill() {
    while (pool.in_use() + pool.cached() + 2 < pool.capacity()) pass_through();
    live_ = pool.open();
    is_live_ = true;
    for (std::size_t place = 0; place < 2; ++place) append(live_, place, 'l');
  }
  void let_go() {
    pool.close(live_);
    is_live_ = false;
  }
  /// Short sequences start and end; each makes room among the cached ones.
  void serve(random_source& random) {
    for (auto n = random.below(4); n-- > 0 && pool.available() > 0;) pass_through();
  }
  [[nodiscard]] std::uint64_t held() const { return pool.in_use() + pool.cached(); }
  content_places places() {
    content_places out;
    for (std::size_t place = 0; is_live_ && place < 2; ++place) {
      const auto bytes = bytes_of(live_, place);
      EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == written('l', place); }))
          << "block " << place;
      out["block " + std::to_string(place)] = bytes.data();
    }
    return out;
  }
  [[nodiscard]] pool_type::pass hold_up() { return pool_type::pass(pool); }

  memory_budget budget{resizable_limit * unit_bytes};
  pool_type pool{{.layers = 2, .heads = 1, .head_size = 8, .max_positions = 64},
                 {.block_tokens = 2, .blocks = resizable_units, .budget = &budget}};

 private:
  static std::byte written(char who, std::size_t place) {
    return static_cast<std::byte>(static_cast<std::size_t>(who) + place);
  }
  std::span<std::byte> bytes_of(tiny_moe::sequence_id sequence, std::size_t place) {
    return std::as_writable_bytes(std::span(pool.block(sequence, place), unit_bytes / 4));
  }
  void append(tiny_moe::sequence_id sequence, std::size_t place, char who) {
    ASSERT_TRUE(pool.reserve(sequence, 2));
    std::ranges::fill(bytes_of(sequence, place), written(who, place));
    const std::array<std::uint8_t, 2> tokens{static_cast<std::uint8_t>(who),
                                             static_cast<std::uint8_t>(next_++)};
    pool.append(sequence, tokens);
  }
  void pass_through() {
    const auto sequence = pool.open();
    append(sequence, 0, 'p');
    pool.close(sequence);
  }

  tiny_moe::sequence_id live_ = 0;
  bool is_live_ = false;
  std::uint64_t next_ = 0;  ///< so that no two blocks are equal
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(kv_pool, resizable_conformance, testing::Types<elastic_blocks>);

}  // namespace hotset::support::kv_pool_conformance_test
