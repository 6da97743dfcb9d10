// SPDX-License-Identifier: Apache-2.0
// Policies as a user writes them: each parameter is read by name; a value out of range is refused with the policy's
// own message.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/registry/policy_registry.hpp"

namespace policy_texts_test {
namespace {

using namespace hotset;

enum class kind : std::uint8_t { eviction, admission, prefetch, miss, routing };

struct text_case {
  kind of;
  std::string text;
  std::string refused{};  ///< none: accepted
};
void PrintTo(const text_case& c, std::ostream* out) { *out << c.text; }

std::string why(const text_case& c) {
  const auto reason = [](const auto& made) { return made ? std::string() : made.error().message; };
  const auto& known = policies();
  switch (c.of) {
    case kind::eviction: return reason(known.make_eviction(c.text));
    case kind::admission: return reason(known.admission.make(c.text));
    case kind::prefetch: return reason(known.prefetch.make(c.text));
    case kind::miss: return reason(known.miss.make(c.text));
    case kind::routing: return reason(known.routing.make(c.text));
  }
  return "no kind";
}

class policy_text : public testing::TestWithParam<text_case> {};

TEST_P(policy_text, is_accepted_or_refused_in_its_own_words) {
  EXPECT_EQ(why(GetParam()), GetParam().refused);
}

using enum kind;
INSTANTIATE_TEST_SUITE_P(
    of_every_policy, policy_text,
    testing::ValuesIn(std::vector<text_case>{
        {eviction, "lru"},
        {eviction, "lru:k=2", "lru: unknown parameter 'k', accepted: none"},
        {eviction, "lfu:history=resident:ageing_period=64"},
        {eviction, "lfu:history=none", "lfu: history 'none'; accepted: whole, resident"},
        {eviction, "lfru:decay=0.99"},
        {eviction, "lfru:decay=0", "lfru decay = 0.000000, accepted: (0, 1]"},
        {eviction, "lfru:decay=1.5", "lfru decay = 1.500000, accepted: (0, 1]"},
        {eviction, "activation_ratio:requests=64"},
        {eviction, "activation_ratio:requests=0",
         "activation_ratio requests = 0, accepted: 1..4096"},
        {eviction, "activation_ratio:requests=4097",
         "activation_ratio requests = 4097, accepted: 1..4096"},
        {eviction, "expert_map_priority:freq=resident"},
        {eviction, "gate_score:accumulate=ema:decay=0.5"},
        {eviction, "gate_score:decay=1", "gate_score decay = 1.000000, accepted: [0, 1)"},
        {eviction, "gate_score:decay=-0.1", "gate_score decay = -0.100000, accepted: [0, 1)"},
        {eviction, "importance:alpha=0.3:gamma=0.9:window=64"},
        {eviction, "importance:alpha=2", "importance alpha = 2.000000, accepted: 0..1"},
        {eviction, "importance:gamma=-1", "hotness gamma = -1.000000, accepted: 0..1"},
        {eviction, "importance:window=0", "hotness window = 0, accepted: 1..65536"},
        {eviction, "least_stale:order=layer"},
        {eviction, "least_stale:order=right",
         "least_stale: order 'right'; accepted: left, layer, last_access, stale"},
        {eviction, "protect_hot:uses=0+lru", "protect_hot uses = 0, accepted: 1 or more"},
        {eviction, "protect_decode:window=8+lru"},
        {eviction, "protect_hot+gate_score:decay=2",
         "gate_score decay = 2.000000, accepted: [0, 1)"},
        {eviction, "reserve_prefetch:share=0.35+lru"},
        {eviction, "reserve_prefetch:share=0+lru",
         "reserve_prefetch share = 0.000000, accepted: more than 0, less than 1"},
        {eviction, "reserve_prefetch:share=1+lru",
         "reserve_prefetch share = 1.000000, accepted: more than 0, less than 1"},
        {admission, "after_n_uses:uses=2:after_eviction=4:window=3"},
        {admission, "after_n_uses:uses=0", "after_n_uses uses = 0, accepted: 1 or more"},
        {admission, "after_n_uses:uses=5:after_eviction=4",
         "after_n_uses after_eviction = 4, accepted: uses (5) or more"},
        {admission, "after_n_uses:uses=7"},
        {admission, "budgeted:fills_per_visit=0"},
        {admission, "least_valuable:streams=2:rows=0"},
        {admission, "least_valuable:streams=0", "least_valuable streams = 0, accepted: 1 or more"},
        {miss, "compute_on_host:split=bandwidth_matched:fetch_cost=2:host_cost=3"},
        {miss, "compute_on_host:fetch_cost=0",
         "compute_on_host fetch_cost = 0.000000, accepted: finite, above 0"},
        {miss, "compute_on_host:host_cost=-1",
         "compute_on_host host_cost = -1.000000, accepted: finite, above 0"},
        {miss, "drop:keep=3:threshold=0.05"},
        {miss, "drop:keep=0", "drop keep = 0, accepted: 1 or more"},
        {miss, "drop:threshold=0",
         "drop threshold = 0.000000, accepted: more than 0 (a share of a token's gate weight)"},
        {miss, "drop_cascade:keep=2:percentile=60:window=16777216"},
        {miss, "drop_cascade:keep=0", "drop_cascade keep = 0, accepted: 1 or more"},
        {miss, "drop_cascade:percentile=-1",
         "drop_cascade percentile = -1.000000, accepted: (0, 100)"},
        {miss, "drop_cascade:window=0", "drop_cascade window = 0, accepted: 1..16777216"},
        {miss, "fetch_priority:percentile=100",
         "fetch_priority percentile = 100.000000, accepted: (0, 100)"},
        {miss, "fetch_priority:percentile=0",
         "fetch_priority percentile = 0.000000, accepted: (0, 100)"},
        {miss, "fetch_priority:window=16777217",
         "fetch_priority window = 16777217, accepted: 1..16777216"},
        {miss, "substitute:tolerance=0"},
        {miss, "substitute:tolerance=-0.5",
         "substitute tolerance = -0.500000, accepted: 0 or more"},
        {routing, "cache_aware:lambda=0:average=value"},
        {routing, "cache_aware:lambda=-1", "cache_aware lambda = -1.000000, accepted: 0 or more"},
        {routing, "budget_top_k:keep_hits=true"},
        {routing, "budget_top_k:keep_hits=1", "budget_top_k: keep_hits '1'; accepted: false, true"},
        {prefetch, "no_prefetch"},
        {prefetch, "previous_step"},
        {prefetch, "cumulative_probability:distance=0",
         "cumulative_probability distance = 0, accepted: 1 or more"},
        {prefetch, "next_layer_top_k:overfetch=2:depth=9:from=3"},
        {prefetch, "next_layer_top_k:overfetch=0.5",
         "next_layer_top_k overfetch = 0.500000, accepted: finite, 1 or more"},
        {prefetch, "next_layer_top_k:depth=0", "next_layer_top_k depth = 0, accepted: 1 or more"},
        {prefetch, "next_layer_top_k:depth=2:from=3",
         "next_layer_top_k from = 3, accepted: 1..2 (depth)"},
        {prefetch, "noisy_oracle:precision=0.01:recall=0:seed=7"},
        {prefetch, "noisy_oracle:precision=0",
         "noisy_oracle precision = 0.000000, accepted: above 0, at most 1"},
        {prefetch, "noisy_oracle:precision=1.5",
         "noisy_oracle precision = 1.500000, accepted: above 0, at most 1"},
        {prefetch, "noisy_oracle:recall=1.5", "noisy_oracle recall = 1.500000, accepted: 0..1"},
        {prefetch, "noisy_oracle:recall=-0.5", "noisy_oracle recall = -0.500000, accepted: 0..1"},
        {prefetch, "popular:count=4"},
        {prefetch, "score_threshold:percentile=60:window=9"},
        {prefetch, "score_threshold:percentile=0",
         "score_threshold percentile = 0.000000, accepted: above 0, below 100"},
        {prefetch, "score_threshold:percentile=100",
         "score_threshold percentile = 100.000000, accepted: above 0, below 100"},
        {prefetch, "score_threshold:window=0",
         "score_threshold window = 0, accepted: 1..268435456"},
        {prefetch, "score_threshold:window=268435457",
         "score_threshold window = 268435457, accepted: 1..268435456"},
    }));

}  // namespace
}  // namespace policy_texts_test
