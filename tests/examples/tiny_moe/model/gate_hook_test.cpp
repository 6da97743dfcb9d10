// SPDX-License-Identifier: Apache-2.0
// Predictors in a running engine: they get their inputs, their forecasts are right more often than by chance, and
// exact combinations change no byte.
#include "tiny_moe/model/gate_hook.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/predict/expert_map.hpp"
#include "hotset/predict/learned_gate.hpp"
#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"
#include "paging_samples.hpp"
#include "saved_gates.hpp"
#include "tiny_moe/experts/paging_choice.hpp"
#include "tiny_moe/experts/tracing_experts.hpp"
#include "tiny_moe/model/kernels.hpp"
#include "tiny_moe/serving/serving.hpp"
#include "trace_samples.hpp"

namespace gate_hook_test {
namespace {

using namespace paging_samples;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t layers = 12;
constexpr std::size_t top_k = 4;

// Recorded inputs of a predictor: copies, because the views' arrays do not live long enough.
struct told {
  hotset::layer_id layer{};
  hotset::step_id step = 0;
  std::vector<std::int32_t> token_ids;
  std::vector<hotset::sequence_id> sequences;
  std::size_t hidden = 0, probabilities = 0;
  bool bent = false;  ///< a policy changed the router's ids
};
told told_of(const hotset::routing_view& view) {
  return {.layer = view.layer,
          .step = view.step,
          .token_ids = {view.token_ids.begin(), view.token_ids.end()},
          .sequences = {view.sequences.begin(), view.sequences.end()},
          .hidden = view.hidden.size(),
          .probabilities = view.probabilities.size(),
          .bent = !std::ranges::equal(view.chosen(), view.experts)};
}
struct heard {
  std::vector<told> views;
  std::vector<hotset::sequence_id> ended;
  std::int32_t depth = 0;
  std::size_t embeddings = 0;
  std::int32_t width = 0;
};

/// Records its inputs, and predicts experts 0..3 everywhere.
class listening_predictor {
 public:
  struct config {
    heard* notes = nullptr;
    std::int32_t depth = 1;
    std::span<const float> embeddings{};
    std::int32_t embedding_width = 0;
    [[nodiscard]] hotset::validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "listening";
  static constexpr hotset::predictor_traits traits{
      .takes_embeddings = true, .opens_steps = true, .wants_sequence_ends = true};
  static hotset::result<listening_predictor> create(const hotset::geometry& shape,
                                                    const config& options) {
    options.notes->depth = options.depth;
    options.notes->embeddings = options.embeddings.size();
    options.notes->width = options.embedding_width;
    return listening_predictor(shape, options);
  }
  [[nodiscard]] hotset::forecast expect(const hotset::routing_view& view, std::span<const float>,
                                        std::int32_t) noexcept {
    notes_->views.push_back(told_of(view));
    hotset::forecast out;
    out.depth = depth_;
    out.probabilities = std::span<const float>(scores_).first(
        view.token_ids.size() * static_cast<std::size_t>(depth_) * experts_);
    return out;
  }
  void on_sequence_end(hotset::sequence_id sequence) noexcept { notes_->ended.push_back(sequence); }

