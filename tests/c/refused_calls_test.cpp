// SPDX-License-Identifier: Apache-2.0
// A refused call changes nothing: neither the handle, nor the open visit, nor the caller's output arrays. Two handles
// make the same calls; one also makes every call that its state forbids.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "random_source.hpp"
#include "trace_samples.hpp"

namespace hotset::refused_calls_test {
namespace {

using support::open;
using trace_samples::read_all;

constexpr std::int32_t layers = 3;
constexpr std::int32_t experts = 16;
constexpr std::int32_t top_k = 2;
constexpr std::int32_t max_tokens = 4;
constexpr std::size_t stride = 5;

template <class Options>
Options model() {
  return support::options_of<Options>(layers, experts, top_k);
}

/// Output arrays of a call, filled with a pattern.
struct outputs {
  hotset_visit visit;
  hotset_stats stats;
  hotset_key keys[4];
  hotset_request requests[4];
  std::int32_t ids[max_tokens * top_k];
  std::uint64_t units[2];
  const std::int32_t* row;
  std::size_t count;
  std::uint64_t number;
  std::int32_t slot;
  double real;

  outputs() {
    std::memset(static_cast<void*>(this), 0x5a, sizeof *this);
    visit.struct_size = sizeof visit;
    stats.struct_size = sizeof stats;
  }
};

/// A call that must be refused.
struct refusal {
  const char* what;
  std::function<hotset_status(outputs&)> call;
  hotset_status code = HOTSET_INVALID_ARGUMENT;
};
void expect_refused(const std::vector<refusal>& all) {
  for (const auto& each : all) {
    const outputs before;
    outputs after;
    std::memcpy(static_cast<void*>(&after), &before, sizeof after);  // compares the padding too
    EXPECT_EQ(each.call(after), each.code) << each.what << ": " << hotset_last_error();
    EXPECT_EQ(std::memcmp(&before, &after, sizeof after), 0) << each.what << " has written";
  }
}

/// Rows with gaps, so that a call has to gather them.
struct strided_visit {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  hotset_view view{};

