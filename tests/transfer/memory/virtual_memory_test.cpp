// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/virtual_memory.hpp"

#include <set>

#include <gtest/gtest.h>

namespace hotset::virtual_memory_test {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  [[nodiscard]] std::size_t granularity() const noexcept { return 1; }
  memory_status reserve(std::size_t, std::span<std::byte>&) noexcept { return memory_status::ok; }
  memory_status release(std::span<std::byte>) noexcept { return memory_status::ok; }
  memory_status create_block(std::size_t, memory_block&) noexcept { return memory_status::ok; }
  memory_status destroy_block(memory_block) noexcept { return memory_status::ok; }
  memory_status map(std::span<std::byte>, std::size_t, memory_block) noexcept {
    return memory_status::ok;
  }
  memory_status unmap(std::span<std::byte>, std::size_t, std::size_t) noexcept {
    return memory_status::ok;
  }
};
struct throwing_map : archetype {
  memory_status map(std::span<std::byte>, std::size_t, memory_block) { return memory_status::ok; }
};
struct throwing_unmap : archetype {
  memory_status unmap(std::span<std::byte>, std::size_t, std::size_t) { return memory_status::ok; }
};
struct says_nothing_of_map : archetype {
  void map(std::span<std::byte>, std::size_t, memory_block) noexcept {}
};
struct changes_its_granularity : archetype {
  std::size_t granularity() noexcept { return 1; }
};
struct returns_its_range : archetype {
  std::span<std::byte> reserve(std::size_t) noexcept { return {}; }
};
struct has_blocks_of_its_own : archetype {
  struct page {};
  memory_status create_block(std::size_t, page&) noexcept { return memory_status::ok; }
};
struct keeps_blocks : archetype {
  void destroy_block();
};
struct keeps_addresses : archetype {
  void release();
};

static_assert(virtual_memory<archetype>);
static_assert(!virtual_memory<throwing_map>);
static_assert(!virtual_memory<throwing_unmap>);
static_assert(!virtual_memory<says_nothing_of_map>);
static_assert(!virtual_memory<changes_its_granularity>);
static_assert(!virtual_memory<returns_its_range>);
static_assert(!virtual_memory<has_blocks_of_its_own>);
static_assert(!virtual_memory<keeps_blocks>);
static_assert(!virtual_memory<keeps_addresses>);

TEST(virtual_memory, every_status_has_a_text_of_its_own) {
  std::set<std::string_view> texts;
  for (const auto s : {memory_status::ok, memory_status::invalid_argument, memory_status::in_use,
                       memory_status::out_of_memory, memory_status::failed})
    EXPECT_TRUE(texts.insert(describe(s)).second) << describe(s);
}

}  // namespace
}  // namespace hotset::virtual_memory_test
