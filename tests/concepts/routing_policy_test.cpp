// SPDX-License-Identifier: Apache-2.0
#include "hotset/concepts/routing_policy.hpp"

#include <gtest/gtest.h>

namespace hotset {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr routing_traits traits{};
  archetype(const geometry&, const config&) {}
  status route(const routing_view&, const residency_view&, std::span<expert_id>,
               std::span<float>) noexcept {
    return status::ok;
  }
};
struct throwing : archetype {
  using archetype::archetype;
  status route(const routing_view&, const residency_view&, std::span<expert_id>, std::span<float>) {
    return status::ok;
  }
};
struct answers_bool : archetype {
  using archetype::archetype;
  bool route(const routing_view&, const residency_view&, std::span<expert_id>,
             std::span<float>) noexcept {
    return true;
  }
};
struct writes_no_weights : archetype {
  using archetype::archetype;
  status route(const routing_view&, const residency_view&, std::span<expert_id>,
               std::span<const double>) noexcept {
    return status::ok;
  }
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};
struct nameless : archetype {
  using archetype::archetype;
  void name();
};
struct unchecked : archetype {
  struct config {};
  unchecked(const geometry&, const config&);
};
struct not_built_for_a_model : archetype {
  explicit not_built_for_a_model(const config& c);
};
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};

static_assert(routing_policy<archetype>);
static_assert(!routing_policy<throwing>);
static_assert(!routing_policy<answers_bool>);
static_assert(!routing_policy<writes_no_weights>);
static_assert(!routing_policy<has_no_traits>);
static_assert(!routing_policy<nameless>);
static_assert(!routing_policy<unchecked>);
static_assert(!routing_policy<not_built_for_a_model>);
static_assert(!routing_policy<immovable>);

TEST(routing_policy, is_checked_when_this_file_is_compiled) { SUCCEED(); }

}  // namespace
}  // namespace hotset