  strided_visit(support::random_source& random, std::int32_t layer, std::uint64_t step,
                std::size_t tokens = max_tokens)
      : ids(tokens * stride, -9), weights(tokens * stride, 9.0F) {
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t k = 0; k < top_k; ++k) {
        ids[t * stride + k] = random.id_below(experts);
        weights[t * stride + k] = static_cast<float>(random.below(100)) / 100;
      }
    view.struct_size = sizeof view;
    view.layer = layer;
    view.step = step;
    view.tokens = tokens;
    view.experts = ids.data();
    view.experts_stride = stride;
    view.weights = weights.data();
    view.weights_stride = stride;
  }
};

/// Two handles with the same options: only one of them also gets calls that it must refuse.
template <class Options>
struct twins {
  explicit twins(const Options& how) : first(open(how)), second(open(how)) {}
  decltype(open(Options{})) first, second;
  decltype(first.get()) disturbed = first.get(), same = second.get();
};

/// Calls with views that every handle refuses.
template <class Call>
std::vector<refusal> spoilt_views(const strided_visit& of, Call call) {
  std::vector<refusal> out;
  const auto add = [&](const char* what, hotset_status code, auto spoil) {
    auto view = of.view;
    spoil(view);
    out.push_back({what, [=](auto& o) { return call(view, o); }, code});
  };
  add("struct_size", HOTSET_INVALID_ARGUMENT, [](auto& v) { v.struct_size = 3; });
  add("struct_size beyond any", HOTSET_INVALID_ARGUMENT,
      [](auto& v) { v.struct_size = std::size_t{1} << 30U; });
  add("layer", HOTSET_INVALID_VISIT, [](auto& v) { v.layer = layers; });
  add("layer below", HOTSET_INVALID_VISIT, [](auto& v) { v.layer = -2; });
  add("kind", HOTSET_INVALID_VISIT, [](auto& v) { v.kind = 3; });
  add("tokens", HOTSET_VISIT_TOO_LARGE, [](auto& v) { v.tokens = max_tokens + 1; });
  add("experts", HOTSET_INVALID_VISIT, [](auto& v) { v.experts = nullptr; });
  add("stride", HOTSET_INVALID_VISIT, [](auto& v) { v.experts_stride = 1; });
  add("weights_stride", HOTSET_INVALID_VISIT, [](auto& v) { v.weights_stride = 1; });
  return out;
}

enum class state { idle, open, unfinished };

/// Pager calls that are refused in every state.
std::vector<refusal> always_refused(hotset_pager* p, const strided_visit& other) {
  std::vector<refusal> out;
  const auto add = [&](const char* what, std::function<hotset_status(outputs&)> call) {
    out.push_back({what, std::move(call)});
  };
  static const hotset_request far_request{{layers, 0}, 0, 1.0F};
  static const hotset_key far_key{0, experts};
  static const float likely = 1.0F;
  static const std::vector<hotset_request> many(layers * experts + 1);
  const hotset_view view = other.view;
  add("plan view", [=](auto& o) { return hotset_plan(p, nullptr, &o.visit); });
  add("plan visit", [=](auto&) { return hotset_plan(p, &view, nullptr); });
  add("plan visit size", [=](auto& o) {
    hotset_visit small = o.visit;
    small.struct_size = 8;
    return hotset_plan(p, &view, &small);
  });
  add("route view", [=](auto& o) { return hotset_route(p, nullptr, o.ids); });
  add("route experts", [=](auto&) { return hotset_route(p, &view, nullptr); });
  add("plan_next visit", [=](auto&) { return hotset_plan_next(p, nullptr); });
  add("serve view", [=](auto&) { return hotset_serve(p, nullptr, nullptr); });
  add("serve callbacks", [=](auto&) { return hotset_serve(p, &view, nullptr); });
  add("row", [=](auto& o) { return hotset_row(p, layers, &o.row, &o.count); });
  add("row null", [=](auto& o) { return hotset_row(p, 0, nullptr, &o.count); });
  add("row experts null", [=](auto& o) { return hotset_row(p, 0, &o.row, nullptr); });
  add("row_version", [=](auto& o) { return hotset_row_version(p, -1, &o.number); });
  add("row_version null", [=](auto&) { return hotset_row_version(p, 0, nullptr); });
  add("locate", [=](auto& o) { return hotset_locate(p, far_key, &o.slot); });
  add("locate null", [=](auto&) { return hotset_locate(p, {0, 0}, nullptr); });
  add("precision", [=](auto& o) { return hotset_precision(p, -1, &o.slot); });
  add("precision null", [=](auto&) { return hotset_precision(p, 0, nullptr); });
  add("pin", [=](auto& o) { return hotset_pin(p, 1 << 20, &o.number); });
  add("pin null", [=](auto&) { return hotset_pin(p, 0, nullptr); });
  add("unpin", [=](auto&) { return hotset_unpin(p, ~std::uint64_t{0}, 7); });
  add("prefetch key",
      [=](auto& o) { return hotset_prefetch(p, 0, 0, &far_request, 1, 1, &o.visit, &o.count); });
  add("prefetch count", [=](auto& o) {
    return hotset_prefetch(p, 0, 0, many.data(), many.size(), 1, &o.visit, &o.count);
  });
  add("prefetch layer", [=](auto& o) {
    return hotset_prefetch(p, layers, 0, many.data(), 1, 1, &o.visit, &o.count);
  });
  add("prefetch null",
      [=](auto& o) { return hotset_prefetch(p, 0, 0, nullptr, 1, 1, &o.visit, &o.count); });
  add("prefetch visit",
      [=](auto& o) { return hotset_prefetch(p, 0, 0, many.data(), 1, 1, nullptr, &o.count); });
  add("expect layer", [=](auto&) { return hotset_expect(p, layers, 0, &likely, 0, 1); });
  add("expect tokens", [=](auto&) { return hotset_expect(p, 0, 0, &likely, max_tokens + 1, 1); });
  add("expect depth", [=](auto&) { return hotset_expect(p, 0, 0, &likely, 0, 0); });
  add("expect null", [=](auto&) { return hotset_expect(p, 0, 0, nullptr, 1, 1); });
  add("arrived", [=](auto&) { return hotset_arrived(p, -1, 0); });
  add("cancelled", [=](auto&) { return hotset_cancelled(p, 1 << 20, 0); });
  add("failed", [=](auto&) { return hotset_failed(p, -5, 0); });
  add("invalidate", [=](auto&) { return hotset_invalidate(p, far_key); });
  add("invalidate layer", [=](auto&) { return hotset_invalidate(p, {layers, -1}); });
  add("set_quota layer", [=](auto&) { return hotset_set_quota(p, -1, 4); });
  add("quota", [=](auto& o) { return hotset_quota(p, layers, &o.slot); });
  add("quota null", [=](auto&) { return hotset_quota(p, 0, nullptr); });
  add("residents keys", [=](auto& o) { return hotset_residents(p, nullptr, 1, &o.count); });
  add("residents count", [=](auto& o) { return hotset_residents(p, o.keys, 4, nullptr); });
  add("plan_warm key",
      [=](auto& o) { return hotset_plan_warm(p, &far_key, 1, &o.visit, &o.count); });
  add("plan_warm null",
      [=](auto& o) { return hotset_plan_warm(p, nullptr, 1, &o.visit, &o.count); });
  add("plan_warm visit",
      [=](auto& o) { return hotset_plan_warm(p, &far_key, 1, nullptr, &o.count); });
  add("prefetch consumed",
      [=](auto& o) { return hotset_prefetch(p, 0, 0, many.data(), 1, 1, &o.visit, nullptr); });
  add("plan_warm consumed",
      [=](auto& o) { return hotset_plan_warm(p, &far_key, 1, &o.visit, nullptr); });
  add("stats null", [=](auto&) { return hotset_get_stats(p, nullptr); });
  add("decision_hash null", [=](auto&) { return hotset_decision_hash(p, nullptr); });
  return out;
}
/// Pager calls that are refused in this state, although the arguments are valid.
std::vector<refusal> refused_in(state now, hotset_pager* p, const strided_visit& other) {
  const hotset_view view = other.view;
  static const hotset_callbacks nothing{sizeof nothing, nullptr, nullptr, nullptr};
  static const hotset_key key{0, 0}, whole_layer{0, -1};
  static const hotset_request request{{0, 0}, 0, 1.0F};
  static const std::uint8_t begun[64]{};
  const auto plan = [=](auto& o) { return hotset_plan(p, &view, &o.visit); };
  const auto route = [=](auto& o) { return hotset_route(p, &view, o.ids); };
  const auto next = [=](auto& o) { return hotset_plan_next(p, &o.visit); };
  const auto serve = [=](auto&) { return hotset_serve(p, &view, &nothing); };
  const auto warm = [=](auto& o) { return hotset_plan_warm(p, &key, 1, &o.visit, &o.count); };
  const auto prefetch = [=](auto& o) {
    return hotset_prefetch(p, 0, 0, &request, 1, 1, &o.visit, &o.count);
  };
  const auto quota = [=](auto&) { return hotset_set_quota(p, 0, 4); };
  const auto commit = [=](auto&) { return hotset_commit(p); };
  const auto abort = [=](auto&) { return hotset_abort(p, nullptr, 0); };
  if (now == state::open)
    return {{"plan", plan, HOTSET_PLAN_OPEN},
            {"route", route, HOTSET_PLAN_OPEN},
            {"plan_next", next, HOTSET_PLAN_OPEN},
            {"serve", serve, HOTSET_PLAN_OPEN},
            {"plan_warm", warm, HOTSET_PLAN_OPEN},
            {"set_quota", quota, HOTSET_PLAN_OPEN},
            {"abandon", [=](auto&) { return hotset_abandon(p); }, HOTSET_PLAN_OPEN},
            {"invalidate", [=](auto&) { return hotset_invalidate(p, key); }, HOTSET_PLAN_OPEN},
            {"invalidate all", [=](auto&) { return hotset_invalidate(p, whole_layer); },
             HOTSET_PLAN_OPEN},
            {"prefetch", prefetch, HOTSET_PLAN_OPEN},
            {"abort", [=](auto&) { return hotset_abort(p, begun, 63); }}};
  if (now == state::unfinished)
    return {{"route", route, HOTSET_VISIT_UNFINISHED},
            {"plan", plan, HOTSET_VISIT_UNFINISHED},
            {"serve", serve, HOTSET_VISIT_UNFINISHED},
            {"plan_warm", warm, HOTSET_VISIT_UNFINISHED},
            {"set_quota", quota, HOTSET_VISIT_UNFINISHED},
            {"commit", commit, HOTSET_NO_PLAN},
            {"abort", abort, HOTSET_NO_PLAN}};
  return {{"plan_next", next, HOTSET_NO_PLAN},
          {"commit", commit, HOTSET_NO_PLAN},
          {"abort", abort, HOTSET_NO_PLAN},
          {"set_quota", [=](auto&) { return hotset_set_quota(p, 0, 99); }}};
}
void refuse_all(state now, hotset_pager* p, const strided_visit& other) {
  expect_refused(always_refused(p, other));
  expect_refused(refused_in(now, p, other));
  if (now == state::open) return;  // then every plan is refused for that reason
  auto spoilt =
      spoilt_views(other, [=](auto& view, auto& o) { return hotset_plan(p, &view, &o.visit); });
  std::ranges::copy(
      spoilt_views(other, [=](auto& view, auto& o) { return hotset_route(p, &view, o.ids); }),
      std::back_inserter(spoilt));
  for (auto& bad : spoilt)
    if (now == state::unfinished && bad.code != HOTSET_INVALID_ARGUMENT)
      bad.code = HOTSET_VISIT_UNFINISHED;
  expect_refused(spoilt);
}

template <class T>
std::vector<T> all(const T* values, std::size_t count) {
  return {values, values + count};
}
bool same_fills(const hotset_visit& a, const hotset_visit& b) {
  if (a.fill_count != b.fill_count) return false;
  for (std::size_t i = 0; i < a.fill_count; ++i) {
    const auto& x = a.fills[i];
    const auto& y = b.fills[i];
    if (x.key.layer != y.key.layer || x.key.expert != y.key.expert || x.slot != y.slot ||
        x.generation != y.generation || x.victim.layer != y.victim.layer ||
        x.victim.expert != y.victim.expert || x.precision != y.precision ||
        x.speculative != y.speculative || x.after != y.after)
      return false;
  }
  return true;
}
void expect_same(const hotset_visit& a, const hotset_visit& b) {
  EXPECT_EQ(all(a.experts, a.count), all(b.experts, b.count));
  EXPECT_EQ(all(a.slots, a.count), all(b.slots, b.count));
  EXPECT_EQ(all(a.services, a.count), all(b.services, b.count));
  EXPECT_EQ(all(a.tokens, a.token_count), all(b.tokens, b.token_count));
  EXPECT_EQ(all(a.routed, a.routed_count), all(b.routed, b.routed_count));
  EXPECT_TRUE(same_fills(a, b));
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_EQ(a.more, b.more);
}

hotset_pager_options pager_options(const char* eviction) {
  auto out = model<hotset_pager_options>();
  out.max_tokens = max_tokens;
  out.slots = 4;
  out.eviction = eviction;
  return out;
}
hotset_visit empty_visit() { return support::sized<hotset_visit>(); }
std::uint64_t hash_of(hotset_pager* p) {
  std::uint64_t out = 0;
  EXPECT_EQ(hotset_decision_hash(p, &out), HOTSET_OK);
  return out;
}
hotset_stats stats_of(hotset_pager* p) {
  auto out = support::sized<hotset_stats>();
  EXPECT_EQ(hotset_get_stats(p, &out), HOTSET_OK);
  return out;
}
void expect_same(hotset_pager* a, hotset_pager* b) {
  EXPECT_EQ(hash_of(a), hash_of(b));
  const auto x = stats_of(a);
  const auto y = stats_of(b);
  EXPECT_EQ(std::memcmp(&x, &y, sizeof x), 0);
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    const std::int32_t *row = nullptr, *same = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(hotset_row(a, layer, &row, &count), HOTSET_OK);
    ASSERT_EQ(hotset_row(b, layer, &same, &count), HOTSET_OK);
    EXPECT_EQ(all(row, count), all(same, count));
  }
}

