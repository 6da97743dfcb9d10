// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/engine.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/status.hpp"
#include "paging_samples.hpp"
#include "random_source.hpp"
#include "sim_samples.hpp"
#include "tiny_moe/model/kv_pool.hpp"
#include "tiny_moe/studies/reference_check.hpp"

namespace engine_test {
namespace {

using namespace paging_samples;
using hotset::support::refusal;
using testing::HasSubstr;

// A provider that calls a function.
class experts_of final : public expert_provider {
 public:
  using function = std::function<void(const visit_inputs&, visit_compute&)>;
  explicit experts_of(function run) : run_(std::move(run)) {}
  void run(const visit_inputs& visit, visit_compute& compute) override { run_(visit, compute); }

 private:
  function run_;
};

// Weights of one layer, from the mapped file.
auto lookup_in(const visit_inputs& visit) {
  return [layer = static_cast<std::size_t>(visit.layer)](std::int32_t expert) {
    return weights().expert(layer, static_cast<std::size_t>(expert));
  };
}

std::string error_of(const experts_of::function& run) {
  experts_of provider(run);
  engine decoder(weights(), provider);
  auto said = refusal<provider_error>([&] { decoder.forward(bytes_of("some words")); });
  EXPECT_EQ(decoder.position(), 0U) << "the failed pass left something behind";
  return said;
}

TEST(tiny_moe_reference, every_prompt_agrees) {
  resident_experts experts(weights());
  const reference_tolerance tolerance;
  const auto report = check_reference(
      weights(), experts, std::filesystem::path(HOTSET_TINY_MOE_DIR) / "reference.safetensors");
  EXPECT_EQ(report.size(), 9U);
  std::size_t with_probabilities = 0;
  for (const auto& prompt : report) {
    EXPECT_LE(prompt.logits, tolerance.logits) << prompt.name;
    EXPECT_LE(prompt.weights, tolerance.weights) << prompt.name;
    EXPECT_LE(prompt.probabilities, tolerance.probabilities) << prompt.name;
    EXPECT_EQ(prompt.ids, prompt.tokens * 12 * 4) << prompt.name;
    EXPECT_EQ(prompt.ids_differing, 0U) << prompt.name;
    EXPECT_GE(prompt.greedy, 32U) << prompt.name;
    EXPECT_EQ(prompt.greedy_differing, 0U) << prompt.name;
    EXPECT_TRUE(prompt.agrees(tolerance)) << prompt.name;
    with_probabilities += prompt.probabilities > 0.0 ? 1U : 0U;
  }
  EXPECT_EQ(with_probabilities, 2U);
}

TEST(tiny_moe_reference, a_wrong_expert_is_seen) {
  experts_of neighbour([](const visit_inputs& visit, visit_compute& compute) {
    compute.all([&](std::int32_t expert) { return lookup_in(visit)((expert + 1) % 32); });
  });
  const auto report = check_reference(
      weights(), neighbour, std::filesystem::path(HOTSET_TINY_MOE_DIR) / "reference.safetensors");
  for (const auto& prompt : report) EXPECT_FALSE(prompt.agrees({})) << prompt.name;
}

TEST(tiny_moe_engine, every_layer_is_one_visit_of_all_tokens) {
  std::vector<std::string> seen;
  experts_of provider([&](const visit_inputs& visit, visit_compute& compute) {
    EXPECT_EQ(visit.ids.size(), visit.tokens * 4);
    EXPECT_EQ(visit.weights.size(), visit.tokens * 4);
    EXPECT_EQ(visit.logits.size(), visit.tokens * 32);
    EXPECT_EQ(visit.probabilities.size(), visit.tokens * 32);
    EXPECT_EQ(visit.hidden.size(), visit.tokens * 96);
    seen.push_back(std::to_string(visit.step) + "/" + to_string(visit.layer) + "/" +
                   std::to_string(visit.tokens) + "/" +
                   std::to_string(static_cast<int>(visit.kind)));
    compute.all(lookup_in(visit));
  });
  engine decoder(weights(), provider);
  decoder.forward(bytes_of("abc"));
  decoder.forward(bytes_of("d"));
  decoder.forward(bytes_of("ef"), request_kind::verify);
  ASSERT_EQ(seen.size(), 36U);
  EXPECT_EQ(seen[0], "0/0/3/1");
  EXPECT_EQ(seen[11], "0/11/3/1");
  EXPECT_EQ(seen[12], "1/0/1/0");
  EXPECT_EQ(seen[35], "2/11/2/2");
  EXPECT_EQ(decoder.steps(), 3U);
}

TEST(tiny_moe_engine, a_dropped_rank_adds_nothing) {
  // Dropping a rank is the same as computing it with weight 0.
  experts_of dropping([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; ++t) visit.ids[t * 4 + 3] = -1;
    compute.all(lookup_in(visit));
  });
  experts_of weightless([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; ++t) visit.weights[t * 4 + 3] = 0.0F;
    compute.all(lookup_in(visit));
  });
  const auto dropped = logits_of(dropping, text);
  const auto zeroed = logits_of(weightless, text);
  for (std::size_t i = 0; i < dropped.size(); ++i) ASSERT_EQ(dropped[i], zeroed[i]);
  EXPECT_FALSE(same_bytes(dropped, resident_logits(text)));
}

