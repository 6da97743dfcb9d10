// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/uploader.hpp"

#include <array>
#include <cstddef>
#include <span>

#include <gtest/gtest.h>

namespace hotset::uploader_test {
namespace {

struct throwing_copy : host_uploader {
  bool copy(std::span<std::byte>, std::span<const std::byte>) { return true; }
};
struct says_nothing_of_its_fence : host_uploader {
  void fence() noexcept {}
};
static_assert(!uploader<throwing_copy>);
static_assert(!uploader<says_nothing_of_its_fence>);

TEST(host_uploader, copies_at_once) {
  std::array<std::byte, 3> from{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> to{};
  host_uploader subject;
  EXPECT_TRUE(subject.copy(to, from));
  EXPECT_EQ(to, from);
  EXPECT_TRUE(subject.fence());
  EXPECT_TRUE(subject.wait_for_readers());
}

}  // namespace
}  // namespace hotset::uploader_test