/// One visit on both handles, in groups; `disturbed` also gets calls that it must refuse.
void visit_both(hotset_pager* disturbed, hotset_pager* same, const strided_visit& now,
                const strided_visit& other) {
  auto mine = empty_visit();
  auto theirs = empty_visit();
  auto done = hotset_plan(disturbed, &now.view, &mine);
  ASSERT_EQ(hotset_plan(same, &now.view, &theirs), done);
  while (done == HOTSET_OK) {
    refuse_all(state::open, disturbed, other);
    expect_same(mine, theirs);
    ASSERT_EQ(hotset_commit(disturbed), HOTSET_OK);
    ASSERT_EQ(hotset_commit(same), HOTSET_OK);
    if (mine.more == 0) break;
    refuse_all(state::unfinished, disturbed, other);
    expect_same(mine, theirs);
    done = hotset_plan_next(disturbed, &mine);
    ASSERT_EQ(hotset_plan_next(same, &theirs), done);
  }
}

void walk(const hotset_pager_options& how) {
  const twins of(how);
  support::random_source random(23);
  for (std::uint64_t step = 0; step < 12; ++step)
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      const strided_visit now(random, layer, step, 1 + random.below(max_tokens));
      const strided_visit other(random, random.id_below(layers), step);
      visit_both(of.disturbed, of.same, now, other);
      refuse_all(state::idle, of.disturbed, other);
      expect_same(of.disturbed, of.same);
    }
}
TEST(c_refused_calls, leave_a_pager_and_its_visit_as_they_were) {
  for (const auto* eviction : {"lru", "lfru", "gate_score", "similar_steps", "activation_ratio"})
    walk(pager_options(eviction));
  auto how = pager_options("lru");
  how.admission = "after_n_uses";
  walk(how);
  how = pager_options("lfu");
  how.miss = "drop";
  walk(how);
  how = pager_options("similar_steps");
  how.admission = "least_valuable";
  how.split = HOTSET_SPLIT_BY_EXPERT;
  walk(how);
}

