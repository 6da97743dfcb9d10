// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/plan.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/models/model_description.hpp"
#include "lab/reports/plan_report.hpp"
#include "random_source.hpp"
#include "sim_samples.hpp"

namespace hotset::plan_test {
namespace {

using testing::HasSubstr;

lab::plan_request known_model(const std::string& name, std::uint64_t device) {
  lab::plan_request request;
  auto described = lab::describe_model(name);
  request.model = std::move(described.memory);
  request.arithmetic = described.arithmetic;
  request.device_bytes = device;
  request.reserve_bytes = 1_GiB;
  request.context = 4096;
  request.cost = {.seconds_per_byte = 1 / 25e9, .recompute_seconds_per_token = 1e-3};
  return request;
}
lab::plan_request qwen(std::uint64_t device = 24_GiB) {
  auto request = known_model("qwen3-30b-a3b", device);
  request.concurrency = 4;
  return request;
}

/// A model of two layers whose experts take 1000 bytes, and whose tokens keep 10.
lab::plan_request small(std::uint64_t device) {
  lab::plan_request request;
  request.model.name = "small";
  request.model.experts = {.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {1000}};
  request.model.resident_bytes = 500;
  request.model.kv = {{.layers = 2, .bytes_per_token = 5}};
  request.device_bytes = device;
  request.context = 32;
  request.concurrency = 2;
  request.cost = {.seconds_per_byte = 1e-6, .recompute_seconds_per_token = 1e-4};
  return request;
}
routing_trace small_trace(std::uint64_t seed = 1) {
  return support::random_trace(seed, {.layers = 2, .experts = 8, .top_k = 2, .steps = 200});
}
kv_trace requests(std::size_t count, std::uint64_t blocks) {
  kv_trace kv;
  kv.block_tokens = 16;
  for (std::size_t r = 0; r < count; ++r) {
    kv.timestamp.push_back(r);
    kv.input_length.push_back(32);
    kv.output_length.push_back(4);
    kv.blocks.push_back(2 * r % blocks);
    kv.blocks.push_back((2 * r + 1) % blocks);
    kv.block_end.push_back(kv.blocks.size());
  }
  return kv;
}

lab::memory_plan planned(lab::plan_request request, const routing_trace& trace,
                         const kv_trace* kv = nullptr) {
  request.routing = &trace;
  request.requests = kv;
  return lab::make_plan(request);
}
double seconds_of(const lab::memory_plan& plan, std::string_view name) {
  for (const auto& a : plan.alternatives)
    if (a.name == name) return a.seconds_per_step;
  ADD_FAILURE() << name;
  return 0;
}

// WiSP, Table 3: each slot that an expert loses holds 4,608 tokens of KV.
TEST(plan, a_slot_of_qwen3_is_worth_4608_tokens) {
  const auto request = qwen();
  EXPECT_EQ(request.model.expert_slot_bytes(), 452'984'832U);
  EXPECT_EQ(request.model.kv_bytes_per_token(), 98'304U);
  const auto plan = lab::make_plan(request);
  configurator question;
  question.budget_bytes = 375'792ULL * 98'304 + 8 * 452'984'832ULL;
  question.slot_bytes = request.model.expert_slot_bytes();
  question.block_bytes = plan.block_bytes;
  EXPECT_EQ(question.blocks_beside(8) * 16, 375'792U);
  EXPECT_EQ(question.blocks_beside(16) * 16, 338'928U);
  EXPECT_EQ(question.blocks_beside(32) * 16, 265'200U);
}

TEST(plan, gives_every_session_its_floor_and_uses_all_memory) {
  const auto plan = lab::make_plan(qwen());
  EXPECT_EQ(plan.min_blocks, 4 * 256U);
  EXPECT_GE(plan.kv_blocks, plan.min_blocks);
  EXPECT_EQ(plan.binds, binding::floor);
  EXPECT_GE(plan.quotas.bytes, plan.split.cap * 452'984'832ULL);
  const auto used = plan.quotas.bytes + plan.kv_bytes();
  EXPECT_LE(used, plan.budget_bytes);
  EXPECT_LT(plan.budget_bytes - used, plan.block_bytes);
  EXPECT_EQ(plan.budget_bytes, 24_GiB - 1_GiB - plan.request.model.resident_bytes);
  EXPECT_EQ(plan.quotas.quotas.size(), 48U);
}

// Without a trace all layers count as equal: bytes left over by the cap give one more slot to as many layers as
// possible.
TEST(plan, layers_that_are_alike_get_alike_quotas) {
  for (std::uint64_t device = 12; device < 40; ++device) {
    const auto plan = lab::make_plan(qwen(device * 1_GiB));
    const auto cap = plan.split.cap;
    EXPECT_THAT(plan.quotas.quotas, testing::Each(testing::AnyOf(cap, cap + 1)));
    EXPECT_TRUE(std::ranges::is_sorted(plan.quotas.quotas, std::greater<>()));
    EXPECT_LT(plan.budget_bytes - plan.quotas.bytes - plan.min_blocks * plan.block_bytes,
              9'437'184U)
        << "no expert more beside the cache's floor";
    EXPECT_LE(plan.quotas.misses, plan.quotas.uniform_misses);
  }
}

TEST(plan, bytes_left_by_a_cap_go_to_layers) {
  auto request = known_model("mixtral-8x7b", 80_GiB);
  request.context = 32768;
  const auto plan = lab::make_plan(request);
  EXPECT_EQ(plan.split.cap, 6U);
  EXPECT_EQ(std::ranges::count(plan.quotas.quotas, 7U), 27);
  EXPECT_EQ(std::ranges::count(plan.quotas.quotas, 6U), 5);
  EXPECT_LT(plan.kv_bytes(), 4_GiB + 352'321'536);
  EXPECT_EQ(plan.binds, binding::floor);
  EXPECT_EQ(plan.best, "hotset");
  for (const auto& a : plan.alternatives)
    if (a.feasible) {
      EXPECT_GE(a.seconds_per_step, plan.seconds * (1 - 1e-9)) << a.name;
    }
}

TEST(plan, a_device_that_holds_all_is_full) {
  const auto plan = lab::make_plan(qwen(96_GiB));
  EXPECT_EQ(plan.split.cap, 128U);
  EXPECT_EQ(plan.binds, binding::full);
  EXPECT_TRUE(plan.is_all_resident());
  EXPECT_EQ(plan.seconds, 0);
  EXPECT_EQ(plan.hit_rate, 1);
}

/// A trace that never uses half of the experts.
routing_trace narrow_trace() {
  auto trace = small_trace();
  for (auto& id : trace.ids) id = expert_id{number(id) % 4};
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(2))
      trace.ids[trace.index(t, l) + 1] = expert_id{(number(trace.ids[trace.index(t, l)]) + 1) % 4};
  return trace;
}
TEST(plan, bytes_without_a_gain_make_all_experts_resident_if_possible) {
  const auto trace = narrow_trace();
  auto request = small(500 + 16'000 + 10 * 64);
  request.routing = &trace;
  const auto all = lab::make_plan(request);
  EXPECT_EQ(all.binds, binding::full);
  EXPECT_THAT(all.quotas.quotas, testing::Each(8U));
  EXPECT_EQ(all.split.cap, 8U);
  request.device_bytes -= 10;
  const auto most = lab::make_plan(request);
  EXPECT_THAT(most.quotas.quotas, testing::Each(4U)) << "more saves nothing";
  EXPECT_EQ(most.binds, binding::budget);
  EXPECT_EQ(most.kv_blocks, (500 + 16'000 + 630 - 500 - 8'000) / 160U);
}

/// Number before a text of a refusal.
std::uint64_t number_before(const std::string& why, const std::string& text) {
  const auto end = why.find(text);
  if (end == std::string::npos) return 0;
  return std::stoull(why.substr(why.rfind(' ', end - 1) + 1));
}
TEST(plan, a_device_that_is_too_small_gets_what_would_fit) {
  const auto refused = [](const lab::plan_request& request) {
    return support::refusal<lab::infeasible_error>([&] { (void)lab::make_plan(request); });
  };
  const auto why = refused(qwen(5_GiB));
  const auto exact = why.find('(', why.find("accepted: "));  // "8.0GiB (8585113600B) or more"
  ASSERT_NE(exact, std::string::npos) << why;
  const auto needed = std::stoull(why.substr(exact + 1));
  EXPECT_NO_THROW((void)lab::make_plan(qwen(needed)));
  EXPECT_THAT(refused(qwen(needed - 1)), HasSubstr("(" + std::to_string(needed) + "B) or more"));
  // The largest of each that fits: one more does not.
  const auto check = [&](std::uint64_t lab::plan_request::*member, const std::string& text) {
    auto request = qwen(5_GiB);
    request.*member = number_before(why, text);
    ASSERT_GT(request.*member, 0U) << why;
    EXPECT_NO_THROW((void)lab::make_plan(request));
    ++(request.*member);
    (void)refused(request);
  };
  check(&lab::plan_request::context, " tokens of --context");
  check(&lab::plan_request::concurrency, " of --concurrency");
  EXPECT_THAT(refused(qwen(1_GiB)), testing::EndsWith("or more")) << "no context fits";
}

TEST(plan, without_room_for_a_tokens_experts_all_stay_on_the_host) {
  auto request = known_model("mixtral-8x7b", 8_GiB);
  const auto plan = lab::make_plan(request);
  EXPECT_FALSE(plan.can_page());
  EXPECT_THAT(plan.quotas.quotas, testing::Each(0U));
  EXPECT_FALSE(plan.own);
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("nothing can be paged: the 2 experts")));
  ASSERT_NE(plan.recommended(), nullptr);
  EXPECT_THAT(plan.recommended()->text, HasSubstr("--n-cpu-moe "));
}

/// The setting of an engine.
lab::engine_setting setting_of(const lab::memory_plan& plan, std::string_view engine) {
  for (const auto& setting : plan.settings)
    if (setting.engine == engine) return setting;
  ADD_FAILURE() << engine;
  return {};
}
// Host memory counts only for what a line leaves on the host; nine tenths of it hold experts.
TEST(plan, each_line_needs_its_own_host_memory) {
  auto request = known_model("gpt-oss-120b", 24_GiB);
  request.context = 32768;
  const auto held = setting_of(lab::make_plan(request), "llama.cpp").host_bytes;
  ASSERT_LT(held, request.model.all_expert_bytes());
  request.host_bytes = 48_GiB;
  const auto plan = lab::make_plan(request);
  const auto llama = setting_of(plan, "llama.cpp");
  EXPECT_EQ(llama.disk_bytes, 0U);
  EXPECT_THAT(llama.text, HasSubstr(" --load-mode none"));
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("ktransformers left out: it keeps")));
  request.host_bytes = 24_GiB;
  const auto small = lab::make_plan(request);
  const auto mapped = setting_of(small, "llama.cpp");
  EXPECT_EQ(mapped.disk_bytes, mapped.host_bytes - (24_GiB - 24_GiB / 10));
  EXPECT_THAT(mapped.text, testing::Not(HasSubstr("--load-mode"))) << "the default maps";
  EXPECT_LT(mapped.decode, llama.decode);
  EXPECT_THAT(small.notes, testing::Contains(HasSubstr("vllm left out: it keeps")));
  EXPECT_THAT(small.notes, testing::Contains(HasSubstr("llama.cpp: memory holds 21.6 GiB of")));
  request.engines = {"vllm"};
  EXPECT_THAT(support::refusal<lab::infeasible_error>([&] { (void)lab::make_plan(request); }),
              HasSubstr("vllm left out: it keeps"));
}

/// Bytes that LRU copies with these quotas.
std::uint64_t measured_bytes(const routing_trace& trace, const std::vector<std::uint64_t>& quotas,
                             const geometry& shape) {
  const visit_sequence visits(trace);
  const std::vector<std::int64_t> slots(quotas.begin(), quotas.end());
  pager<lru> cache({.layout = pool_layout::per_layer(visits.shape(), slots).value()});
  auto plan = cache.make_plan();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto code = cache.serve(visits[i], plan, [&](const visit_group& group) {
      bytes += group.plan().fills().size() * shape.bytes_of(group.layer());
    });
    EXPECT_EQ(code, status::ok);
  }
  return bytes;
}
std::uint64_t measured_misses(const routing_trace& trace,
                              const std::vector<std::uint64_t>& quotas) {
  geometry shape = trace.shape();
  shape.expert_bytes = {1};
  return measured_bytes(trace, quotas, shape);
}
// The prediction equals replay's count, in seconds of the link.
TEST(plan, predicts_the_misses_of_replay) {
  const auto trace = small_trace();
  for (const std::uint64_t device : {5'600U, 8'000U, 12'000U}) {
    auto request = small(device);
    request.concurrency = 1;
    const auto plan = planned(request, trace);
    const auto run =
        support::one_run(trace, {.scope = "per-layer", .slots = std::to_string(plan.split.cap)});
    const auto steps = 200.0;
    EXPECT_DOUBLE_EQ(plan.split.expert_misses, static_cast<double>(run.stats.misses) / steps);
    EXPECT_NEAR(plan.split.seconds, static_cast<double>(run.stats.misses) / steps * 1e-3, 1e-12);
    const auto missed = static_cast<double>(measured_misses(trace, plan.quotas.quotas));
    EXPECT_NEAR(plan.quotas.misses, missed / steps, 1e-12);
    EXPECT_NEAR(plan.seconds, missed / steps * 1e-3, 1e-12);
    EXPECT_NEAR(plan.hit_rate, 1 - missed / static_cast<double>(run.stats.accesses), 1e-12);
  }
}

/// Layers that use from two to all of their experts, some far more often than others.
routing_trace uneven_trace(std::uint64_t seed, std::uint64_t most_tokens) {
  support::random_source random(seed);
  constexpr std::int32_t layers = 4;
  auto trace = support::empty_trace(layers, 12, 2);
  std::vector<std::int32_t> used;
  std::vector<bool> skewed;
  for (std::int32_t l = 0; l < layers; ++l) {
    used.push_back(2 + random.id_below(11));
    skewed.push_back(random.one_in(2));
  }
  for (int step = 0; step < 150; ++step) {
    std::vector<std::vector<expert_id>> rows(1 + random.below(most_tokens));
    for (auto& row : rows)
      for (std::size_t l = 0; l < layers; ++l) {
        auto first = random.id_below(used[l]);
        if (skewed[l]) first = std::min(first, random.id_below(used[l]));
        row.push_back(expert_id{first});
        row.push_back(expert_id{(first + 1 + random.id_below(used[l] - 1)) % used[l]});
      }
    support::add_step(trace, rows,
                      rows.size() == 1 ? request_class::decode : request_class::verify);
  }
  return trace;
}

/// Returns whether the quotas differ from the cap.
bool expect_no_more_misses(std::uint64_t most_tokens, std::uint64_t seed) {
  SCOPED_TRACE(std::to_string(most_tokens) + " tokens, seed " + std::to_string(seed));
  const auto trace = uneven_trace(seed, most_tokens);
  auto request = small(8'000 + 1'000 * (seed % 30));
  request.model.experts = {.layers = 4, .experts = 12, .top_k = 2, .expert_bytes = {1000}};
  if (seed % 3 == 0) request.model.experts.expert_bytes = {500, 1000, 2000, 700};
  request.device_bytes += request.model.expert_slot_bytes();
  request.concurrency = 1;
  request.routing = &trace;
  const auto plan = lab::make_plan(request);
  const auto& quotas = plan.quotas.quotas;
  std::uint64_t bytes = 0;
  for (std::size_t l = 0; l < quotas.size(); ++l)
    bytes += quotas[l] * request.model.experts.bytes_of(static_cast<layer_id>(l));
  EXPECT_EQ(bytes, plan.quotas.bytes);
  EXPECT_LE(bytes + plan.kv_bytes(), plan.budget_bytes);
  const std::vector<std::uint64_t> caps(quotas.size(), plan.split.cap);
  EXPECT_LE(measured_bytes(trace, quotas, request.model.experts),
            measured_bytes(trace, caps, request.model.experts));
  EXPECT_TRUE(plan.quotas.held_out && *plan.quotas.held_out_uniform > 0);
  if (most_tokens == 1) {
    const bool one_size = seed % 3 != 0;
    if (one_size) {
      EXPECT_LE(plan.quotas.misses, plan.quotas.uniform_misses);
    }
    EXPECT_NEAR(plan.quotas.misses * 150, static_cast<double>(measured_misses(trace, quotas)),
                1e-6);
  }
  return quotas != caps;
}

// Layers that need different numbers of experts, and routing that does not repeat itself.
TEST(plan, quotas_differ_only_if_held_out_routing_gains) {
  int gains = 0;
  int even = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto trace =
        seed % 2 == 0
            ? uneven_trace(seed, 1)
            : support::random_trace(seed, {.layers = 4, .experts = 12, .top_k = 2, .steps = 40});
    auto request = small(9'500 + 700 * seed);
    request.model.experts = {.layers = 4, .experts = 12, .top_k = 2, .expert_bytes = {1000}};
    const auto plan = planned(request, trace);
    const auto [least, most] = std::ranges::minmax(plan.quotas.quotas);
    const auto text = lab::to_text(plan);
    if (plan.quotas.may_differ()) {
      ++gains;
      EXPECT_LT(*plan.quotas.held_out, *plan.quotas.held_out_uniform);
      EXPECT_THAT(text, testing::Not(HasSubstr("(0.0 %"))) << "a gain that can be seen";
    } else {
      ++even;
      EXPECT_LE(most, least + 1) << seed;
      EXPECT_EQ(least, std::min<std::uint64_t>(plan.split.cap, 12)) << seed;
      if (!plan.is_all_resident()) {
        EXPECT_THAT(text, HasSubstr("unequal quotas     no: made on"));
        EXPECT_THAT(text, testing::Not(HasSubstr("miss 0.0 %")));
      }
    }
  }
  EXPECT_GT(gains, 8);
  EXPECT_GT(even, 8);
}
// An expert's bytes differ between the layers, so a slot of each saves equally much a byte.
TEST(plan, layers_of_other_sizes_with_one_curve_get_one_cap) {
  const auto kv = requests(100, 40);
  auto request = small(14'000);
  request.model.experts.expert_bytes = {1000, 1600};
  request.requests = &kv;
  for (std::uint64_t device = 6'500; device < 22'000; device += 300) {
    request.device_bytes = device;
    const auto quotas = lab::make_plan(request).quotas.quotas;
    const auto [least, most] = std::ranges::minmax(quotas);
    EXPECT_LE(most, least + 1) << device;
  }
}

TEST(plan, unequal_quotas_never_measure_more_misses_than_one_cap) {
  int unequal = 0;
  for (const std::uint64_t most_tokens : {1U, 2U, 5U})
    for (std::uint64_t seed = 0; seed < 100; ++seed)
      unequal += expect_no_more_misses(most_tokens, seed) ? 1 : 0;
  EXPECT_GT(unequal, 100);
}

// Visits wider than a quota are split, and the curves do not model this: replay measures more misses than they
// predict.
TEST(plan, quotas_that_split_visits_are_judged_by_replay) {
  for (const std::uint64_t seed : {302U, 1791U, 1984U, 3104U, 3400U, 3993U})
    (void)expect_no_more_misses(5, seed);
  for (const std::uint64_t seed : {166U, 655U, 984U, 1207U, 1474U, 1700U, 3633U, 3735U, 3915U})
    (void)expect_no_more_misses(8, seed);
}

// Many distinct prefixes repeat: KV is worth more than experts, until all of them fit.
TEST(plan, requests_draw_memory_to_kv) {
  const auto trace = small_trace();
  const auto kv = requests(400, 40);
  auto request = small(14'000);
  request.cost.recompute_seconds_per_token = 1;
  const auto without = planned(request, trace);
  const auto with = planned(request, trace, &kv);
  EXPECT_LT(with.split.cap, without.split.cap);
  EXPECT_LT(with.quotas.bytes, without.quotas.bytes);
  EXPECT_GE(with.kv_blocks, 40U);
  EXPECT_EQ(with.binds, binding::budget);
  EXPECT_LT(with.seconds, seconds_of(with, "flux-prop"));
}

TEST(plan, is_no_worse_than_any_feasible_alternative_with_a_cap) {
  const auto trace = small_trace(3);
  const auto kv = requests(300, 30);
  for (std::uint64_t device = 5'600; device < 18'000; device += 400) {
    const auto plan = planned(small(device), trace, &kv);
    for (const auto& a : plan.alternatives) {
      if (!a.feasible || a.cap == 0) continue;
      EXPECT_GE(a.seconds_per_step, plan.seconds * (1 - 1e-9)) << a.name << " at " << device;
    }
  }
}

// An LRU cache holds nothing of a cycle longer than its size; static residents stay.
TEST(plan, the_best_feasible_alternative_is_recommended) {
  auto circle = support::empty_trace(2, 8, 2);
  for (int step = 0; step < 200; ++step) {
    const auto first = static_cast<expert_id>(step % 4 * 2);
    support::add_step(circle, {{first, first + 1, first, first + 1}});
  }
  int offloaded = 0;
  for (const auto& trace : {circle, small_trace(3)})
    for (std::uint64_t device = 5'600; device < 18'000; device += 400) {
      const auto plan = planned(small(device), trace);
      double least = std::numeric_limits<double>::infinity();
      for (const auto& a : plan.alternatives)
        if (a.feasible) least = std::min(least, a.seconds_per_step);
      EXPECT_NEAR(seconds_of(plan, plan.best), least, 1e-9 * least) << device;
      const bool is_paged = plan.best == "hotset";
      EXPECT_EQ(std::ranges::count_if(plan.notes,
                                      [](const std::string& note) {
                                        return note.find("beats the quotas") != std::string::npos;
                                      }),
                is_paged ? 0 : 1);
      offloaded += is_paged ? 0 : 1;
    }
  EXPECT_GT(offloaded, 0);
  EXPECT_LT(offloaded, 40);
}

// Hazard 24: a device filled to the last byte spills. No consumer gets the reserve.
TEST(plan, the_reserve_is_not_used) {
  const auto trace = small_trace(3);
  const auto kv = requests(300, 30);
  for (const bool with_requests : {false, true})
    for (std::uint64_t reserve = 0; reserve < 6'000; reserve += 250) {
      auto request = small(14'000);
      request.reserve_bytes = reserve;
      const auto* const requests = with_requests ? &kv : nullptr;
      const auto plan = planned(request, trace, requests);
      const auto used = request.model.resident_bytes + plan.kv_bytes() + plan.quotas.bytes;
      EXPECT_LE(used + reserve, request.device_bytes);
      request.device_bytes += reserve;
      request.reserve_bytes = 2 * reserve;  // the same memory to divide
      const auto other = planned(request, trace, requests);
      EXPECT_EQ(other.split.cap, plan.split.cap);
      EXPECT_EQ(other.kv_bytes(), plan.kv_bytes());
    }
}

// Experts on the host: read-in-place copies the routed ones, offloading whole layers copies all.
TEST(plan, offloading_copies_whole_layers_or_routed_experts) {
  const auto trace = small_trace(3);
  const auto plan = planned(small(8'000), trace);
  const auto seconds = [&](const char* name) { return seconds_of(plan, name); };
  const auto accesses = plan.split.expert_misses / (1 - plan.hit_rate);
  const auto& model = plan.request.model;
  const auto routed = accesses * static_cast<double>(model.expert_slot_bytes()) /
                      static_cast<double>(model.experts.layers);
  ASSERT_GT(seconds("static-offload"), 0);
  EXPECT_NEAR(seconds("read-in-place") / seconds("static-offload"),
              routed / static_cast<double>(model.all_expert_bytes()), 1e-9);
  EXPECT_LT(seconds("read-in-place"), seconds("static-offload"));
}

TEST(plan, a_model_without_kv_has_experts_alone) {
  const auto plan = lab::make_plan(known_model("llada-moe", 9_GiB));
  EXPECT_EQ(plan.kv_bytes(), 0U);
  EXPECT_EQ(plan.binds, binding::budget);
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("keeps no KV cache")));
  EXPECT_EQ(plan.alternatives.size(), 4U);
}

/// Uniform routing, a token a step.
routing_trace uniform_trace(std::size_t steps) {
  return support::random_trace(
      7, {.layers = 4, .experts = 32, .top_k = 4, .steps = steps, .skewed = false});
}
lab::plan_request several_sessions(std::uint64_t sessions) {
  auto request = small(100'000);
  request.model.experts = {.layers = 4, .experts = 32, .top_k = 4, .expert_bytes = {1000}};
  request.concurrency = sessions;
  return request;
}
// Experts of a step are those of all its sessions, also if a trace has one token a step.
TEST(plan, a_step_of_a_trace_has_a_token_of_each_session) {
  for (const std::uint64_t sessions : {2U, 8U, 16U}) {
    const auto request = several_sessions(sessions);
    const auto without = lab::make_plan(request);
    const auto plan = planned(request, uniform_trace(1600));
    EXPECT_NEAR(plan.curves.used[0], without.curves.used[0], 0.03 * without.curves.used[0]);
    EXPECT_THAT(plan.notes,
                testing::Contains(HasSubstr(std::to_string(1600 / sessions) + " steps")));
  }
}
TEST(plan, a_trace_keeps_steps_of_as_many_tokens) {
  const auto one = planned(several_sessions(1), uniform_trace(100));
  EXPECT_DOUBLE_EQ(one.curves.used[0], 4);
  EXPECT_THAT(one.notes, testing::Not(testing::Contains(HasSubstr("the trace's steps"))));
  auto wide = uniform_trace(100);
  for (std::size_t t = 0; t < wide.tokens(); ++t) wide.step[t] /= 4;
  EXPECT_THAT(planned(several_sessions(2), wide).notes,
              testing::Contains(HasSubstr("have 4 tokens, and those of the load 2")));
}
TEST(plan, a_session_goes_on_where_its_last_step_was) {
  auto trace = uniform_trace(7);
  trace.kind[0] = request_class::prefill;
  trace.sequence = {0, 1, 0, 1, 0, 1, 0};  // decoded: rows 2, 4, 6, then 1, 3, 5
  const auto two = lab::side_by_side(trace, 2);
  EXPECT_THAT(two.step, testing::ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(two.sequence, testing::ElementsAre(0, 1, 0, 1, 0, 1));
  const std::vector<std::size_t> rows = {2, 1, 4, 3, 6, 5};
  for (std::size_t t = 0; t < rows.size(); ++t)
    EXPECT_TRUE(std::ranges::equal(two.ids_of(t, layer_id{3}), trace.ids_of(rows[t], layer_id{3})));
}
TEST(plan, refuses_a_trace_of_fewer_tokens_than_sessions) {
  try {
    (void)planned(several_sessions(8), uniform_trace(7));
    FAIL();
  } catch (const lab::usage_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("7 decoded tokens; accepted: one or more for each session"));
  }
}

// WiSP, section 4: half of the top-8 is new in each step. This does not hold for layers that repeat their experts.
routing_trace half_new(int steps) {
  auto trace = support::empty_trace(48, 128, 8);
  for (int step = 0; step < steps; ++step) {
    std::vector<expert_id> row;
    for (int l = 0; l < 48; ++l)
      for (int k = 0; k < 8; ++k) row.push_back(expert_id{(step * 4 + k) % 128});
    support::add_step(trace, {row});
  }
  return trace;
}
TEST(plan, the_ceiling_is_the_link_rate_of_new_experts) {
  const auto trace = half_new(30);
  auto request = qwen();
  request.concurrency = 1;
  request.routing = &trace;
  const auto plan = lab::make_plan(request);
  const double steady = 4.0 * 452'984'832;  // and 8 in the first step
  EXPECT_NEAR(plan.new_bytes_per_step, steady * 31 / 30, 1);
  EXPECT_NEAR(plan.ceiling_tokens_per_second, 25e9 / (steady * 31 / 30), 1e-6);
  EXPECT_THAT(lab::to_text(plan), HasSubstr("\nceiling "));
}

// The ceiling does not bind a cache that holds more than the previous step.
TEST(plan, a_ceiling_is_never_below_the_prediction) {
  const auto round = half_new(130);  // 128 slots hold the whole cycle
  const auto trace = small_trace(3);
  const auto check = [](const lab::plan_request& request) {
    const auto plan = lab::make_plan(request);
    const auto json = support::json_of(plan)["predicted"]["ceiling_tokens_per_s"];
    const bool is_there = std::isfinite(plan.ceiling_tokens_per_second);
    EXPECT_EQ(json.is_null(), !is_there);
    EXPECT_EQ(lab::to_text(plan).find("\nceiling ") != std::string::npos, is_there);
    if (!is_there) return false;
    EXPECT_FALSE(plan.is_all_resident());
    EXPECT_LE(static_cast<double>(request.concurrency) / plan.seconds,
              plan.ceiling_tokens_per_second * (1 + 1e-9));
    return true;
  };
  auto request = qwen(40_GiB);
  request.concurrency = 1;
  request.routing = &round;
  EXPECT_FALSE(check(request)) << "some layers hold all that they use";
  EXPECT_FALSE(check(qwen(96_GiB))) << "all are resident";
  EXPECT_TRUE(check(qwen(12_GiB)));
  int bound = 0;
  for (std::uint64_t device = 5'600; device < 18'000; device += 400) {
    auto some = small(device);
    some.routing = &trace;
    bound += check(some) ? 1 : 0;
  }
  EXPECT_GT(bound, 0);
  EXPECT_LT(bound, 31);
}

TEST(plan, refuses_invalid_values) {
  const auto why = [](auto change) {
    auto request = qwen();
    change(request);
    return support::refusal<lab::usage_error>([&] { (void)lab::make_plan(request); });
  };
  EXPECT_THAT(why([](auto& r) { r.context = 1 << 20; }),
              HasSubstr("accepted: at most 40960, the model's own"));
  EXPECT_THAT(why([](auto& r) { r.concurrency = 0; }), HasSubstr("concurrency = 0"));
  EXPECT_THAT(why([](auto& r) { r.concurrency = 5000; }), HasSubstr("accepted: 1..4096"));
  EXPECT_THAT(why([](auto& r) { r.block_tokens = 0; }), HasSubstr("block_tokens = 0"));
  EXPECT_THAT(why([](auto& r) { r.cost.seconds_per_byte = -1; }), HasSubstr("seconds_per_byte"));
  const auto other = small_trace();
  EXPECT_THAT(why([&](auto& r) { r.routing = &other; }),
              HasSubstr("the trace is of 2 layers x 8 experts; accepted: 48 x 128"));
}

TEST(plan, a_trace_of_another_top_k_is_usable_and_noted) {
  const auto routed = [](std::int32_t top_k) {
    return planned(
        small(11'000),
        support::random_trace(3, {.layers = 2, .experts = 8, .top_k = top_k, .steps = 200}));
  };
  const auto same = routed(2);
  for (const auto& note : same.notes) EXPECT_THAT(note, testing::Not(HasSubstr("routes top-")));
  const auto narrower = routed(1);
  EXPECT_THAT(narrower.notes, testing::Contains(HasSubstr(
                                  "the trace routes top-1, the model top-2: hits and misses are "
                                  "those of the trace, and the model's own visits are wider")));
  EXPECT_LT(narrower.split.expert_misses, same.split.expert_misses);
  EXPECT_GE(narrower.split.cap, 2U) << "a token of the model needs its top-k";
  const auto wider = routed(4);
  EXPECT_THAT(wider.notes, testing::Contains(HasSubstr("visits are narrower")));
  EXPECT_GE(wider.split.cap, 4U) << "a token of the trace needs its own";
}

TEST(plan, json_has_the_keys_of_its_schema) {
  const auto trace = small_trace();
  const auto plan = planned(small(9'000), trace);
  const auto json = support::json_of(plan);
  EXPECT_EQ(json["schema"], "hotset.plan/1");
  EXPECT_EQ(json["model"]["moe_layers"], 2);
  EXPECT_EQ(json["model"]["bytes_per_expert_slot"], 2000);
  EXPECT_EQ(json["model"]["kv_bytes_per_token"], 10);
  EXPECT_EQ(json["budget_bytes"], 8'500);
  EXPECT_EQ(json["cap"], plan.split.cap);
  EXPECT_EQ(json["quotas"].size(), 2U);
  EXPECT_EQ(json["kv_tokens"], json["kv_blocks"].get<std::uint64_t>() * 16);
  EXPECT_EQ(json["marginals"].size(), 3U);
  EXPECT_EQ(json["marginals"][2]["consumer"], "kv");
  EXPECT_EQ(json["alternatives"].size(), 6U);
  EXPECT_EQ(json["best_division"], plan.best);
  EXPECT_EQ(json["recommended"], plan.recommended()->text);
  EXPECT_EQ(json["engines"].size(), plan.settings.size());
  EXPECT_EQ(json["own"]["name"], "an engine of your own");
  EXPECT_EQ(json["devices"].size(), 0U);
  EXPECT_TRUE(json["predicted"].contains("hit_rate"));
  EXPECT_TRUE(json["predicted"].contains("ceiling_tokens_per_s"));
  const auto text = lab::to_text(plan);
  for (const char* part : {"small: 2 MoE layers", "unequal quotas", "llama-server -m MODEL.gguf ",
                           "pool_layout::per_layer(shape, "})
    EXPECT_THAT(text, HasSubstr(part));
}

}  // namespace
}  // namespace hotset::plan_test