 private:
  listening_predictor(const hotset::geometry& shape, const config& options)
      : notes_(options.notes),
        depth_(options.depth),
        experts_(static_cast<std::size_t>(shape.experts)),
        scores_(static_cast<std::size_t>(shape.max_tokens_per_visit) *
                static_cast<std::size_t>(depth_) * experts_) {
    for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] = i % experts_ < top_k ? 0.25F : 0;
  }
  heard* notes_;
  std::int32_t depth_;
  std::size_t experts_;
  std::vector<float> scores_;
};

paging_config listened_to(heard& notes) {
  paging_config config;
  config.layout = layout_of(weights(), cache_scope::shared, "25%");
  config.gate.predictor = hotset::any_predictor::holding<listening_predictor>({.notes = &notes});
  return config;
}
hotset::active_evict::config release(hotset::release_point when) { return {.release = when}; }

void feed(expert_provider& experts, std::string_view prompt, std::string_view more) {
  engine decoder(weights(), experts);
  (void)decoder.forward(bytes_of(prompt));
  for (const auto byte : bytes_of(more)) (void)decoder.forward({&byte, 1});
}

TEST(tiny_moe_gate_hook, a_predictor_gets_each_step_and_each_layer_once_in_order) {
  heard notes;
  auto config = listened_to(notes);
  config.gate.prefetch = hotset::lab::make_prefetch("next_layer_top_k:depth=2");
  paged_experts<lru_pager> experts(weights(), config);
  feed(experts, "ab", "c");
  EXPECT_EQ(notes.depth, 2);
  EXPECT_EQ(notes.embeddings, weights().embedding().size());
  EXPECT_EQ(notes.width, static_cast<std::int32_t>(weights().config().hidden_size));
  ASSERT_EQ(notes.views.size(), 2 * (1 + layers));
  for (std::size_t i = 0; i < notes.views.size(); ++i) {
    const auto& view = notes.views[i];
    const auto step = i / (1 + layers);
    EXPECT_EQ(view.layer, static_cast<hotset::layer_id>(i % (1 + layers)) - 1);
    EXPECT_EQ(view.step, step);
    EXPECT_EQ(view.token_ids,
              step == 0 ? (std::vector<std::int32_t>{'a', 'b'}) : (std::vector<std::int32_t>{'c'}));
    EXPECT_THAT(view.sequences, Each(0U));
    EXPECT_EQ(view.sequences.size(), view.token_ids.size());
    const bool routed = view.layer != hotset::before_layers;
    EXPECT_EQ(view.hidden, routed ? view.token_ids.size() * weights().config().hidden_size : 0);
    EXPECT_EQ(view.probabilities, routed ? view.token_ids.size() * 32 : 0);
  }
  EXPECT_THAT(notes.ended, ElementsAre(0)) << "the engine's own";
  // Experts 0..3 of layers 0 and 1 were requested before the first layer too.
  EXPECT_EQ(experts.predictions().predicted, 2 * layers * top_k);
}

TEST(tiny_moe_gate_hook, only_policies_that_use_forecasts_get_a_predictor) {
  {
    heard notes;
    feed(*std::make_unique<paged_experts<lru_pager>>(weights(), listened_to(notes)), "ab", "c");
    EXPECT_THAT(notes.views, IsEmpty());
  }
  for (const auto when : {hotset::release_point::gate, hotset::release_point::end}) {
    heard notes;
    auto config = listened_to(notes);
    config.gate.pre_eviction = release(when);
    paged_experts<lru_pager> experts(weights(), config);
    feed(experts, text, "cde");
    EXPECT_EQ(notes.depth, 1);
    EXPECT_EQ(notes.views.size(), 4 * (1 + layers));
    EXPECT_GT(experts.stats().pre_evictions, 0U);
    EXPECT_EQ(experts.predictions().predicted, 0U) << "nothing is prefetched";
  }
}

TEST(tiny_moe_gate_hook, changed_ids_are_computed_and_the_routers_ids_are_learned) {
  heard notes;
  auto config = listened_to(notes);
  config.gate.pre_eviction = release(hotset::release_point::gate);
  config.gate.routing = hotset::lab::make_routing("budget_top_k");
  paged_experts<lru_pager> experts(weights(), config);
  EXPECT_FALSE(experts.is_exact());
  feed(experts, text.substr(0, 30), text.substr(30, 20));
  std::size_t bent = 0;
  for (const auto& view : notes.views) {
    bent += view.bent ? 1U : 0U;
    if (view.layer == 0) {
      EXPECT_FALSE(view.bent) << "no slot is freed before a step's first layer";
    }
  }
  EXPECT_GT(bent, 0U);
  config.gate.pre_eviction.reset();
  EXPECT_THROW(paged_experts<lru_pager>(weights(), config), hotset::lab::usage_error);
}

// --- by name

/// Weights of a learned-gate for this model, all 0: predictions must change no byte.
const std::string& gate_file() {
  static const trace_samples::temporary_folder folder;
  static const std::string path = [] {
    const auto& shape = weights().config();
    const auto gate = hotset::learned_gate::weights::create(
        {.layers = static_cast<std::int32_t>(shape.layers),
         .experts = static_cast<std::int32_t>(shape.experts),
         .d_model = static_cast<std::int32_t>(shape.hidden_size),
         .depth = 3,
         .width = 0});
    const auto bytes = hotset::support::saved(*gate);
    return folder.write("zeros.gate", {reinterpret_cast<const char*>(bytes.data()), bytes.size()})
        .string();
  }();
  return path;
}
/// Every predictor that an engine can use.
std::vector<std::string> live_predictors() {
  const auto& known = hotset::lab::known_policies().predictors;
  std::vector<std::string> names;
  for (const auto& row : known.rows())
    if (!row.traits.needs_recorded && known.make(row.name)) names.push_back(row.name);
  names.push_back("learned-gate:weights=" + gate_file());
  return names;
}

paging_choice looking_ahead(const std::string& predictor, const std::string& prefetch,
                            const std::string& pre_eviction) {
  paging_choice choice;
  choice.policies.predictor = predictor;
  choice.policies.prefetch = prefetch;
  choice.policies.pre_eviction = pre_eviction;
  return choice;
}
std::string words_of(const paging_choice& choice) {
  return choice.policies.predictor + ", " + choice.policies.prefetch + ", " +
         choice.policies.pre_eviction + ", " + choice.policies.eviction + ", " + choice.budget;
}
constexpr std::array pre_evictions{"none", "active_evict", "active_evict:release=end"};

/// All logits of a prompt of several tokens and its greedy continuation.
std::vector<float> greedy_logits(expert_provider& experts) {
  engine decoder(weights(), experts);
  auto row = decoder.forward(bytes_of(text.substr(0, 24)));
  std::vector<float> all(row.begin(), row.end());
  for (int i = 0; i < 10; ++i) {
    const auto token = static_cast<std::uint8_t>(largest(row.last(256)));
    row = decoder.forward({&token, 1});
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}
const std::vector<float>& resident_greedy() {
  static const std::vector<float> all = [] {
    resident_experts resident(weights());
    return greedy_logits(resident);
  }();
  return all;
}

// Three sequences in one batch: the second ends early, and the third takes its place.
TEST(tiny_moe_looking_ahead, sequences_that_start_and_end_change_no_byte) {
  const std::vector<serving_request> requests{
      {.prompt = bytes_of(text.substr(0, 20)), .tokens = 12},
      {.prompt = bytes_of("Q: what is 12 + 30? A:"), .tokens = 3},
      {.arrival = 6, .prompt = bytes_of(text.substr(30, 25)), .tokens = 6}};
  resident_experts resident(weights());
  const auto served = [&](expert_provider& experts) {
    kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 16});
    batch_engine decoder(weights(), experts, pool, {.max_tokens = 64});
    std::vector<std::vector<std::uint8_t>> out;
    for (const auto& one : serve(decoder, requests, {.max_sessions = 2}).requests)
      out.push_back(one.output);
    return out;
  };
  const auto wanted = served(resident);
  for (const auto& predictor : live_predictors())
    for (const auto* pre_eviction : pre_evictions) {
      auto choice = looking_ahead(predictor, "cumulative_probability:distance=2", pre_eviction);
      choice.policies.eviction = "importance";
      choice.budget = "12.5%";
      choice.max_tokens = 64;
      SCOPED_TRACE(words_of(choice));
      const auto paging = make_paging(weights(), choice, nothing_counted());
      EXPECT_EQ(served(*paging.experts), wanted);
      EXPECT_GT(paging.experts->predictions().predicted_and_routed, 0U);
    }
}

// 4 of 32 experts are routed: chance is 1 in 8.
TEST(tiny_moe_looking_ahead, online_predictors_beat_chance) {
  for (const char* predictor :
       {"next-router", "expert-map", "activation-matrix", "last-routed", "co-activation"})
    for (int depth = 1; depth <= 3; ++depth) {
      const auto choice =
          looking_ahead(predictor, "next_layer_top_k:depth=" + std::to_string(depth), "none");
      SCOPED_TRACE(words_of(choice));
      const auto paging = make_paging(weights(), choice, nothing_counted());
      engine decoder(weights(), *paging.experts);
      for (const auto words : {text, text.substr(20), text}) {
        decoder.reset();
        (void)decoder.forward(bytes_of(words.substr(0, 24)));
        for (const auto byte : bytes_of(words.substr(24))) (void)decoder.forward({&byte, 1});
      }
      const auto p = paging.experts->predictions();
      EXPECT_GT(p.predicted, 1000U);
      EXPECT_GT(p.predicted_and_routed * 5, p.predicted)
          << p.predicted_and_routed << " of " << p.predicted;
    }
}

// The map of the nearest embedding predicts layer 0; without embeddings there is no prediction.
TEST(tiny_moe_looking_ahead, an_expert_map_predicts_for_an_unseen_byte) {
  paging_config config;
  config.layout = layout_of(weights(), cache_scope::shared, "50%");
  config.gate.prefetch = hotset::lab::make_prefetch("next_layer_top_k");
  config.gate.predictor = hotset::any_predictor::holding<hotset::expert_map>();
  paged_experts<lru_pager> experts(weights(), config);
  engine decoder(weights(), experts);
  (void)decoder.forward(bytes_of(text));
  const auto before = experts.predictions().predicted;
  ASSERT_EQ(text.find('~'), std::string_view::npos);
  (void)decoder.forward(bytes_of("~"), request_kind::decode);
  EXPECT_EQ(experts.predictions().predicted - before, layers * top_k);
}

/// Records the ids of one visit after they were computed.
class selection_watch final : public expert_provider {
 public:
  explicit selection_watch(expert_provider& inner) : inner_(inner) {}
  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    inner_.run(visit, compute);
    for (std::size_t t = 0; t < visit.tokens; ++t) {
      const auto ids = visit.ids.subspan(t * top_k, top_k);
      const auto weight = visit.weights.subspan(t * top_k, top_k);
      float sum = 0;
      for (std::size_t k = 0; k < top_k; ++k) {
        sum += weight[k];
        kept += ids[k] >= 0 ? 1U : 0U;
        dropped += ids[k] < 0 ? 1U : 0U;
      }
      EXPECT_GE(ids[0], 0) << "layer " << visit.layer;
      EXPECT_NEAR(sum, 1.0F, 1e-5F) << "layer " << visit.layer;
    }
  }
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  std::size_t kept = 0, dropped = 0;