// A visit that does not fit is refused only after the lookup.
TEST(c_refused_calls, have_no_effect_if_a_visit_does_not_fit) {
  struct policies {
    const char *eviction, *admission, *miss;
  };
  for (const auto& by :
       {policies{"lru", nullptr, nullptr}, policies{"gate_score", nullptr, nullptr},
        policies{"similar_steps", nullptr, nullptr}, policies{"activation_ratio", nullptr, nullptr},
        policies{"lru", "after_n_uses", nullptr}, policies{"lru", "budgeted", nullptr},
        policies{"lfu", nullptr, "drop"}}) {
    SCOPED_TRACE(by.eviction);
    auto how = pager_options(by.eviction);
    how.admission = by.admission;
    how.miss = by.miss;
    how.split = HOTSET_SPLIT_REFUSE;
    const twins of(how);
    support::random_source random(5);
    std::size_t refused = 0;
    for (std::uint64_t step = 0; step < 40; ++step) {
      const auto layer = static_cast<std::int32_t>(step % layers);
      const strided_visit large(random, layer, step);
      auto visit = empty_visit();
      const outputs before;
      outputs after;
      std::memcpy(static_cast<void*>(&after), &before, sizeof after);
      const auto code = hotset_plan(of.disturbed, &large.view, &after.visit);
      if (code == HOTSET_OK) {  // it happened to fit: the other handle accepts it too
        ASSERT_EQ(hotset_commit(of.disturbed), HOTSET_OK);
        ASSERT_EQ(hotset_plan(of.same, &large.view, &visit), HOTSET_OK);
        ASSERT_EQ(hotset_commit(of.same), HOTSET_OK);
      } else {
        ASSERT_EQ(code, HOTSET_DOES_NOT_FIT);
        EXPECT_EQ(std::memcmp(&before, &after, sizeof after), 0);
        ++refused;
      }
      const strided_visit small(random, layer, step, 1);
      visit_both(of.disturbed, of.same, small, large);
      expect_same(of.disturbed, of.same);
    }
    EXPECT_GT(refused, by.admission == nullptr ? 10U : 0U);
  }
}

