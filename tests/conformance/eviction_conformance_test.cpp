// SPDX-License-Identifier: Apache-2.0
// Every eviction policy joins the suite here, with a naive form of its rule.

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/activation_ratio.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/expert_map_priority.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/importance.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lhu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/next_visit_oracle.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/eviction/reserve_prefetch.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/testing/eviction_suite.hpp"
#include "naive_policies.hpp"

namespace hotset::suites::eviction_conformance_test {
namespace {

using reference::ranking;

std::vector<double> profile_of(const geometry& shape) {
  std::vector<double> out(shape.keys());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<double>(k * 7 % 5);
  return out;
}

std::shared_ptr<const future_uses> future_of(const geometry& shape, const script& visits) {
  std::vector<future_uses::event> events;
  for (std::size_t n = 0; n < visits.size(); ++n)
    for (const auto e : visits[n].experts) events.push_back({n, {visits[n].layer, e}});
  auto made = future_uses::create(shape, events);
  return std::make_shared<const future_uses>(*std::move(made));
}

/// A policy whose naive form needs no parameters.
template <class P, auto Rule>
struct ruled : plain<P> {
  static ranking rule() { return Rule(); }
};
using lru_entry = ruled<lru, reference::by_recency>;
using fifo_entry = ruled<fifo, reference::by_arrival>;
using lfu_entry = ruled<lfu, reference::by_whole_count>;
/// At one precision, lhu is lfu.
using lhu_entry = ruled<lhu, reference::by_whole_count>;
struct lfu_resident_entry : ruled<lfu, reference::by_resident_count> {
  static lfu::config options(const geometry&, const script&) {
    return {.history = lfu_history::resident};
  }
};
struct lfu_ageing_entry : ruled<lfu, reference::by_whole_count> {
  static lfu::config options(const geometry&, const script&) { return {.ageing_period = 17}; }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ageing_period = 17; }
};
struct lfu_resident_ageing_entry : ruled<lfu, reference::by_resident_count> {
  static lfu::config options(const geometry&, const script&) {
    return {.history = lfu_history::resident, .ageing_period = 23};
  }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ageing_period = 23; }
};
using lfru_entry = ruled<lfru, reference::by_decayed_frequency>;
struct lfru_fast_entry : ruled<lfru, reference::by_decayed_frequency> {
  static lfru::config options(const geometry&, const script&) { return {.decay = 0.75}; }
  static void prepare(reference::state& s, const geometry&, const script&) { s.decay = 0.75; }
};
using gate_score_entry = ruled<gate_score, reference::by_gate>;
struct gate_score_ema_entry : ruled<gate_score, reference::by_gate> {
  static gate_score::config options(const geometry&, const script&) {
    return {.accumulate = gate_accumulate::ema, .decay = 0.5};
  }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ema = 0.5; }
};
struct popularity_entry : ruled<popularity, reference::by_profile> {
  static popularity::config options(const geometry& shape, const script&) {
    return {.profile = {profile_of(shape), "made up"}};
  }
  static void prepare(reference::state& s, const geometry& shape, const script&) {
    const auto profile = profile_of(shape);
    for (std::size_t k = 0; k < profile.size(); ++k) s.profile[shape.key(k)] = profile[k];
  }
};
using furthest_layer_entry = ruled<furthest_layer, reference::by_layer_distance>;
struct least_stale_entry : plain<least_stale> {
  static ranking rule() { return reference::by_staleness(); }
};
struct least_stale_layer_entry : ruled<least_stale, reference::by_staleness_and_layer> {
  static least_stale::config options(const geometry&, const script&) {
    return {.order = stale_order::layer};
  }
};
struct least_stale_stale_entry : plain<least_stale> {
  static least_stale::config options(const geometry&, const script&) {
    return {.order = stale_order::stale};
  }
  static ranking rule() { return reference::by_staleness(true); }
};
struct least_stale_access_entry : ruled<least_stale, reference::by_epoch> {
  static least_stale::config options(const geometry&, const script&) {
    return {.order = stale_order::last_access};
  }
};
struct belady_entry : ruled<belady, reference::by_next_use> {
  static belady::config options(const geometry& shape, const script& visits) {
    return {.future = future_of(shape, visits)};
  }
  static void prepare(reference::state& s, const geometry&, const script& visits) {
    for (std::size_t n = 0; n < visits.size(); ++n)
      for (const auto e : visits[n].experts) s.future[{visits[n].layer, e}].insert(n);
  }
};
struct next_visit_oracle_entry : ruled<next_visit_oracle, reference::by_next_visit> {
  static next_visit_oracle::config options(const geometry& shape, const script& visits) {
    return {.future = future_of(shape, visits)};
  }
  static void prepare(reference::state& s, const geometry& shape, const script& visits) {
    belady_entry::prepare(s, shape, visits);
    for (std::size_t n = 0; n < visits.size(); ++n) s.visits_to_come[visits[n].layer].insert(n);
  }
};
/// The naive form of similar_steps is a complete cache: tests/eviction/similar_steps_test.cpp.
struct similar_steps_entry : plain<similar_steps> {};
struct similar_steps_few_entry : plain<similar_steps> {
  static similar_steps::config options(const geometry&, const script&) {
    return {.rows = 256, .sequences = 1, .matches = 2, .horizon = 12};
  }
};
struct two_rate_entry : plain<two_rate> {};
struct importance_entry : plain<importance> {
  static ranking rule() { return reference::by_importance(0.6, 0.98, 256); }
};
struct importance_short_entry : plain<importance> {
  static importance::config options(const geometry&, const script&) {
    return {.alpha = 0.25, .gamma = 0.5, .window = 3};
  }
  static ranking rule() { return reference::by_importance(0.25, 0.5, 3); }
};
struct importance_last_token_entry : plain<importance> {
  static importance::config options(const geometry&, const script&) {
    return {.alpha = 1.0, .gamma = 0.0};
  }
  static ranking rule() { return reference::by_importance(1.0, 0.0, 256); }
};
using activation_ratio_entry = ruled<activation_ratio, reference::by_activation_ratio>;
/// Sequences of a script do not return: one row is enough.
struct activation_ratio_one_entry : activation_ratio_entry {
  static activation_ratio::config options(const geometry&, const script&) {
    return {.requests = 1};
  }
};
struct expert_map_priority_entry : plain<expert_map_priority> {
  static ranking rule() { return reference::by_expected_uses(false); }
};
struct expert_map_priority_resident_entry : plain<expert_map_priority> {
  static expert_map_priority::config options(const geometry&, const script&) {
    return {.freq = use_history::resident};
  }
  static ranking rule() { return reference::by_expected_uses(true); }
};

