// SPDX-License-Identifier: Apache-2.0
/// Exact counts of every policy on two fixed traces: one from a seed, one from the committed tiny-moe routing.
///
/// A change of these numbers is a breaking change: name the changed rows in CHANGELOG.md, and the reason. A failure
/// prints the row as it would have to be. Nothing here depends on the machine.
///
/// In per-layer scope 12.5 % are 4 slots, as many as one token needs: a policy has no choice there, and all policies
/// that must admit every miss have equal counts.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab/files/safetensors.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace seeded_counts_test {
namespace {

using namespace hotset;

/// One replay's counts.
struct counts {
  std::uint64_t misses, fills, collisions;
};
/// A policy's counts with slots for 12.5, 25 and 50 % of the experts. An admission policy's name follows the eviction
/// policy's.
struct row {
  const char* policy;
  counts small, middle, large;

  [[nodiscard]] std::string eviction() const {
    const std::string text = policy;
    return text.substr(0, text.find(", "));
  }
  [[nodiscard]] std::string admission() const {
    const std::string text = policy;
    const auto at = text.find(", ");
    return at == std::string::npos ? "always" : text.substr(at + 2);
  }
  [[nodiscard]] std::array<counts, 3> by_size() const { return {small, middle, large}; }
};
using rows = std::vector<row>;

std::string text_of(const row& r) {
  std::string out = fmt::format("{{\"{}\"", r.policy);
  for (const auto& c : r.by_size())
    out += fmt::format(", {{{}, {}, {}}}", c.misses, c.fills, c.collisions);
  return out + "},";
}

/// Six layers of 32 experts, top-4; three sequences of a prompt of 24 tokens and 120 decoded ones, in phases.
routing_trace seeded() {
  synthetic_config config;
  config.layers = 6;
  config.experts = 32;
  config.top_k = 4;
  config.sequences = 3;
  config.prefill = 24;
  config.tokens = 120;
  config.zipf = 0.8;
  config.stickiness = 0.3;
  config.phase_length = 100;
  config.seed = 20'240'607;
  return synthetic_trace(config).value();
}

/// Tokens of the eight reference prompts as tiny-moe routes them: the first 16 of each in one step as prefill, the
/// others one by one.
routing_trace tiny_moe() {
  const auto path =
      std::filesystem::path(HOTSET_SOURCE_DIR) / "examples/data/tiny-moe/reference.safetensors";
  const lab::safetensors_file file(path);
  auto trace = support::empty_trace(12, 32, 4);
  trace.name = "tiny-moe";
  std::uint32_t step = 0;
  std::uint32_t sequence = 0;
  for (const auto* name :
       {"prose-1", "prose-2", "code-1", "code-2", "math-1", "math-2", "tool-1", "tool-2"}) {
    const auto& stored = file.at(std::string(name) + ".ids");
    const auto ids = lab::copy_elements<std::uint16_t>(stored.bytes);
    const auto weights = lab::copy_elements<float>(file.at(std::string(name) + ".weights").bytes);
    for (std::uint64_t t = 0; t < stored.shape[0]; ++t) {
      trace.step.push_back(step);
      step += t < 15 ? 0U : 1U;
      trace.sequence.push_back(sequence);
      trace.kind.push_back(t < 16 ? request_class::prefill : request_class::decode);
    }
    for (const auto id : ids) trace.ids.push_back(static_cast<expert_id>(id));
    trace.weights.insert(trace.weights.end(), weights.begin(), weights.end());
    ++sequence;
  }
  return trace;
}

void expect_rows(const routing_trace& trace, const char* scope, const rows& pinned) {
  const auto accesses = visit_sequence(trace).accesses();
  for (const auto& wanted : pinned) {
    const auto replayed = [&](const char* size) {
      const auto s = support::one_run(trace, {wanted.eviction(), scope, size, "event-atomic",
                                              wanted.admission()})
                         .stats;
      EXPECT_EQ(s.hits + s.misses, accesses);
      return counts{s.misses, s.fills, s.collision_misses};
    };
    const row now{wanted.policy, replayed("12.5%"), replayed("25%"), replayed("50%")};
    EXPECT_EQ(text_of(now), text_of(wanted))
        << trace.name << ", " << scope << ": a breaking change, see the head of this file";
  }
}

/// Consistency of the pinned numbers themselves.
void expect_plausible(const rows& pinned) {
  for (std::size_t size = 0; size < 3; ++size)
    for (const auto& r : pinned)
      for (const auto& other : pinned) {
        SCOPED_TRACE(text_of(r));
        const auto least = other.by_size()[size];
        if (other.eviction() == "belady_bypass") {
          EXPECT_LE(least.misses, r.by_size()[size].misses);
        }
        if (other.eviction() == "belady" && r.admission() == "always" &&
            r.eviction() != "belady_bypass") {
          EXPECT_LE(least.fills, r.by_size()[size].fills);
        }
      }
}

// clang-format off
const rows seeded_shared{
    {"lru", {5373, 5373, 44}, {4438, 4438, 283}, {2631, 2631, 175}},
    {"lfu", {7385, 7385, 597}, {5835, 5835, 501}, {3375, 3375, 321}},
    {"lfu:history=resident", {8104, 8105, 1652}, {6677, 6677, 1409}, {4292, 4292, 727}},
    {"lfru", {6454, 6454, 907}, {4425, 4425, 379}, {2559, 2559, 156}},
    {"importance", {6737, 6737, 493}, {5149, 5149, 396}, {2872, 2872, 224}},
    {"expert_map_priority", {7385, 7385, 597}, {5835, 5835, 501}, {3375, 3375, 321}},
    {"activation_ratio", {7013, 7013, 555}, {5403, 5403, 469}, {3113, 3113, 309}},
    {"fifo", {6521, 6521, 728}, {4838, 4838, 417}, {2997, 2997, 273}},
    {"furthest_layer", {5414, 5414, 41}, {4473, 4473, 36}, {2718, 2718, 3}},
    {"gate_score", {7441, 7441, 599}, {5861, 5861, 521}, {3488, 3488, 332}},
    {"gate_score:accumulate=ema", {7522, 7522, 597}, {6041, 6041, 539}, {3683, 3683, 359}},
    {"least_stale", {5419, 5419, 47}, {4606, 4606, 44}, {3075, 3075, 41}},
    {"least_stale:order=layer", {5375, 5375, 46}, {4614, 4614, 82}, {3179, 3179, 161}},
    {"least_stale:order=last_access", {5373, 5373, 44}, {4438, 4438, 283}, {2631, 2631, 175}},
    {"popularity", {7325, 7326, 613}, {5672, 5672, 486}, {3132, 3132, 302}},
    {"protect_hot+lru", {8373, 8373, 2584}, {6343, 6343, 1498}, {4058, 4058, 875}},
    {"protect_decode+lru", {5373, 5373, 44}, {4410, 4410, 256}, {2556, 2556, 104}},
    {"reserve_prefetch+lru", {5373, 5373, 44}, {4438, 4438, 283}, {2631, 2631, 175}},
    {"belady", {4062, 4062, 35}, {2587, 2587, 33}, {1214, 1214, 6}},
    {"similar_steps", {6019, 6019, 293}, {4216, 4216, 122}, {2386, 2386, 47}},
    {"two_rate", {6012, 6012, 269}, {4141, 4141, 75}, {2471, 2471, 54}},
    {"next_visit_oracle", {4691, 4691, 37}, {3698, 3698, 36}, {2276, 2276, 10}},
    {"belady_bypass", {3851, 3851, 0}, {2477, 2477, 0}, {1183, 1183, 0}},
    {"lru, after_n_uses", {6495, 2496, 164}, {5032, 1977, 122}, {2902, 1196, 69}},
    {"lru, budgeted", {5361, 4972, 37}, {4395, 4054, 240}, {2571, 2316, 98}},
    {"lru, least_valuable", {5863, 4513, 258}, {4447, 4100, 237}, {2634, 2612, 173}},
};

const rows seeded_per_layer{
    {"lru", {5307, 5897, 0}, {4170, 4483, 0}, {2398, 2495, 0}},
    {"lfu", {5307, 5897, 0}, {4185, 4496, 0}, {2477, 2568, 0}},
    {"lfu:history=resident", {5307, 5897, 0}, {4171, 4489, 0}, {2483, 2575, 0}},
    {"lfru", {5307, 5897, 0}, {4029, 4340, 0}, {2389, 2483, 0}},
    {"importance", {5307, 5897, 0}, {3924, 4229, 0}, {2279, 2373, 0}},
    {"expert_map_priority", {5307, 5897, 0}, {4185, 4496, 0}, {2477, 2568, 0}},
    {"activation_ratio", {5307, 5897, 0}, {3968, 4272, 0}, {2349, 2438, 0}},
    {"fifo", {5307, 5897, 0}, {4337, 4646, 0}, {2688, 2786, 0}},
    {"furthest_layer", {5307, 5897, 0}, {4170, 4483, 0}, {2398, 2495, 0}},
    {"gate_score", {5307, 5897, 0}, {4163, 4474, 0}, {2515, 2610, 0}},
    {"gate_score:accumulate=ema", {5307, 5897, 0}, {4202, 4519, 0}, {2593, 2691, 0}},
    {"least_stale", {5307, 5897, 0}, {4337, 4646, 0}, {2688, 2786, 0}},
    {"least_stale:order=layer", {5307, 5897, 0}, {4337, 4646, 0}, {2688, 2786, 0}},
    {"least_stale:order=last_access", {5307, 5897, 0}, {4170, 4483, 0}, {2398, 2495, 0}},
    {"popularity", {5307, 5897, 0}, {4083, 4400, 0}, {2336, 2438, 0}},
    {"protect_hot+lru", {5307, 5897, 0}, {4019, 4328, 0}, {2448, 2546, 0}},
    {"protect_decode+lru", {5307, 5897, 0}, {4170, 4483, 0}, {2398, 2494, 0}},
    {"reserve_prefetch+lru", {5307, 5897, 0}, {4170, 4483, 0}, {2398, 2495, 0}},
    {"belady", {5307, 5897, 0}, {2956, 3242, 0}, {1353, 1435, 0}},
    {"similar_steps", {5307, 5897, 0}, {3966, 4269, 0}, {2359, 2453, 0}},
    {"two_rate", {5307, 5897, 0}, {4029, 4336, 0}, {2375, 2468, 0}},
    {"next_visit_oracle", {5307, 5897, 0}, {3707, 3996, 0}, {2234, 2323, 0}},
    {"belady_bypass", {4066, 4066, 0}, {2635, 2635, 0}, {1250, 1250, 0}},
    {"lru, after_n_uses", {6321, 2540, 0}, {4887, 2013, 0}, {2820, 1188, 0}},
    {"lru, budgeted", {5322, 5011, 0}, {4180, 3899, 0}, {2428, 2213, 0}},
    {"lru, least_valuable", {5711, 4521, 0}, {4310, 3899, 0}, {2420, 2448, 0}},
};

const rows tiny_moe_shared{
    {"lru", {23205, 23205, 294}, {20013, 20013, 1432}, {11909, 11909, 1227}},
    {"lfu", {25357, 25357, 756}, {21043, 21043, 666}, {13113, 13113, 494}},
    {"lfu:history=resident", {28633, 28633, 4974}, {23889, 23889, 3386}, {15387, 15387, 1997}},
    {"lfru", {25385, 25385, 2395}, {19925, 19925, 1746}, {11519, 11519, 1091}},
    {"importance", {23232, 23232, 605}, {17811, 17811, 450}, {9593, 9593, 247}},
    {"expert_map_priority", {25357, 25357, 756}, {21043, 21043, 666}, {13113, 13113, 494}},
    {"activation_ratio", {23255, 23255, 775}, {18039, 18039, 820}, {9894, 9894, 772}},
    {"fifo", {24667, 24667, 1295}, {21117, 21117, 2237}, {12875, 12875, 1324}},
    {"furthest_layer", {23138, 23138, 132}, {18992, 18992, 90}, {11535, 11535, 25}},
    {"gate_score", {25472, 25472, 739}, {21331, 21331, 634}, {13363, 13363, 479}},
    {"gate_score:accumulate=ema", {24775, 24775, 770}, {20036, 20036, 689}, {12127, 12127, 509}},
    {"least_stale", {23174, 23174, 169}, {19669, 19669, 162}, {12985, 12985, 131}},
    {"least_stale:order=layer", {23205, 23205, 294}, {20018, 20018, 528}, {13783, 13783, 1018}},
    {"least_stale:order=last_access", {23205, 23205, 294}, {20013, 20013, 1432}, {11909, 11909, 1227}},
    {"popularity", {24996, 24996, 726}, {20499, 20499, 662}, {12460, 12460, 412}},
    {"protect_hot+lru", {28869, 28869, 5695}, {23931, 23931, 3878}, {15412, 15412, 2305}},
    {"protect_decode+lru", {23105, 23105, 204}, {19641, 19641, 1074}, {11344, 11344, 700}},
    {"reserve_prefetch+lru", {23205, 23205, 294}, {20013, 20013, 1432}, {11909, 11909, 1227}},
    {"belady", {16677, 16677, 111}, {11010, 11010, 56}, {4846, 4846, 16}},
    {"similar_steps", {21468, 21468, 365}, {16365, 16365, 233}, {9138, 9138, 246}},
    {"two_rate", {23087, 23087, 325}, {17988, 17988, 196}, {10399, 10399, 257}},
    {"next_visit_oracle", {19782, 19782, 116}, {15701, 15701, 69}, {9113, 9113, 0}},
    {"belady_bypass", {16172, 16172, 0}, {10772, 10772, 0}, {4778, 4778, 0}},
    {"lru, after_n_uses", {24802, 9272, 844}, {20172, 7627, 748}, {11342, 4456, 405}},
    {"lru, budgeted", {23146, 21251, 241}, {19699, 18116, 1127}, {11463, 10419, 773}},
    {"lru, least_valuable", {23621, 19830, 882}, {20079, 18896, 1754}, {11893, 11804, 1227}},
};

const rows tiny_moe_per_layer{
    {"lru", {22897, 25556, 0}, {18565, 19783, 0}, {10656, 11047, 0}},
    {"lfu", {22897, 25556, 0}, {18425, 19631, 0}, {10898, 11302, 0}},
    {"lfu:history=resident", {22897, 25556, 0}, {17601, 18793, 0}, {9409, 9788, 0}},
    {"lfru", {22897, 25556, 0}, {18176, 19394, 0}, {10394, 10797, 0}},
    {"importance", {22897, 25556, 0}, {17088, 18242, 0}, {9090, 9472, 0}},
    {"expert_map_priority", {22897, 25556, 0}, {18425, 19631, 0}, {10898, 11302, 0}},
    {"activation_ratio", {22897, 25556, 0}, {16962, 18101, 0}, {9051, 9430, 0}},
    {"fifo", {22897, 25556, 0}, {18795, 20005, 0}, {11438, 11833, 0}},
    {"furthest_layer", {22897, 25556, 0}, {18565, 19783, 0}, {10656, 11047, 0}},
    {"gate_score", {22897, 25556, 0}, {18518, 19712, 0}, {11071, 11472, 0}},
    {"gate_score:accumulate=ema", {22897, 25556, 0}, {17952, 19153, 0}, {10362, 10754, 0}},
    {"least_stale", {22897, 25556, 0}, {18795, 20005, 0}, {11438, 11833, 0}},
    {"least_stale:order=layer", {22897, 25556, 0}, {18795, 20005, 0}, {11438, 11833, 0}},
    {"least_stale:order=last_access", {22897, 25556, 0}, {18565, 19783, 0}, {10656, 11047, 0}},
    {"popularity", {22897, 25556, 0}, {18365, 19554, 0}, {10595, 10980, 0}},
    {"protect_hot+lru", {22897, 25556, 0}, {18120, 19319, 0}, {9768, 10141, 0}},
    {"protect_decode+lru", {22897, 25556, 0}, {18563, 19769, 0}, {10648, 11037, 0}},
    {"reserve_prefetch+lru", {22897, 25556, 0}, {18565, 19783, 0}, {10656, 11047, 0}},
    {"belady", {22897, 25556, 0}, {13311, 14351, 0}, {5782, 6085, 0}},
    {"similar_steps", {22897, 25556, 0}, {16568, 17766, 0}, {8977, 9359, 0}},
    {"two_rate", {22897, 25556, 0}, {17843, 19045, 0}, {10061, 10448, 0}},
    {"next_visit_oracle", {22897, 25556, 0}, {15944, 16995, 0}, {9108, 9442, 0}},
    {"belady_bypass", {16868, 16868, 0}, {11345, 11345, 0}, {5156, 5156, 0}},
    {"lru, after_n_uses", {23964, 9513, 0}, {19326, 7682, 0}, {11015, 4437, 0}},
    {"lru, budgeted", {22897, 21449, 0}, {18595, 17349, 0}, {10724, 9930, 0}},
    {"lru, least_valuable", {22595, 18881, 0}, {17956, 15672, 0}, {10461, 10270, 0}},
};
// clang-format on

TEST(seeded_counts, of_a_synthetic_trace) {
  expect_rows(seeded(), "shared", seeded_shared);
  expect_rows(seeded(), "per-layer", seeded_per_layer);
}

TEST(seeded_counts, of_the_committed_tiny_moe_routing) {
  expect_rows(tiny_moe(), "shared", tiny_moe_shared);
  expect_rows(tiny_moe(), "per-layer", tiny_moe_per_layer);
}

const std::vector<const rows*> all_rows{&seeded_shared, &seeded_per_layer, &tiny_moe_shared,
                                        &tiny_moe_per_layer};

TEST(seeded_counts, are_plausible) {
  for (const auto* pinned : all_rows) expect_plausible(*pinned);
}

TEST(seeded_counts, cover_every_policy_that_there_is) {
  for (const auto* pinned : all_rows) {
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(*pinned, [&](const row& r) {
        return r.eviction() == name || r.admission() == name ||
               r.eviction().starts_with(name + '+');
      });
    };
    for (const auto& name : support::plain_evictions()) EXPECT_TRUE(has(name)) << name;
    for (const auto& name : lab::known_policies().decorators.names())
      EXPECT_TRUE(has(name)) << name;
    for (const auto& name : lab::known_policies().admission.names()) EXPECT_TRUE(has(name)) << name;
  }
}

TEST(seeded_counts, traces_are_unchanged) {
  const visit_sequence synthetic(seeded());
  EXPECT_EQ(synthetic.accesses(), 9109U);
  const visit_sequence routed(tiny_moe());
  EXPECT_EQ(routed.accesses(), 29811U);
}

}  // namespace
}  // namespace seeded_counts_test