TEST(c_refused_calls, leave_a_prefetch_and_a_warm_start_as_they_were) {
  const twins of(pager_options("lru"));
  support::random_source random(8);
  const std::vector<hotset_key> keys{{0, 1}, {1, 2}, {2, 3}};
  for (const bool warms : {true, false}) {
    const std::vector<hotset_request> requests{{{0, 5}, 1, 0.9F}, {{1, 6}, 1, 0.8F}};
    auto mine = empty_visit();
    auto theirs = empty_visit();
    std::size_t consumed = 0;
    const auto plan = [&](hotset_pager* p, hotset_visit& out) {
      return warms ? hotset_plan_warm(p, keys.data(), keys.size(), &out, &consumed)
                   : hotset_prefetch(p, 0, 0, requests.data(), requests.size(), 2, &out, &consumed);
    };
    ASSERT_EQ(plan(of.disturbed, mine), HOTSET_OK) << hotset_last_error();
    ASSERT_EQ(plan(of.same, theirs), HOTSET_OK);
    refuse_all(state::open, of.disturbed, strided_visit(random, 1, 0));
    expect_same(mine, theirs);
    EXPECT_NE(mine.fill_count, 0U);
    ASSERT_EQ(hotset_commit(of.disturbed), HOTSET_OK);
    ASSERT_EQ(hotset_commit(of.same), HOTSET_OK);
    expect_same(of.disturbed, of.same);
  }
}