// Decorators, also nested.
template <class Inner>
struct hot_entry : Inner {
  using policy = protect_hot<typename Inner::policy>;
  static typename policy::config options(const geometry& shape, const script& visits) {
    return {.uses = 3, .inner = Inner::options(shape, visits)};
  }
  static ranking rule() { return reference::sparing_hot(3, Inner::rule()); }
};
template <class Inner>
struct decode_entry : Inner {
  using policy = protect_decode<typename Inner::policy>;
  static typename policy::config options(const geometry& shape, const script& visits) {
    return {.window = 2, .inner = Inner::options(shape, visits)};
  }
  static ranking rule() { return reference::sparing_decode(2, Inner::rule()); }
};
template <class Inner>
struct reserve_entry : Inner {
  using policy = reserve_prefetch<typename Inner::policy>;
  static typename policy::config options(const geometry& shape, const script& visits) {
    return {.share = 0.1, .inner = Inner::options(shape, visits)};
  }
  static ranking rule() { return reference::reserving(0.1, Inner::rule()); }
};
// A type-erased holder of each policy.
template <class Inner>
struct any_entry : Inner {
  using policy = any_eviction_policy;
  static any_eviction_policy::config options(const geometry& shape, const script& visits) {
    return any_eviction_policy::holding<typename Inner::policy>(Inner::options(shape, visits));
  }
};

using entries = testing::Types<
    lru_entry, fifo_entry, lfu_entry, lhu_entry, lfu_resident_entry, lfu_ageing_entry,
    lfu_resident_ageing_entry, lfru_entry, lfru_fast_entry, gate_score_entry, gate_score_ema_entry,
    popularity_entry, furthest_layer_entry, least_stale_entry, least_stale_layer_entry,
    least_stale_stale_entry, least_stale_access_entry, belady_entry, next_visit_oracle_entry,
    importance_entry, importance_short_entry, importance_last_token_entry,
    expert_map_priority_entry, expert_map_priority_resident_entry, hot_entry<importance_entry>,
    decode_entry<expert_map_priority_entry>, any_entry<hot_entry<importance_entry>>,
    hot_entry<lru_entry>, hot_entry<lfu_entry>, decode_entry<lru_entry>,
    decode_entry<least_stale_entry>, hot_entry<decode_entry<lru_entry>>,
    decode_entry<hot_entry<gate_score_entry>>, any_entry<lru_entry>, any_entry<least_stale_entry>,
    any_entry<belady_entry>, any_entry<gate_score_entry>,
    any_entry<hot_entry<decode_entry<lfru_entry>>>, activation_ratio_entry,
    activation_ratio_one_entry, hot_entry<activation_ratio_entry>,
    any_entry<activation_ratio_entry>, reserve_entry<lru_entry>, reserve_entry<least_stale_entry>,
    reserve_entry<hot_entry<gate_score_entry>>, decode_entry<reserve_entry<lfu_entry>>,
    any_entry<reserve_entry<activation_ratio_entry>>, any_entry<next_visit_oracle_entry>,
    hot_entry<next_visit_oracle_entry>, similar_steps_entry, similar_steps_few_entry,
    two_rate_entry, any_entry<similar_steps_entry>, any_entry<two_rate_entry>>;

}  // namespace
}  // namespace hotset::suites::eviction_conformance_test

HOTSET_EVICTION_CONFORMANCE(library, hotset::suites::eviction_conformance_test::entries);