 private:
  expert_provider& inner_;
};

TEST(tiny_moe_looking_ahead, a_routing_within_the_freed_slots_keeps_the_best_of_every_token) {
  for (const char* pre_eviction : {"active_evict", "active_evict:release=end"})
    for (const char* routing : {"budget_top_k", "budget_top_k:keep_hits=true"}) {
      auto choice = looking_ahead("next-router", "no_prefetch", pre_eviction);
      choice.policies.routing = routing;
      SCOPED_TRACE(words_of(choice) + ", " + routing);
      const auto paging = make_paging(weights(), choice, nothing_counted());
      EXPECT_FALSE(paging.experts->is_exact());
      selection_watch watch(*paging.experts);
      const auto found = greedy_logits(watch);
      EXPECT_GT(watch.dropped, 0U);
      EXPECT_GT(watch.kept, watch.dropped);
      EXPECT_FALSE(same_bytes(resident_greedy(), found));
      for (const auto logit : found) ASSERT_TRUE(std::isfinite(logit));
    }
}

/// The engine's decisions and its recorded routing: two texts.
struct recording {
  std::uint64_t hash = 0;
  hotset::pager_stats stats{};
  hotset::prediction_score::counts predictions{};
  hotset::routing_trace trace;
};
recording record(const paging_choice& choice) {
  const auto paging = make_paging(weights(), choice, nothing_counted());
  tracing_experts tracing(weights(), *paging.experts, {.capacity = 300});
  {
    engine decoder(weights(), tracing);
    std::uint32_t sequence = 0;
    for (const auto words : {text.substr(0, 60), text.substr(40, 40)}) {
      decoder.reset();
      tracing.begin_sequence(sequence++);
      (void)decoder.forward(bytes_of(words.substr(0, 24)), request_kind::prefill);
      for (const auto byte : bytes_of(words.substr(24)))
        (void)decoder.forward({&byte, 1}, request_kind::decode);
    }
  }
  paging.experts->drain();
  return {paging.experts->decision_hash(), paging.experts->stats(), paging.experts->predictions(),
          tracing.take()};
}
hotset::lab::run_result replayed(const hotset::routing_trace& trace, const paging_choice& choice) {
  hotset::lab::sweep_request request;
  request.policies = {choice.policies};
  request.sizes = {hotset::lab::size_request::parse_slots("25%")};
  return hotset::lab::run_sweep(trace, request).results.front();
}

