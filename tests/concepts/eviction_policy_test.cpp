// SPDX-License-Identifier: Apache-2.0
#include "hotset/concepts/eviction_policy.hpp"

#include <gtest/gtest.h>

namespace hotset {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  archetype(const pool_layout&, const config&) {}
  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access&) noexcept {}
  void on_fill(const access&) noexcept {}
  void on_bypass(const access&) noexcept {}
  void on_evict(slot_id, expert_key) noexcept {}
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};
struct throwing_hit : archetype {
  using archetype::archetype;
  void on_hit(const access&) {}
};
struct throwing_choice : archetype {
  using archetype::archetype;
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) {
    return 0;
  }
};
struct counts_in_int : archetype {
  using archetype::archetype;
  int select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};
struct not_built_for_a_layout : archetype {
  explicit not_built_for_a_layout(const config& c);
};
struct nameless : archetype {
  using archetype::archetype;
  void name();
};
struct unchecked : archetype {
  struct config {};
  unchecked(const pool_layout&, const config&);
};
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};
struct weighs : archetype {
  using archetype::archetype;
  static constexpr bool needs_weights = true;
};

static_assert(eviction_policy<archetype>);
static_assert(!eviction_policy<throwing_hit>);
static_assert(!eviction_policy<throwing_choice>);
static_assert(!eviction_policy<counts_in_int>);
static_assert(!eviction_policy<not_built_for_a_layout>);
static_assert(!eviction_policy<nameless>);
static_assert(!eviction_policy<unchecked>);
static_assert(!eviction_policy<immovable>);
static_assert(eviction_policy<weighs> && detail::needs_weights<weighs>());
static_assert(!detail::needs_weights<archetype>());

TEST(eviction_policy, is_checked_when_this_file_is_compiled) { SUCCEED(); }

}  // namespace
}  // namespace hotset