TEST(c_refused_calls, leave_a_curve_and_a_division_as_they_were) {
  auto how = model<hotset_curve_options>();
  how.max_tokens = max_tokens;
  const twins of(how);
  auto *const disturbed = of.disturbed, *const same = of.same;
  support::random_source random(3);
  const std::vector<double> table{3, 2, 1};
  std::vector<hotset_consumer> consumers(2);
  for (auto& c : consumers) {
    c.misses = table.data();
    c.misses_count = table.size();
    c.unit_bytes = c.min_units = 1;
  }
  const auto divided = [&](std::uint64_t bytes, auto spoil) {
    return [=](auto& o) {
      auto given = consumers;
      spoil(given);
      return hotset_divide(given.data(), given.size(), bytes, o.units, &o.real);
    };
  };
  for (std::uint64_t n = 0; n < 60; ++n) {
    const strided_visit now(random, static_cast<std::int32_t>(n % layers), n / layers);
    ASSERT_EQ(hotset_curve_observe(disturbed, &now.view), HOTSET_OK);
    ASSERT_EQ(hotset_curve_observe(same, &now.view), HOTSET_OK);
    expect_refused(spoilt_views(
        now, [=](auto& view, auto&) { return hotset_curve_observe(disturbed, &view); }));
    expect_refused(
        {{"observe", [=](auto&) { return hotset_curve_observe(disturbed, nullptr); }},
         {"misses", [=](auto& o) { return hotset_curve_misses(disturbed, layers, 1, &o.real); }},
         {"misses null", [=](auto&) { return hotset_curve_misses(disturbed, 0, 1, nullptr); }},
         {"most_slots", [=](auto& o) { return hotset_curve_most_slots(disturbed, -1, &o.count); }},
         {"most_slots null", [=](auto&) { return hotset_curve_most_slots(disturbed, 0, nullptr); }},
         {"divide bytes", divided(1, [](auto&) {}), HOTSET_EXCEEDS_MEMORY},
         {"divide unit", divided(9, [](auto& c) { c[1].unit_bytes = 0; })},
         {"divide no misses", divided(9, [](auto& c) { c[1].misses = nullptr; })},
         {"divide nothing",
          [](auto& o) { return hotset_divide(nullptr, 1, 9, o.units, &o.real); }}});
  }
  for (std::int32_t layer = 0; layer < layers; ++layer)
    for (std::size_t slots = 0; slots < experts + 2; ++slots) {
      double mine = -1;
      double theirs = -2;
      ASSERT_EQ(hotset_curve_misses(disturbed, layer, slots, &mine), HOTSET_OK);
      ASSERT_EQ(hotset_curve_misses(same, layer, slots, &theirs), HOTSET_OK);
      EXPECT_EQ(mine, theirs);
    }
}