TEST(tiny_moe_engine, an_expert_that_is_named_twice_for_a_token_counts_twice) {
  experts_of by_token([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; ++t) visit.ids[t * 4 + 3] = visit.ids[t * 4];
    compute.all(lookup_in(visit));
  });
  experts_of by_expert([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; ++t) visit.ids[t * 4 + 3] = visit.ids[t * 4];
    for (std::int32_t e = 0; e < 32; ++e) compute.partial({&e, 1}, lookup_in(visit));
  });
  const auto left = logits_of(by_token, text);
  const auto right = logits_of(by_expert, text);
  for (std::size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(left[i], right[i], 1e-3);
}

TEST(tiny_moe_engine, a_broken_provider_is_reported) {
  static const auto only = [](std::int32_t token, const visit_inputs& visit,
                              visit_compute& compute) {
    compute({&token, 1}, lookup_in(visit));
  };
  static const auto take = [](std::size_t floats, const visit_inputs& visit,
                              visit_compute& compute) {
    const std::int32_t token = 1;
    compute.take({&token, 1}, visit.hidden.first(floats));
  };
  const std::vector<std::pair<experts_of::function, const char*>> rows{
      {[](auto&, auto&) {}, "layer 0: the provider left out expert"},
      {[](auto&, auto& compute) { compute.all([](std::int32_t) { return expert_tensors{}; }); },
       "layer 0: the provider has no weights for expert"},
      {[](auto& visit, auto& compute) {
         compute.all(lookup_in(visit));
         compute.all(lookup_in(visit));
       },
       "twice"},
      {[](auto& visit, auto& compute) { only(10, visit, compute); },
       "named token 10; accepted: 0..9"},
      {[](auto& visit, auto& compute) { only(-1, visit, compute); },
       "named token -1; accepted: 0..9"},
      {[](auto& visit, auto& compute) {
         visit.ids[0] = 32;
         compute.all(lookup_in(visit));
       },
       "named expert 32; accepted: 0..31"},
      {[](auto& visit, auto& compute) {
         const std::int32_t expert = -2;
         compute.partial({&expert, 1}, lookup_in(visit));
       },
       "named expert -2; accepted: 0..31"},
      {[](auto& visit, auto& compute) { take(96, visit, compute); },
       "gave 96 floats; accepted: 384"},
      {[](auto& visit, auto& compute) {
         compute.all(lookup_in(visit));
         take(384, visit, compute);
       },
       "twice"},
      {[](auto& visit, auto& compute) {
         for (std::int32_t e = 0; e < 32; ++e)
           if (e != visit.ids[5]) compute.partial({&e, 1}, lookup_in(visit));
       },
       "left out expert"},
  };
  for (const auto& [run, says] : rows) EXPECT_THAT(error_of(run), HasSubstr(says));
}

