// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/preset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/sim/dimensions.hpp"
#include "hotset/sim/errors.hpp"
#include "sim_samples.hpp"

namespace hotset {
namespace {

using testing::HasSubstr;

// SpecMD, Table 1.
TEST(preset, the_configurations_of_table_1) {
  const auto is = [](const char* name, const char* prefetch, const char* eviction, const char* miss,
                     const char* routing) {
    const auto set = sim::make_preset(name);
    EXPECT_EQ(set.prefetch, prefetch) << name;
    EXPECT_EQ(set.eviction, eviction) << name;
    EXPECT_EQ(set.miss, miss) << name;
    EXPECT_EQ(set.routing, routing) << name;
    EXPECT_EQ(set.guard, "none") << name;
    EXPECT_EQ(set.admission, "always") << name;
    EXPECT_EQ(set.preset, name);
  };
  is("specmd-1", "next_layer_top_k", "lru", "fetch", "router_order");
  is("specmd-2", "score_threshold", "gate_score", "substitute", "router_order");
  is("specmd-3", "next_layer_top_k", "lhu", "fetch_priority", "router_order");
  is("specmd-4", "no_prefetch", "lru", "fetch", "cache_aware");
  is("specmd-5", "score_threshold", "least_stale", "fetch", "router_order");
}

// SpecMD, Table 2: the systems, and with another eviction policy dropped in.
TEST(preset, systems_have_their_own_names_and_take_least_stale) {
  for (const auto& [system, config] :
       std::vector<std::pair<std::string, std::string>>{{"eliseev-23", "specmd-1"},
                                                        {"zhu-25", "specmd-2"},
                                                        {"hobbit-24", "specmd-3"},
                                                        {"mixture-cache-25", "specmd-4"}}) {
    auto one = sim::make_preset(system);
    const auto other = sim::make_preset(config);
    EXPECT_EQ(one.eviction, other.eviction);
    EXPECT_EQ(one.prefetch, other.prefetch);
    EXPECT_EQ(one.miss, other.miss);
    EXPECT_EQ(one.routing, other.routing);
    const auto dropped = sim::make_preset(system + "+least_stale");
    EXPECT_EQ(dropped.eviction, "least_stale");
    EXPECT_EQ(dropped.prefetch, one.prefetch);
    EXPECT_EQ(dropped.preset, system + "+least_stale");
  }
}

TEST(preset, every_name_is_made_of_policies_that_exist) {
  for (const auto& name : sim::preset_names()) {
    const auto set = sim::make_preset(name);
    EXPECT_NO_THROW(sim::check_policies(set.eviction, set.admission)) << name;
    EXPECT_NO_THROW((void)sim::make_prefetch(set.prefetch)) << name;
    EXPECT_NO_THROW((void)sim::make_miss(set.miss)) << name;
    EXPECT_NO_THROW((void)sim::make_routing(set.routing)) << name;
  }
}

TEST(preset, an_unknown_name_lists_the_known_ones) {
  for (const auto* name : {"specmd-6", "", "specmd-1+lru", "+least_stale"})
    EXPECT_THAT(support::refusal<sim::usage_error>([&] { (void)sim::make_preset(name); }),
                testing::AllOf(HasSubstr("specmd-5"), HasSubstr("mixture-cache-25"),
                               HasSubstr("+least_stale")));
}

}  // namespace
}  // namespace hotset