// Engine and simulator run the same code. Without prefetches, copy times affect nothing: all fills and evictions are
// equal.
TEST(tiny_moe_looking_ahead, a_replay_of_the_engines_trace_makes_the_same_decisions) {
  for (const char* predictor : {"activation-matrix", "co-activation", "last-routed"})
    for (const char* eviction : {"lru", "importance", "expert_map_priority"})
      for (const auto* pre_eviction : pre_evictions) {
        auto choice = looking_ahead(predictor, "no_prefetch", pre_eviction);
        choice.policies.eviction = eviction;
        SCOPED_TRACE(words_of(choice));
        const auto engine_side = record(choice);
        // A replay refuses a predictor that nothing goes by.
        if (choice.policies.eviction == "lru" && choice.policies.pre_eviction == "none")
          choice.policies.predictor = "recorded";
        const auto replay_side = replayed(engine_side.trace, choice);
        EXPECT_EQ(engine_side.hash, replay_side.decision_hash);
        EXPECT_EQ(engine_side.stats.hits, replay_side.stats.hits);
        EXPECT_EQ(engine_side.stats.pre_evictions, replay_side.stats.pre_evictions);
      }
}

TEST(tiny_moe_looking_ahead, a_replay_of_the_engines_trace_makes_the_same_requests) {
  for (const char* predictor : {"activation-matrix", "co-activation", "last-routed"})
    for (const char* prefetch : {"cumulative_probability:distance=2", "next_layer_top_k:depth=3"}) {
      const auto choice = looking_ahead(predictor, prefetch, "active_evict");
      SCOPED_TRACE(words_of(choice));
      const auto engine_side = record(choice);
      EXPECT_GT(engine_side.predictions.predicted_and_routed, 0U);
      EXPECT_EQ(engine_side.predictions, replayed(engine_side.trace, choice).outcome->predictions);
    }
}

}  // namespace
}  // namespace gate_hook_test
