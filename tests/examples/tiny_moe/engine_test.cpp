// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tiny_moe/reference_check.hpp"

namespace {

using namespace tiny_moe;
using testing::HasSubstr;

constexpr std::string_view text =
    "The ledger of the house was kept in two columns: def add(a, b): return a + b; 17 + 25 = 42.";

const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}

std::vector<std::uint8_t> bytes_of(std::string_view words) { return {words.begin(), words.end()}; }

bool same_bytes(std::span<const float> left, std::span<const float> right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
}

// A provider made of a function.
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

std::vector<float> logits_of(expert_provider& provider, std::string_view words) {
  engine decoder(weights(), provider);
  const auto logits = decoder.forward(bytes_of(words));
  return {logits.begin(), logits.end()};
}

std::vector<float> resident_logits(std::string_view words) {
  resident_experts experts(weights());
  return logits_of(experts, words);
}

std::string error_of(const experts_of::function& run) {
  experts_of provider(run);
  engine decoder(weights(), provider);
  try {
    decoder.forward(bytes_of("some words"));
  } catch (const provider_error& error) {
    EXPECT_EQ(decoder.position(), 0U);  // the failed pass left nothing behind
    return error.what();
  }
  return "no error";
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

TEST(tiny_moe_engine, a_prompt_gives_the_same_bytes_as_its_tokens_one_by_one) {
  const auto tokens = bytes_of(text);
  const auto whole = resident_logits(text);
  for (const std::size_t stride : {1U, 2U, 7U, 32U, 64U}) {
    resident_experts experts(weights());
    engine decoder(weights(), experts);
    std::vector<float> stepped;
    for (std::size_t t = 0; t < tokens.size(); t += stride) {
      const auto part = std::span(tokens).subspan(t, std::min(stride, tokens.size() - t));
      const auto logits = decoder.forward(part);
      stepped.insert(stepped.end(), logits.begin(), logits.end());
    }
    EXPECT_TRUE(same_bytes(whole, stepped)) << stride << " tokens at a time";
  }
}

TEST(tiny_moe_engine, any_grouping_of_tokens_gives_the_same_bytes) {
  const auto whole = resident_logits(text);
  for (const std::size_t groups : {1U, 2U, 3U, 13U, 91U}) {
    experts_of provider([&](const visit_inputs& visit, visit_compute& compute) {
      for (std::size_t g = 0; g < groups; ++g) {
        std::vector<std::int32_t> members;  // scattered, and last first
        for (std::size_t t = visit.tokens; t-- > 0;) {
          if (t * 7 % groups == g) members.push_back(static_cast<std::int32_t>(t));
        }
        compute(members, lookup_in(visit));
      }
    });
    EXPECT_TRUE(same_bytes(whole, logits_of(provider, text))) << groups << " groups";
  }
}

TEST(tiny_moe_engine, weights_are_read_where_the_lookup_points) {
  // What a slot cache does: the bytes of one expert at a time, copied elsewhere.
  std::array<std::vector<std::uint16_t>, 3> slot;
  experts_of provider([&](const visit_inputs& visit, visit_compute& compute) {
    compute.all([&](std::int32_t expert) {
      const auto tensors = weights().expert_bytes(static_cast<std::size_t>(visit.layer),
                                                  static_cast<std::size_t>(expert));
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(tensors[i].size(), 7680U);
        slot[i].assign(tensors[i].size() / 2, 0);
        std::memcpy(slot[i].data(), tensors[i].data(), tensors[i].size());
      }
      return expert_tensors{slot[0].data(), slot[1].data(), slot[2].data()};
    });
  });
  EXPECT_EQ(weights().config().expert_bytes(), 23040U);
  EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(provider, text)));
}

// What a device does: the rows of a group of tokens are computed elsewhere and handed over.
std::vector<float> outputs_of(const visit_inputs& visit, std::span<const std::int32_t> tokens) {
  std::vector<float> out(tokens.size() * visit.top_k * visit.hidden_size, 7.0F);
  const auto inner = weights().config().inner_size;
  std::vector<float> scratch(expert_scratch(visit.hidden_size, inner, 1));
  for (std::size_t i = 0; i < tokens.size() * visit.top_k; ++i) {
    const auto token = tokens[i / visit.top_k];
    const auto id = visit.ids[static_cast<std::size_t>(token) * visit.top_k + i % visit.top_k];
    const expert_row row{.token = token, .place = static_cast<std::int32_t>(i)};
    if (id != -1)
      run_expert(
          weights().expert(static_cast<std::size_t>(visit.layer), static_cast<std::size_t>(id)),
          visit.hidden_size, inner, visit.hidden.data(), {&row, 1}, out.data(), scratch.data());
  }
  return out;
}