TEST(c_refused_calls, leave_a_prefetcher_as_it_was) {
  auto how = model<hotset_prefetcher_options>();
  how.max_tokens = max_tokens;
  const twins of(how);
  auto *const disturbed = of.disturbed, *const same = of.same;
  support::random_source random(31);
  std::size_t proposed = 0;
  for (std::uint64_t n = 0; n < 120; ++n) {
    const strided_visit now(random, static_cast<std::int32_t>(n % layers), n / layers);
    hotset_request mine[4]{};
    hotset_request theirs[4]{};
    std::size_t count = 0;
    std::size_t expected = 0;
    expect_refused(spoilt_views(now, [=](auto& view, auto& o) {
      return hotset_propose(disturbed, &view, o.requests, 4, &o.count);
    }));
    expect_refused(
        {{"view",
          [=](auto& o) { return hotset_propose(disturbed, nullptr, o.requests, 4, &o.count); }},
         {"requests",
          [&](auto& o) { return hotset_propose(disturbed, &now.view, nullptr, 4, &o.count); }},
         {"count",
          [&](auto& o) { return hotset_propose(disturbed, &now.view, o.requests, 4, nullptr); }},
         {"most", [=](auto&) { return hotset_prefetcher_most(disturbed, nullptr); }}});
    ASSERT_EQ(hotset_propose(disturbed, &now.view, mine, 4, &count), HOTSET_OK);
    ASSERT_EQ(hotset_propose(same, &now.view, theirs, 4, &expected), HOTSET_OK);
    ASSERT_EQ(count, expected);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(mine[i].key.layer, theirs[i].key.layer);
      EXPECT_EQ(mine[i].key.expert, theirs[i].key.expert);
      EXPECT_EQ(mine[i].probability, theirs[i].probability);
    }
    proposed += count;
  }
  EXPECT_GT(proposed, 100U);
}