TEST(tiny_moe_engine, rewind_and_reset_forget_the_tokens) {
  resident_experts experts(weights());
  engine decoder(weights(), experts);
  const auto whole = resident_logits("abcd");
  decoder.forward(bytes_of("abxyz"));
  decoder.rewind(2);
  EXPECT_EQ(decoder.position(), 2U);
  const auto rest = decoder.forward(bytes_of("cd"));
  EXPECT_TRUE(same_bytes(std::span(whole).last(512), rest));
  decoder.reset();
  EXPECT_EQ(decoder.position(), 0U);
  EXPECT_TRUE(same_bytes(whole, decoder.forward(bytes_of("abcd"))));
}

TEST(tiny_moe_engine, limits_are_kept) {
  resident_experts experts(weights());
  engine decoder(weights(), experts, {.max_positions = 8, .max_tokens = 4});
  EXPECT_THROW(decoder.forward({}), std::length_error);
  EXPECT_THROW(decoder.forward(bytes_of("abcde")), std::length_error);
  decoder.forward(bytes_of("abcd"));
  decoder.forward(bytes_of("efg"));
  EXPECT_THROW(decoder.forward(bytes_of("hi")), std::length_error);
  decoder.forward(bytes_of("h"));
  EXPECT_THROW(decoder.forward(bytes_of("i")), std::length_error);
  EXPECT_EQ(decoder.position(), 8U);
  EXPECT_THROW(engine(weights(), experts, {.max_positions = 2049}), std::invalid_argument);
  EXPECT_THROW(engine(weights(), experts, {.max_positions = 8, .max_tokens = 9}),
               std::invalid_argument);
}

TEST(tiny_moe_engine, the_last_position_works) {
  resident_experts experts(weights());
  EXPECT_EQ(engine(weights(), experts).max_positions(), 2048U);
  constexpr std::size_t limit = 300;
  engine decoder(weights(), experts, {.max_positions = limit});
  std::vector<std::uint8_t> tokens(limit);
  for (std::size_t i = 0; i < limit; ++i) {
    tokens[i] = static_cast<std::uint8_t>(text[i % text.size()]);
  }
  const auto logits = decoder.forward(tokens);
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  const std::vector<float> last(logits.end() - 256, logits.end());
  decoder.rewind(limit - 1);
  EXPECT_TRUE(same_bytes(last, decoder.forward(std::span(tokens).last(1))));
  EXPECT_THROW(decoder.forward(std::span(tokens).last(1)), std::length_error);
}

// Texts that share prefixes, with the logits that each gives alone.
struct known_text {
  std::vector<std::uint8_t> tokens;
  std::vector<float> logits;
};

const std::vector<known_text>& known_texts() {
  static const std::vector<known_text> all = [] {
    std::vector<known_text> out;
    for (const std::string& words :
         {std::string(text), std::string(text.substr(0, 40)) + " of the council, and then",
          std::string("{\"call\": \"query_db\", \"id\": 5}"), std::string("a"),
          std::string(text.substr(0, 33))}) {
      out.push_back({bytes_of(words), resident_logits(words)});
    }
    return out;
  }();
  return all;
}

// A sequence that decodes one of the texts.
struct walk {
  sequence_id sequence = 0;
  std::size_t text = 0;
  std::size_t rows = 0;  // in the next pass

  [[nodiscard]] const known_text& known() const { return known_texts()[text]; }
};