TEST(tiny_moe_engine, outputs_that_were_computed_elsewhere_give_the_same_bytes) {
  experts_of elsewhere([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; t += 2) visit.ids[t * 4 + 3] = -1;
    for (const std::size_t odd : {1U, 0U}) {
      std::vector<std::int32_t> tokens;
      for (std::size_t t = odd; t < visit.tokens; t += 2)
        tokens.push_back(static_cast<std::int32_t>(t));
      compute.take(tokens, outputs_of(visit, tokens));
    }
  });
  experts_of here([](const visit_inputs& visit, visit_compute& compute) {
    for (std::size_t t = 0; t < visit.tokens; t += 2) visit.ids[t * 4 + 3] = -1;
    compute.all(lookup_in(visit));
  });
  EXPECT_TRUE(same_bytes(logits_of(elsewhere, text), logits_of(here, text)));
}

TEST(tiny_moe_engine, a_split_by_expert_agrees_but_not_to_the_bit) {
  experts_of provider([](const visit_inputs& visit, visit_compute& compute) {
    for (std::int32_t first = 31; first >= 0; first -= 8) {
      std::vector<std::int32_t> part;
      for (std::int32_t e = first; e > first - 8; --e) part.push_back(e);
      compute.partial(part, lookup_in(visit));
    }
  });
  const auto whole = resident_logits(text);
  const auto split = logits_of(provider, text);
  ASSERT_EQ(whole.size(), split.size());
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], split[i], 1e-3);
  EXPECT_FALSE(same_bytes(whole, split));
}

TEST(tiny_moe_engine, every_layer_is_one_visit_of_all_tokens) {
  std::vector<std::string> seen;
  experts_of provider([&](const visit_inputs& visit, visit_compute& compute) {
    EXPECT_EQ(visit.ids.size(), visit.tokens * 4);
    EXPECT_EQ(visit.weights.size(), visit.tokens * 4);
    EXPECT_EQ(visit.logits.size(), visit.tokens * 32);
    EXPECT_EQ(visit.probabilities.size(), visit.tokens * 32);
    EXPECT_EQ(visit.hidden.size(), visit.tokens * 96);
    seen.push_back(std::to_string(visit.step) + "/" + std::to_string(visit.layer) + "/" +
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
  EXPECT_THAT(error_of([](const visit_inputs&, visit_compute&) {}),
              HasSubstr("layer 0: the provider left out expert"));
  EXPECT_THAT(error_of([](const visit_inputs&, visit_compute& compute) {
                compute.all([](std::int32_t) { return expert_tensors{}; });
              }),
              HasSubstr("layer 0: the provider has no weights for expert"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                compute.all(lookup_in(visit));
                compute.all(lookup_in(visit));
              }),
              HasSubstr("twice"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                const std::int32_t token = 10;
                compute({&token, 1}, lookup_in(visit));
              }),
              HasSubstr("named token 10; accepted: 0..9"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                const std::int32_t token = -1;
                compute({&token, 1}, lookup_in(visit));
              }),
              HasSubstr("named token -1; accepted: 0..9"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                visit.ids[0] = 32;
                compute.all(lookup_in(visit));
              }),
              HasSubstr("named expert 32; accepted: 0..31"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                const std::int32_t expert = -2;
                compute.partial({&expert, 1}, lookup_in(visit));
              }),
              HasSubstr("named expert -2; accepted: 0..31"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                const std::int32_t token = 1;
                compute.take({&token, 1}, visit.hidden.first(96));
              }),
              HasSubstr("gave 96 floats; accepted: 384"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                compute.all(lookup_in(visit));
                const std::int32_t token = 1;
                compute.take({&token, 1}, visit.hidden.first(384));
              }),
              HasSubstr("twice"));
  EXPECT_THAT(error_of([](const visit_inputs& visit, visit_compute& compute) {
                for (std::int32_t e = 0; e < 32; ++e) {
                  if (e != visit.ids[5]) compute.partial({&e, 1}, lookup_in(visit));
                }
              }),
              HasSubstr("left out expert"));
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

}  // namespace
