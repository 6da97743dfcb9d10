// SPDX-License-Identifier: Apache-2.0
/// Exact counts of every policy on two fixed traces: one from a seed, one from the committed tiny-moe routing.
///
/// A change of these numbers is a breaking change: name the rows that moved in CHANGELOG.md, and why. A failure
/// prints the row as it would have to read. Nothing here depends on the machine.
///
/// In per-layer scope 12.5 % are 4 slots, as many as one token needs: a policy has nothing to decide there, and
/// all that must admit every miss count alike.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab/files/safetensors.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace seeded_counts_test {
namespace {

using namespace hotset;

/// One replay's counts, as pinned.
struct row {
  const char* eviction;
  const char* admission;
  const char* scope;
  const char* size;
  std::uint64_t hits, misses, fills, collisions;
};

std::string text_of(const row& r) {
  return fmt::format("{{\"{}\", \"{}\", \"{}\", \"{}\", {}, {}, {}, {}}},", r.eviction, r.admission,
                     r.scope, r.size, r.hits, r.misses, r.fills, r.collisions);
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

/// Tokens of the eight reference prompts as tiny-moe routes them: of each, the first 16 in one step as prefill,
/// the others one by one.
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

std::vector<row> replayed(const routing_trace& trace, const std::vector<row>& wanted) {
  std::vector<row> out;
  for (const auto& w : wanted) {
    const auto s =
        support::one_run(trace, {w.eviction, w.scope, w.size, "event-atomic", w.admission}).stats;
    out.push_back(
        {w.eviction, w.admission, w.scope, w.size, s.hits, s.misses, s.fills, s.collision_misses});
  }
  return out;
}

void expect_rows(const routing_trace& trace, const std::vector<row>& pinned) {
  const auto now = replayed(trace, pinned);
  for (std::size_t i = 0; i < pinned.size(); ++i)
    EXPECT_EQ(text_of(now[i]), text_of(pinned[i]))
        << trace.name << ": a breaking change, see the head of this file";
}

/// What the pinned numbers themselves must satisfy, whoever wrote them.
void expect_plausible(const std::vector<row>& pinned, std::uint64_t accesses) {
  for (const auto& r : pinned) {
    SCOPED_TRACE(text_of(r));
    EXPECT_EQ(r.hits + r.misses, accesses);
    for (const auto& other : pinned) {
      if (std::string(other.scope) != r.scope || std::string(other.size) != r.size) continue;
      if (std::string(other.eviction) == "belady_bypass") {
        EXPECT_LE(other.misses, r.misses);
      }
      if (std::string(other.eviction) == "belady" && std::string(r.admission) == "always" &&
          std::string(r.eviction) != "belady_bypass") {
        EXPECT_LE(other.fills, r.fills);
      }
    }
  }
}

// clang-format off
const std::vector<row> seeded_rows{
    {"lru", "always", "shared", "12.5%", 3736, 5373, 5373, 44},
    {"lfu", "always", "shared", "12.5%", 1724, 7385, 7385, 597},
    {"lfu:history=resident", "always", "shared", "12.5%", 1005, 8104, 8105, 1652},
    {"lfru", "always", "shared", "12.5%", 2655, 6454, 6454, 907},
    {"importance", "always", "shared", "12.5%", 2372, 6737, 6737, 493},
    {"expert_map_priority", "always", "shared", "12.5%", 1724, 7385, 7385, 597},
    {"activation_ratio", "always", "shared", "12.5%", 2096, 7013, 7013, 555},
    {"fifo", "always", "shared", "12.5%", 2588, 6521, 6521, 728},
    {"furthest_layer", "always", "shared", "12.5%", 3695, 5414, 5414, 41},
    {"gate_score", "always", "shared", "12.5%", 1668, 7441, 7441, 599},
    {"gate_score:accumulate=ema", "always", "shared", "12.5%", 1587, 7522, 7522, 597},
    {"least_stale", "always", "shared", "12.5%", 3690, 5419, 5419, 47},
    {"least_stale:order=layer", "always", "shared", "12.5%", 3734, 5375, 5375, 46},
    {"least_stale:order=last_access", "always", "shared", "12.5%", 3736, 5373, 5373, 44},
    {"popularity", "always", "shared", "12.5%", 1784, 7325, 7326, 613},
    {"protect_hot+lru", "always", "shared", "12.5%", 736, 8373, 8373, 2584},
    {"protect_decode+lru", "always", "shared", "12.5%", 3736, 5373, 5373, 44},
    {"reserve_prefetch+lru", "always", "shared", "12.5%", 3736, 5373, 5373, 44},
    {"belady", "always", "shared", "12.5%", 5047, 4062, 4062, 35},
    {"similar_steps", "always", "shared", "12.5%", 3090, 6019, 6019, 293},
    {"two_rate", "always", "shared", "12.5%", 3097, 6012, 6012, 269},
    {"next_visit_oracle", "always", "shared", "12.5%", 4418, 4691, 4691, 37},
    {"belady_bypass", "always", "shared", "12.5%", 5258, 3851, 3851, 0},
    {"lru", "after_n_uses", "shared", "12.5%", 2614, 6495, 2496, 164},
    {"lru", "budgeted", "shared", "12.5%", 3748, 5361, 4972, 37},
    {"lru", "least_valuable", "shared", "12.5%", 3246, 5863, 4513, 258},
    {"lru", "always", "shared", "25%", 4671, 4438, 4438, 283},
    {"lfu", "always", "shared", "25%", 3274, 5835, 5835, 501},
    {"lfu:history=resident", "always", "shared", "25%", 2432, 6677, 6677, 1409},
    {"lfru", "always", "shared", "25%", 4684, 4425, 4425, 379},
    {"importance", "always", "shared", "25%", 3960, 5149, 5149, 396},
    {"expert_map_priority", "always", "shared", "25%", 3274, 5835, 5835, 501},
    {"activation_ratio", "always", "shared", "25%", 3706, 5403, 5403, 469},
    {"fifo", "always", "shared", "25%", 4271, 4838, 4838, 417},
    {"furthest_layer", "always", "shared", "25%", 4636, 4473, 4473, 36},
    {"gate_score", "always", "shared", "25%", 3248, 5861, 5861, 521},
    {"gate_score:accumulate=ema", "always", "shared", "25%", 3068, 6041, 6041, 539},
    {"least_stale", "always", "shared", "25%", 4503, 4606, 4606, 44},
    {"least_stale:order=layer", "always", "shared", "25%", 4495, 4614, 4614, 82},
    {"least_stale:order=last_access", "always", "shared", "25%", 4671, 4438, 4438, 283},
    {"popularity", "always", "shared", "25%", 3437, 5672, 5672, 486},
    {"protect_hot+lru", "always", "shared", "25%", 2766, 6343, 6343, 1498},
    {"protect_decode+lru", "always", "shared", "25%", 4699, 4410, 4410, 256},
    {"reserve_prefetch+lru", "always", "shared", "25%", 4671, 4438, 4438, 283},
    {"belady", "always", "shared", "25%", 6522, 2587, 2587, 33},
    {"similar_steps", "always", "shared", "25%", 4893, 4216, 4216, 122},
    {"two_rate", "always", "shared", "25%", 4968, 4141, 4141, 75},
    {"next_visit_oracle", "always", "shared", "25%", 5411, 3698, 3698, 36},
    {"belady_bypass", "always", "shared", "25%", 6632, 2477, 2477, 0},
    {"lru", "after_n_uses", "shared", "25%", 4077, 5032, 1977, 122},
    {"lru", "budgeted", "shared", "25%", 4714, 4395, 4054, 240},
    {"lru", "least_valuable", "shared", "25%", 4662, 4447, 4100, 237},
    {"lru", "always", "shared", "50%", 6478, 2631, 2631, 175},
    {"lfu", "always", "shared", "50%", 5734, 3375, 3375, 321},
    {"lfu:history=resident", "always", "shared", "50%", 4817, 4292, 4292, 727},
    {"lfru", "always", "shared", "50%", 6550, 2559, 2559, 156},
    {"importance", "always", "shared", "50%", 6237, 2872, 2872, 224},
    {"expert_map_priority", "always", "shared", "50%", 5734, 3375, 3375, 321},
    {"activation_ratio", "always", "shared", "50%", 5996, 3113, 3113, 309},
    {"fifo", "always", "shared", "50%", 6112, 2997, 2997, 273},
    {"furthest_layer", "always", "shared", "50%", 6391, 2718, 2718, 3},
    {"gate_score", "always", "shared", "50%", 5621, 3488, 3488, 332},
    {"gate_score:accumulate=ema", "always", "shared", "50%", 5426, 3683, 3683, 359},
    {"least_stale", "always", "shared", "50%", 6034, 3075, 3075, 41},
    {"least_stale:order=layer", "always", "shared", "50%", 5930, 3179, 3179, 161},
    {"least_stale:order=last_access", "always", "shared", "50%", 6478, 2631, 2631, 175},
    {"popularity", "always", "shared", "50%", 5977, 3132, 3132, 302},
    {"protect_hot+lru", "always", "shared", "50%", 5051, 4058, 4058, 875},
    {"protect_decode+lru", "always", "shared", "50%", 6553, 2556, 2556, 104},
    {"reserve_prefetch+lru", "always", "shared", "50%", 6478, 2631, 2631, 175},
    {"belady", "always", "shared", "50%", 7895, 1214, 1214, 6},
    {"similar_steps", "always", "shared", "50%", 6723, 2386, 2386, 47},
    {"two_rate", "always", "shared", "50%", 6638, 2471, 2471, 54},
    {"next_visit_oracle", "always", "shared", "50%", 6833, 2276, 2276, 10},
    {"belady_bypass", "always", "shared", "50%", 7926, 1183, 1183, 0},
    {"lru", "after_n_uses", "shared", "50%", 6207, 2902, 1196, 69},
    {"lru", "budgeted", "shared", "50%", 6538, 2571, 2316, 98},
    {"lru", "least_valuable", "shared", "50%", 6475, 2634, 2612, 173},
    {"lru", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"lfu", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"lfu:history=resident", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"lfru", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"importance", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"expert_map_priority", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"activation_ratio", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"fifo", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"furthest_layer", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"gate_score", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"least_stale", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"least_stale:order=layer", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"least_stale:order=last_access", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"popularity", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"protect_hot+lru", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"protect_decode+lru", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"belady", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"similar_steps", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"two_rate", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"next_visit_oracle", "always", "per-layer", "12.5%", 3802, 5307, 5897, 0},
    {"belady_bypass", "always", "per-layer", "12.5%", 5043, 4066, 4066, 0},
    {"lru", "after_n_uses", "per-layer", "12.5%", 2788, 6321, 2540, 0},
    {"lru", "budgeted", "per-layer", "12.5%", 3787, 5322, 5011, 0},
    {"lru", "least_valuable", "per-layer", "12.5%", 3398, 5711, 4521, 0},
    {"lru", "always", "per-layer", "25%", 4939, 4170, 4483, 0},
    {"lfu", "always", "per-layer", "25%", 4924, 4185, 4496, 0},
    {"lfu:history=resident", "always", "per-layer", "25%", 4938, 4171, 4489, 0},
    {"lfru", "always", "per-layer", "25%", 5080, 4029, 4340, 0},
    {"importance", "always", "per-layer", "25%", 5185, 3924, 4229, 0},
    {"expert_map_priority", "always", "per-layer", "25%", 4924, 4185, 4496, 0},
    {"activation_ratio", "always", "per-layer", "25%", 5141, 3968, 4272, 0},
    {"fifo", "always", "per-layer", "25%", 4772, 4337, 4646, 0},
    {"furthest_layer", "always", "per-layer", "25%", 4939, 4170, 4483, 0},
    {"gate_score", "always", "per-layer", "25%", 4946, 4163, 4474, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "25%", 4907, 4202, 4519, 0},
    {"least_stale", "always", "per-layer", "25%", 4772, 4337, 4646, 0},
    {"least_stale:order=layer", "always", "per-layer", "25%", 4772, 4337, 4646, 0},
    {"least_stale:order=last_access", "always", "per-layer", "25%", 4939, 4170, 4483, 0},
    {"popularity", "always", "per-layer", "25%", 5026, 4083, 4400, 0},
    {"protect_hot+lru", "always", "per-layer", "25%", 5090, 4019, 4328, 0},
    {"protect_decode+lru", "always", "per-layer", "25%", 4939, 4170, 4483, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "25%", 4939, 4170, 4483, 0},
    {"belady", "always", "per-layer", "25%", 6153, 2956, 3242, 0},
    {"similar_steps", "always", "per-layer", "25%", 5143, 3966, 4269, 0},
    {"two_rate", "always", "per-layer", "25%", 5080, 4029, 4336, 0},
    {"next_visit_oracle", "always", "per-layer", "25%", 5402, 3707, 3996, 0},
    {"belady_bypass", "always", "per-layer", "25%", 6474, 2635, 2635, 0},
    {"lru", "after_n_uses", "per-layer", "25%", 4222, 4887, 2013, 0},
    {"lru", "budgeted", "per-layer", "25%", 4929, 4180, 3899, 0},
    {"lru", "least_valuable", "per-layer", "25%", 4799, 4310, 3899, 0},
    {"lru", "always", "per-layer", "50%", 6711, 2398, 2495, 0},
    {"lfu", "always", "per-layer", "50%", 6632, 2477, 2568, 0},
    {"lfu:history=resident", "always", "per-layer", "50%", 6626, 2483, 2575, 0},
    {"lfru", "always", "per-layer", "50%", 6720, 2389, 2483, 0},
    {"importance", "always", "per-layer", "50%", 6830, 2279, 2373, 0},
    {"expert_map_priority", "always", "per-layer", "50%", 6632, 2477, 2568, 0},
    {"activation_ratio", "always", "per-layer", "50%", 6760, 2349, 2438, 0},
    {"fifo", "always", "per-layer", "50%", 6421, 2688, 2786, 0},
    {"furthest_layer", "always", "per-layer", "50%", 6711, 2398, 2495, 0},
    {"gate_score", "always", "per-layer", "50%", 6594, 2515, 2610, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "50%", 6516, 2593, 2691, 0},
    {"least_stale", "always", "per-layer", "50%", 6421, 2688, 2786, 0},
    {"least_stale:order=layer", "always", "per-layer", "50%", 6421, 2688, 2786, 0},
    {"least_stale:order=last_access", "always", "per-layer", "50%", 6711, 2398, 2495, 0},
    {"popularity", "always", "per-layer", "50%", 6773, 2336, 2438, 0},
    {"protect_hot+lru", "always", "per-layer", "50%", 6661, 2448, 2546, 0},
    {"protect_decode+lru", "always", "per-layer", "50%", 6711, 2398, 2494, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "50%", 6711, 2398, 2495, 0},
    {"belady", "always", "per-layer", "50%", 7756, 1353, 1435, 0},
    {"similar_steps", "always", "per-layer", "50%", 6750, 2359, 2453, 0},
    {"two_rate", "always", "per-layer", "50%", 6734, 2375, 2468, 0},
    {"next_visit_oracle", "always", "per-layer", "50%", 6875, 2234, 2323, 0},
    {"belady_bypass", "always", "per-layer", "50%", 7859, 1250, 1250, 0},
    {"lru", "after_n_uses", "per-layer", "50%", 6289, 2820, 1188, 0},
    {"lru", "budgeted", "per-layer", "50%", 6681, 2428, 2213, 0},
    {"lru", "least_valuable", "per-layer", "50%", 6689, 2420, 2448, 0},
};

const std::vector<row> tiny_moe_rows{
    {"lru", "always", "shared", "12.5%", 6606, 23205, 23205, 294},
    {"lfu", "always", "shared", "12.5%", 4454, 25357, 25357, 756},
    {"lfu:history=resident", "always", "shared", "12.5%", 1178, 28633, 28633, 4974},
    {"lfru", "always", "shared", "12.5%", 4426, 25385, 25385, 2395},
    {"importance", "always", "shared", "12.5%", 6579, 23232, 23232, 605},
    {"expert_map_priority", "always", "shared", "12.5%", 4454, 25357, 25357, 756},
    {"activation_ratio", "always", "shared", "12.5%", 6556, 23255, 23255, 775},
    {"fifo", "always", "shared", "12.5%", 5144, 24667, 24667, 1295},
    {"furthest_layer", "always", "shared", "12.5%", 6673, 23138, 23138, 132},
    {"gate_score", "always", "shared", "12.5%", 4339, 25472, 25472, 739},
    {"gate_score:accumulate=ema", "always", "shared", "12.5%", 5036, 24775, 24775, 770},
    {"least_stale", "always", "shared", "12.5%", 6637, 23174, 23174, 169},
    {"least_stale:order=layer", "always", "shared", "12.5%", 6606, 23205, 23205, 294},
    {"least_stale:order=last_access", "always", "shared", "12.5%", 6606, 23205, 23205, 294},
    {"popularity", "always", "shared", "12.5%", 4815, 24996, 24996, 726},
    {"protect_hot+lru", "always", "shared", "12.5%", 942, 28869, 28869, 5695},
    {"protect_decode+lru", "always", "shared", "12.5%", 6706, 23105, 23105, 204},
    {"reserve_prefetch+lru", "always", "shared", "12.5%", 6606, 23205, 23205, 294},
    {"belady", "always", "shared", "12.5%", 13134, 16677, 16677, 111},
    {"similar_steps", "always", "shared", "12.5%", 8343, 21468, 21468, 365},
    {"two_rate", "always", "shared", "12.5%", 6724, 23087, 23087, 325},
    {"next_visit_oracle", "always", "shared", "12.5%", 10029, 19782, 19782, 116},
    {"belady_bypass", "always", "shared", "12.5%", 13639, 16172, 16172, 0},
    {"lru", "after_n_uses", "shared", "12.5%", 5009, 24802, 9272, 844},
    {"lru", "budgeted", "shared", "12.5%", 6665, 23146, 21251, 241},
    {"lru", "least_valuable", "shared", "12.5%", 6190, 23621, 19830, 882},
    {"lru", "always", "shared", "25%", 9798, 20013, 20013, 1432},
    {"lfu", "always", "shared", "25%", 8768, 21043, 21043, 666},
    {"lfu:history=resident", "always", "shared", "25%", 5922, 23889, 23889, 3386},
    {"lfru", "always", "shared", "25%", 9886, 19925, 19925, 1746},
    {"importance", "always", "shared", "25%", 12000, 17811, 17811, 450},
    {"expert_map_priority", "always", "shared", "25%", 8768, 21043, 21043, 666},
    {"activation_ratio", "always", "shared", "25%", 11772, 18039, 18039, 820},
    {"fifo", "always", "shared", "25%", 8694, 21117, 21117, 2237},
    {"furthest_layer", "always", "shared", "25%", 10819, 18992, 18992, 90},
    {"gate_score", "always", "shared", "25%", 8480, 21331, 21331, 634},
    {"gate_score:accumulate=ema", "always", "shared", "25%", 9775, 20036, 20036, 689},
    {"least_stale", "always", "shared", "25%", 10142, 19669, 19669, 162},
    {"least_stale:order=layer", "always", "shared", "25%", 9793, 20018, 20018, 528},
    {"least_stale:order=last_access", "always", "shared", "25%", 9798, 20013, 20013, 1432},
    {"popularity", "always", "shared", "25%", 9312, 20499, 20499, 662},
    {"protect_hot+lru", "always", "shared", "25%", 5880, 23931, 23931, 3878},
    {"protect_decode+lru", "always", "shared", "25%", 10170, 19641, 19641, 1074},
    {"reserve_prefetch+lru", "always", "shared", "25%", 9798, 20013, 20013, 1432},
    {"belady", "always", "shared", "25%", 18801, 11010, 11010, 56},
    {"similar_steps", "always", "shared", "25%", 13446, 16365, 16365, 233},
    {"two_rate", "always", "shared", "25%", 11823, 17988, 17988, 196},
    {"next_visit_oracle", "always", "shared", "25%", 14110, 15701, 15701, 69},
    {"belady_bypass", "always", "shared", "25%", 19039, 10772, 10772, 0},
    {"lru", "after_n_uses", "shared", "25%", 9639, 20172, 7627, 748},
    {"lru", "budgeted", "shared", "25%", 10112, 19699, 18116, 1127},
    {"lru", "least_valuable", "shared", "25%", 9732, 20079, 18896, 1754},
    {"lru", "always", "shared", "50%", 17902, 11909, 11909, 1227},
    {"lfu", "always", "shared", "50%", 16698, 13113, 13113, 494},
    {"lfu:history=resident", "always", "shared", "50%", 14424, 15387, 15387, 1997},
    {"lfru", "always", "shared", "50%", 18292, 11519, 11519, 1091},
    {"importance", "always", "shared", "50%", 20218, 9593, 9593, 247},
    {"expert_map_priority", "always", "shared", "50%", 16698, 13113, 13113, 494},
    {"activation_ratio", "always", "shared", "50%", 19917, 9894, 9894, 772},
    {"fifo", "always", "shared", "50%", 16936, 12875, 12875, 1324},
    {"furthest_layer", "always", "shared", "50%", 18276, 11535, 11535, 25},
    {"gate_score", "always", "shared", "50%", 16448, 13363, 13363, 479},
    {"gate_score:accumulate=ema", "always", "shared", "50%", 17684, 12127, 12127, 509},
    {"least_stale", "always", "shared", "50%", 16826, 12985, 12985, 131},
    {"least_stale:order=layer", "always", "shared", "50%", 16028, 13783, 13783, 1018},
    {"least_stale:order=last_access", "always", "shared", "50%", 17902, 11909, 11909, 1227},
    {"popularity", "always", "shared", "50%", 17351, 12460, 12460, 412},
    {"protect_hot+lru", "always", "shared", "50%", 14399, 15412, 15412, 2305},
    {"protect_decode+lru", "always", "shared", "50%", 18467, 11344, 11344, 700},
    {"reserve_prefetch+lru", "always", "shared", "50%", 17902, 11909, 11909, 1227},
    {"belady", "always", "shared", "50%", 24965, 4846, 4846, 16},
    {"similar_steps", "always", "shared", "50%", 20673, 9138, 9138, 246},
    {"two_rate", "always", "shared", "50%", 19412, 10399, 10399, 257},
    {"next_visit_oracle", "always", "shared", "50%", 20698, 9113, 9113, 0},
    {"belady_bypass", "always", "shared", "50%", 25033, 4778, 4778, 0},
    {"lru", "after_n_uses", "shared", "50%", 18469, 11342, 4456, 405},
    {"lru", "budgeted", "shared", "50%", 18348, 11463, 10419, 773},
    {"lru", "least_valuable", "shared", "50%", 17918, 11893, 11804, 1227},
    {"lru", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"lfu", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"lfu:history=resident", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"lfru", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"importance", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"expert_map_priority", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"activation_ratio", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"fifo", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"furthest_layer", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"gate_score", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"least_stale", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"least_stale:order=layer", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"least_stale:order=last_access", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"popularity", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"protect_hot+lru", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"protect_decode+lru", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"belady", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"similar_steps", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"two_rate", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"next_visit_oracle", "always", "per-layer", "12.5%", 6914, 22897, 25556, 0},
    {"belady_bypass", "always", "per-layer", "12.5%", 12943, 16868, 16868, 0},
    {"lru", "after_n_uses", "per-layer", "12.5%", 5847, 23964, 9513, 0},
    {"lru", "budgeted", "per-layer", "12.5%", 6914, 22897, 21449, 0},
    {"lru", "least_valuable", "per-layer", "12.5%", 7216, 22595, 18881, 0},
    {"lru", "always", "per-layer", "25%", 11246, 18565, 19783, 0},
    {"lfu", "always", "per-layer", "25%", 11386, 18425, 19631, 0},
    {"lfu:history=resident", "always", "per-layer", "25%", 12210, 17601, 18793, 0},
    {"lfru", "always", "per-layer", "25%", 11635, 18176, 19394, 0},
    {"importance", "always", "per-layer", "25%", 12723, 17088, 18242, 0},
    {"expert_map_priority", "always", "per-layer", "25%", 11386, 18425, 19631, 0},
    {"activation_ratio", "always", "per-layer", "25%", 12849, 16962, 18101, 0},
    {"fifo", "always", "per-layer", "25%", 11016, 18795, 20005, 0},
    {"furthest_layer", "always", "per-layer", "25%", 11246, 18565, 19783, 0},
    {"gate_score", "always", "per-layer", "25%", 11293, 18518, 19712, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "25%", 11859, 17952, 19153, 0},
    {"least_stale", "always", "per-layer", "25%", 11016, 18795, 20005, 0},
    {"least_stale:order=layer", "always", "per-layer", "25%", 11016, 18795, 20005, 0},
    {"least_stale:order=last_access", "always", "per-layer", "25%", 11246, 18565, 19783, 0},
    {"popularity", "always", "per-layer", "25%", 11446, 18365, 19554, 0},
    {"protect_hot+lru", "always", "per-layer", "25%", 11691, 18120, 19319, 0},
    {"protect_decode+lru", "always", "per-layer", "25%", 11248, 18563, 19769, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "25%", 11246, 18565, 19783, 0},
    {"belady", "always", "per-layer", "25%", 16500, 13311, 14351, 0},
    {"similar_steps", "always", "per-layer", "25%", 13243, 16568, 17766, 0},
    {"two_rate", "always", "per-layer", "25%", 11968, 17843, 19045, 0},
    {"next_visit_oracle", "always", "per-layer", "25%", 13867, 15944, 16995, 0},
    {"belady_bypass", "always", "per-layer", "25%", 18466, 11345, 11345, 0},
    {"lru", "after_n_uses", "per-layer", "25%", 10485, 19326, 7682, 0},
    {"lru", "budgeted", "per-layer", "25%", 11216, 18595, 17349, 0},
    {"lru", "least_valuable", "per-layer", "25%", 11855, 17956, 15672, 0},
    {"lru", "always", "per-layer", "50%", 19155, 10656, 11047, 0},
    {"lfu", "always", "per-layer", "50%", 18913, 10898, 11302, 0},
    {"lfu:history=resident", "always", "per-layer", "50%", 20402, 9409, 9788, 0},
    {"lfru", "always", "per-layer", "50%", 19417, 10394, 10797, 0},
    {"importance", "always", "per-layer", "50%", 20721, 9090, 9472, 0},
    {"expert_map_priority", "always", "per-layer", "50%", 18913, 10898, 11302, 0},
    {"activation_ratio", "always", "per-layer", "50%", 20760, 9051, 9430, 0},
    {"fifo", "always", "per-layer", "50%", 18373, 11438, 11833, 0},
    {"furthest_layer", "always", "per-layer", "50%", 19155, 10656, 11047, 0},
    {"gate_score", "always", "per-layer", "50%", 18740, 11071, 11472, 0},
    {"gate_score:accumulate=ema", "always", "per-layer", "50%", 19449, 10362, 10754, 0},
    {"least_stale", "always", "per-layer", "50%", 18373, 11438, 11833, 0},
    {"least_stale:order=layer", "always", "per-layer", "50%", 18373, 11438, 11833, 0},
    {"least_stale:order=last_access", "always", "per-layer", "50%", 19155, 10656, 11047, 0},
    {"popularity", "always", "per-layer", "50%", 19216, 10595, 10980, 0},
    {"protect_hot+lru", "always", "per-layer", "50%", 20043, 9768, 10141, 0},
    {"protect_decode+lru", "always", "per-layer", "50%", 19163, 10648, 11037, 0},
    {"reserve_prefetch+lru", "always", "per-layer", "50%", 19155, 10656, 11047, 0},
    {"belady", "always", "per-layer", "50%", 24029, 5782, 6085, 0},
    {"similar_steps", "always", "per-layer", "50%", 20834, 8977, 9359, 0},
    {"two_rate", "always", "per-layer", "50%", 19750, 10061, 10448, 0},
    {"next_visit_oracle", "always", "per-layer", "50%", 20703, 9108, 9442, 0},
    {"belady_bypass", "always", "per-layer", "50%", 24655, 5156, 5156, 0},
    {"lru", "after_n_uses", "per-layer", "50%", 18796, 11015, 4437, 0},
    {"lru", "budgeted", "per-layer", "50%", 19087, 10724, 9930, 0},
    {"lru", "least_valuable", "per-layer", "50%", 19350, 10461, 10270, 0},
};
// clang-format on

TEST(seeded_counts, of_a_synthetic_trace) { expect_rows(seeded(), seeded_rows); }

TEST(seeded_counts, of_the_committed_tiny_moe_routing) { expect_rows(tiny_moe(), tiny_moe_rows); }

TEST(seeded_counts, are_plausible) {
  expect_plausible(seeded_rows, visit_sequence(seeded()).accesses());
  expect_plausible(tiny_moe_rows, visit_sequence(tiny_moe()).accesses());
}

TEST(seeded_counts, cover_every_policy_that_there_is) {
  for (const auto* rows : {&seeded_rows, &tiny_moe_rows}) {
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(*rows, [&](const row& r) {
        const std::string eviction = r.eviction;
        return eviction == name || r.admission == name || eviction.starts_with(name + '+');
      });
    };
    for (const auto& name : support::plain_evictions()) EXPECT_TRUE(has(name)) << name;
    for (const auto& name : lab::known_policies().decorators.names())
      EXPECT_TRUE(has(name)) << name;
    for (const auto& name : lab::known_policies().admission.names()) EXPECT_TRUE(has(name)) << name;
  }
}

TEST(seeded_counts, traces_are_those_that_the_rows_were_taken_from) {
  const visit_sequence synthetic(seeded());
  EXPECT_EQ(synthetic.accesses(), 9109U);
  const visit_sequence routed(tiny_moe());
  EXPECT_EQ(routed.accesses(), 29811U);
}

}  // namespace
}  // namespace seeded_counts_test