// Random passes over several sequences: chunks of any size, interleaved, started, cut and closed at any time. Returns
// the number of compared rows.
std::size_t mix_randomly(hotset::support::random_source& random, batch_engine& decoder,
                         int passes) {
  kv_pool& pool = decoder.pool();
  std::vector<walk> walks;
  std::size_t compared = 0;
  for (int i = 0; i < passes; ++i) {
    if (walks.size() < 2 || random.one_in(3)) {
      walks.push_back({.sequence = pool.open(), .text = random.below(known_texts().size())});
    }
    std::vector<std::size_t> order;
    for (std::size_t w = 0; w < walks.size(); ++w) {
      walk& one = walks[w];
      const std::size_t before = pool.length(one.sequence);
      if (random.one_in(8)) pool.truncate(one.sequence, random.below(before + 1));
      const std::span<const std::uint8_t> tokens = one.known().tokens;
      if (random.one_in(2)) {
        (void)pool.reuse(one.sequence, tokens.subspan(pool.length(one.sequence)));
      }
      const std::size_t left = tokens.size() - pool.length(one.sequence);
      one.rows = std::min(left, random.one_in(2) ? 1 : random.below(12));
      const std::size_t room = decoder.max_tokens() - order.size();
      one.rows = std::min(one.rows, room);
      if (!pool.reserve(one.sequence, one.rows)) one.rows = 0;
      order.insert(order.end(), one.rows, w);
    }
    for (std::size_t t = order.size(); t > 1; --t) std::swap(order[t - 1], order[random.below(t)]);
    std::vector<token_row> rows;
    std::vector<std::size_t> positions;
    for (const std::size_t w : order) {
      const walk& one = walks[w];
      const auto earlier =
          static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [&](const token_row& r) {
            return r.sequence == one.sequence;
          }));
      positions.push_back(pool.length(one.sequence) + earlier);
      rows.push_back({one.sequence, one.known().tokens[positions.back()]});
    }
    if (!rows.empty()) {
      const auto logits = decoder.forward(rows, request_kind::prefill);
      for (std::size_t t = 0; t < rows.size(); ++t, ++compared) {
        const auto wanted =
            std::span(walks[order[t]].known().logits).subspan(positions[t] * 256, 256);
        if (!same_bytes(logits.subspan(t * 256, 256), wanted)) {
          ADD_FAILURE() << "pass " << i << ", row " << t << " at position " << positions[t];
          return compared;
        }
      }
    }
    std::erase_if(walks, [&](const walk& one) {
      const bool ends = pool.length(one.sequence) == one.known().tokens.size() || random.one_in(12);
      if (ends) pool.close(one.sequence);
      return ends;
    });
  }
  for (const walk& one : walks) pool.close(one.sequence);
  EXPECT_EQ(pool.in_use(), 0U);
  return compared;
}

TEST(tiny_moe_batch_engine, a_token_gives_the_same_bytes_in_every_mix_of_sequences) {
  std::size_t compared = 0;
  std::uint64_t hits = 0;
  std::uint64_t evictions = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    hotset::support::random_source random(seed);
    resident_experts experts(weights());
    kv_pool pool(weights().config(),
                 {.block_tokens = 1 + random.below(20), .blocks = 5 + random.below(25)});
    batch_engine decoder(weights(), experts, pool, {.max_tokens = 1 + random.below(40)});
    compared += mix_randomly(random, decoder, 60);
    hits += pool.stats().hits;
    evictions += pool.stats().evictions;
  }
  EXPECT_GT(compared, 2000U);  // otherwise the comparison proves nothing
  EXPECT_GT(hits, 100U);
  EXPECT_GT(evictions, 100U);
}

TEST(tiny_moe_batch_engine, a_failed_pass_leaves_every_sequence_unchanged) {
  bool breaks = false;
  kv_pool pool(weights().config(), {.block_tokens = 2, .blocks = 6});
  experts_of experts([&](const visit_inputs& visit, visit_compute& compute) {
    EXPECT_FALSE(pool.drained());
    EXPECT_EQ(pool.shrink(6), hotset::status::busy);
    EXPECT_EQ(pool.grow(6), hotset::status::busy);
    if (!breaks || visit.layer < 7) compute.all(lookup_in(visit));
  });
  batch_engine decoder(weights(), experts, pool, {.max_positions = 6, .max_tokens = 8});
  const auto first = pool.open();
  const auto second = pool.open();
  const auto forward = [&](std::string_view to_first, std::string_view to_second) {
    std::vector<token_row> rows;
    for (const std::uint8_t token : bytes_of(to_first)) rows.push_back({first, token});
    for (const std::uint8_t token : bytes_of(to_second)) rows.push_back({second, token});
    const auto logits = decoder.forward(rows, request_kind::prefill);
    return std::vector<float>(logits.begin(), logits.end());
  };
  forward("abc", "x");
  const auto expect_unchanged = [&] {
    EXPECT_TRUE(pool.drained());
    EXPECT_EQ(pool.in_use(), 3U);
    EXPECT_EQ(pool.length(first), 3U);
    EXPECT_EQ(pool.length(second), 1U);
  };
  const auto error_of_rows = [&](std::string_view to_first, std::string_view to_second) {
    auto said = refusal<std::length_error>([&] { forward(to_first, to_second); });
    expect_unchanged();
    return said;
  };
  breaks = true;
  EXPECT_THROW(forward("de", "yz"), provider_error);
  expect_unchanged();
  breaks = false;
  EXPECT_EQ(error_of_rows("", ""), "forward: 0 rows; accepted: 1..8");
  EXPECT_EQ(error_of_rows("defghi", "yzz"), "forward: 9 rows; accepted: 1..8");
  EXPECT_EQ(error_of_rows("", "yzyzyz"), "forward: 6 tokens at position 1 of 6; accepted: 1..5");
  EXPECT_EQ(pool.shrink(4), hotset::status::ok);
  EXPECT_EQ(error_of_rows("de", "yz"), "forward: 2 tokens need 1 KV blocks; accepted: 0");
  EXPECT_EQ(pool.grow(6), hotset::status::ok);
  const auto logits = forward("de", "yz");
  EXPECT_TRUE(same_bytes(std::span(logits).first(512),
                         std::span<const float>(resident_logits("abcde")).last(512)));
  EXPECT_TRUE(same_bytes(std::span(logits).last(512),
                         std::span<const float>(resident_logits("xyz")).last(512)));
}