TEST(c_refused_calls, keep_a_recorders_content) {
  auto how = model<hotset_recorder_options>();
  how.capacity = 40;
  how.weights = 1;
  const twins of(how);
  auto *const disturbed = of.disturbed, *const same = of.same;
  support::random_source random(17);
  const std::vector<std::uint32_t> falling{1, 0};
  const trace_samples::temporary_folder folder;
  const auto nowhere = folder.file("no/such/folder");
  const auto refuse_all = [&](std::uint64_t step, bool is_open, const strided_visit& now) {
    const auto begin = [=](std::uint64_t number, std::int32_t kind, std::size_t tokens) {
      return [=](auto&) {
        return hotset_recorder_begin_step(disturbed, number, kind, tokens, nullptr);
      };
    };
    expect_refused(
        {{"kind", begin(step + 1, 3, 1)},
         {"step", begin(std::uint64_t{1} << 32U, 0, 1)},
         {"no tokens", begin(step + 1, 0, 0)},
         {"view", [=](auto&) { return hotset_recorder_record(disturbed, nullptr); }},
         {"of", [&](auto&) { return hotset_recorder_record_rows(disturbed, &now.view, nullptr); }},
         {"tokens", [=](auto& o) { return hotset_recorder_tokens(disturbed, &o.count, nullptr); }},
         {"tokens null",
          [=](auto& o) { return hotset_recorder_tokens(disturbed, nullptr, &o.number); }},
         {"write null", [=](auto&) { return hotset_recorder_write(disturbed, nullptr); }},
         {"write nowhere", [&](auto&) { return hotset_recorder_write(disturbed, nowhere.c_str()); },
          HOTSET_CANNOT_WRITE}});
    if (!is_open)
      return expect_refused(
          {{"end_step", [=](auto&) { return hotset_recorder_end_step(disturbed); }}});
    auto two = now.view;
    two.tokens = 2;
    expect_refused(
        {{"open", begin(step + 1, 0, 1)},
         {"rows",
          [&](auto&) { return hotset_recorder_record_rows(disturbed, &two, falling.data()); },
          HOTSET_INVALID_VISIT}});
    auto spoilt = spoilt_views(
        now, [=](auto& view, auto&) { return hotset_recorder_record(disturbed, &view); });
    for (auto& bad : spoilt)
      if (bad.code == HOTSET_VISIT_TOO_LARGE) bad.code = HOTSET_INVALID_VISIT;
    expect_refused(spoilt);
  };
  for (std::uint64_t step = 0; step < 8; ++step) {
    const strided_visit now(random, static_cast<std::int32_t>(step % layers), step);
    for (auto* each : {disturbed, same})
      ASSERT_EQ(hotset_recorder_begin_step(each, step, 0, max_tokens, nullptr), HOTSET_OK)
          << hotset_last_error();
    refuse_all(step, true, now);
    for (auto* each : {disturbed, same}) {
      ASSERT_EQ(hotset_recorder_record(each, &now.view), HOTSET_OK) << hotset_last_error();
      ASSERT_EQ(hotset_recorder_end_step(each), HOTSET_OK);
    }
    refuse_all(step, false, now);
  }
  std::size_t held = 0;
  std::uint64_t lost = 1;
  ASSERT_EQ(hotset_recorder_tokens(disturbed, &held, &lost), HOTSET_OK);
  EXPECT_EQ(held, 8U * max_tokens);
  EXPECT_EQ(lost, 0U);
  ASSERT_EQ(hotset_recorder_write(disturbed, folder.file("a").c_str()), HOTSET_OK)
      << hotset_last_error();
  ASSERT_EQ(hotset_recorder_write(same, folder.file("b").c_str()), HOTSET_OK);
  EXPECT_EQ(read_all(folder.file("a")), read_all(folder.file("b")));
  EXPECT_FALSE(read_all(folder.file("a")).empty());
}

template <class Options>
void makes_none() {
  const auto refuse = [](auto spoil) {
    auto how = model<Options>();
    spoil(how);
    (void)support::refusal_of(how);
  };
  refuse([](auto& o) { o.struct_size = 1; });
  refuse([](auto& o) { o.struct_size = std::size_t{1} << 30U; });
  refuse([](auto& o) { o.layers = 0; });
  const auto how = model<Options>();
  typename support::c_interface<Options>::handle* out = nullptr;
  constexpr auto create = support::c_interface<Options>::create;
  EXPECT_EQ(create(&how, nullptr), HOTSET_INVALID_ARGUMENT);
  EXPECT_EQ(create(nullptr, &out), HOTSET_INVALID_ARGUMENT);
}
TEST(c_refused_calls, make_no_handle) {
  makes_none<hotset_pager_options>();
  makes_none<hotset_curve_options>();
  makes_none<hotset_prefetcher_options>();
  makes_none<hotset_recorder_options>();
}

}  // namespace
}  // namespace hotset::refused_calls_test