// Records the tokens and the ended sequences that it is notified of.
class listening_experts final : public expert_provider {
 public:
  void on_step(const step_inputs& step) override {
    token_ids.assign(step.token_ids.begin(), step.token_ids.end());
    sequences.assign(step.sequences.begin(), step.sequences.end());
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    ++visits;
    EXPECT_EQ(visit.tokens, token_ids.size());
    EXPECT_TRUE(std::ranges::equal(visit.token_ids, token_ids));
    EXPECT_TRUE(std::ranges::equal(visit.sequences, sequences));
    compute.all(lookup_in(visit));
  }
  void on_sequence_end(std::uint32_t sequence) noexcept override { ended.push_back(sequence); }

  std::vector<std::int32_t> token_ids;  // of the last pass
  std::vector<std::uint32_t> sequences;
  std::vector<std::uint32_t> ended;
  std::size_t visits = 0;
};

TEST(tiny_moe_batch_engine, a_provider_is_notified_of_tokens_and_ended_sequences) {
  listening_experts experts;
  kv_pool pool(weights().config(), {.block_tokens = 4, .blocks = 8});
  batch_engine decoder(weights(), experts, pool);
  const auto first = pool.open();
  const auto second = pool.open();
  const std::vector<token_row> rows{{first, 'a'}, {second, 'x'}, {first, 'b'}, {second, 0xFF}};
  decoder.forward(rows, request_kind::prefill);
  EXPECT_THAT(experts.token_ids, testing::ElementsAre('a', 'x', 'b', 255));
  EXPECT_THAT(experts.sequences, testing::ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(experts.visits, 12U) << "one a layer, of all rows";
  decoder.close(first);
  EXPECT_THAT(experts.ended, testing::ElementsAre(0));
  const auto third = pool.open();  // takes the first one's place, but has a new number
  EXPECT_EQ(third, first);
  decoder.forward(std::vector<token_row>{{third, 'q'}}, request_kind::prefill);
  EXPECT_THAT(experts.sequences, testing::ElementsAre(2));
  decoder.close(third);
  decoder.close(second);
  EXPECT_THAT(experts.ended, testing::ElementsAre(0, 2, 1));
}

TEST(tiny_moe_engine, a_reset_ends_the_sequence_and_so_does_the_engines_end) {
  listening_experts experts;
  {
    engine decoder(weights(), experts);
    decoder.reset();  // no token was fed, so no sequence ends
    EXPECT_THAT(experts.ended, testing::IsEmpty());
    decoder.forward(bytes_of("ab"));
    EXPECT_THAT(experts.sequences, testing::ElementsAre(0, 0));
    decoder.rewind(1);
    decoder.forward(bytes_of("c"));
    EXPECT_THAT(experts.sequences, testing::ElementsAre(0));
    decoder.reset();
    EXPECT_THAT(experts.ended, testing::ElementsAre(0));
    decoder.forward(bytes_of("d"));
    EXPECT_THAT(experts.sequences, testing::ElementsAre(1));
  }
  EXPECT_THAT(experts.ended, testing::ElementsAre(0, 1));
}

}  // namespace
}  // namespace engine_test
