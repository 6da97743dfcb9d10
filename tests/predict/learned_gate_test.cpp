// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/learned_gate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/policy/any/any_predictor.hpp"
#include "predictor_samples.hpp"
#include "random_source.hpp"
#include "saved_gates.hpp"

namespace hotset::learned_gate_test {
namespace {

using testing::Each;
using testing::HasSubstr;
using bytes = std::vector<std::byte>;
using floats = std::vector<float>;
using weights = learned_gate::weights;
using dimensions = learned_gate::dimensions;

geometry shape_of(std::int32_t layers, std::int32_t experts, std::int32_t tokens = 1) {
  return {.layers = layers, .experts = experts, .top_k = 1, .max_tokens_per_visit = tokens};
}
const std::vector<std::int32_t> some_ids(64, 0);

routing_view view_of(layer_id layer, const floats& hidden, std::size_t tokens) {
  return {.layer = layer, .experts = std::span(some_ids).first(tokens), .hidden = hidden};
}
void fill(std::span<float> part, const floats& values) {
  ASSERT_EQ(part.size(), values.size());
  std::ranges::copy(values, part.begin());
}
learned_gate gate_of(const geometry& shape, weights trained, std::int32_t depth) {
  return *learned_gate::create(
      shape, {.depth = depth, .trained = std::make_shared<const weights>(std::move(trained))});
}
weights random_weights(const dimensions& size, std::uint64_t seed) {
  auto out = *weights::create(size);
  support::random_source random(seed);
  support::each_network(out, [&](const auto& net) {
    support::each_value(
        net, [&](float& v) { v = static_cast<float>(random.below(2001)) / 1000.0F - 1.0F; });
  });
  return out;
}

TEST(learned_gate, each_layer_and_distance_has_a_network_of_its_own) {
  for (std::int32_t layers = 2; layers <= 7; ++layers)
    for (std::int32_t depth = 1; depth < layers; ++depth) {
      auto trained = *weights::create({layers, 1, 1, depth, 1});
      const auto& size = trained.size();
      EXPECT_EQ(size.values(), 4U);
      float next = 1;
      support::each_network(trained, [&](const auto& net) {
        support::each_value(net, [&](float& v) {
          EXPECT_EQ(v, 0.0F) << "no other network's";
          v = next++;
        });
      });
      EXPECT_EQ(next, 1 + 4 * static_cast<float>(size.networks()));
    }
}

TEST(learned_gate, agrees_with_the_rule_written_out) {
  support::random_source random(9);
  for (const std::int32_t width : {0, 1, 19}) {
    constexpr std::size_t tokens = 3, experts = 5, d_model = 13;
    constexpr std::int32_t layers = 5, depth = 3;
    const dimensions size{layers, experts, d_model, depth, width};
    const auto trained = random_weights(size, 7);
    auto gate = gate_of(shape_of(layers, experts, tokens), trained, depth);
    floats hidden(tokens * d_model);
    for (auto& v : hidden) v = static_cast<float>(random.below(2001)) / 500.0F - 2.0F;
    for (const auto layer : each<layer_id>(layers - 1)) {
      const auto got = gate.expect(view_of(layer, hidden, tokens), {}, 0);
      ASSERT_EQ(got.probabilities.size(), tokens * depth * experts);
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::int32_t d = 1; d <= depth; ++d) {
          const auto row = got.probabilities.subspan(
              (t * depth + static_cast<std::size_t>(d) - 1) * experts, experts);
          if (layer + d >= layers) {
            EXPECT_THAT(row, Each(0.0F));
            continue;
          }
          const auto net = trained.of(layer, d);
          const auto times = [](std::span<const float> m, std::span<const float> b,
                                const std::vector<double>& x) {
            std::vector<double> out(b.begin(), b.end());
            for (std::size_t i = 0; i < out.size(); ++i)
              for (std::size_t j = 0; j < x.size(); ++j)
                out[i] += double{m[i * x.size() + j]} * x[j];
            return out;
          };
          std::vector<double> x(hidden.begin() + static_cast<std::ptrdiff_t>(t * d_model),
                                hidden.begin() + static_cast<std::ptrdiff_t>((t + 1) * d_model));
          if (width > 0) {
            x = times(net.hidden, net.hidden_bias, x);
            for (auto& v : x) v = std::max(v, 0.0);
          }
          auto want = times(net.scores, net.scores_bias, x);
          double sum = 0;
          for (auto& v : want) sum += v = std::exp(v);
          for (std::size_t e = 0; e < experts; ++e) EXPECT_NEAR(row[e], want[e] / sum, 1e-5);
        }
    }
  }
}

TEST(learned_gate, looks_less_far_than_its_weights_go) {
  const auto trained = random_weights({4, 3, 2, 3, 4}, 5);
  auto far = gate_of(shape_of(4, 3), trained, 3);
  auto near = gate_of(shape_of(4, 3), trained, 1);
  const floats hidden{0.5F, -1};
  const auto all = far.expect(view_of(1_layer, hidden, 1), {}, 0).probabilities;
  const auto got = near.expect(view_of(1_layer, hidden, 1), {}, 0);
  EXPECT_EQ(got.depth, 1);
  EXPECT_THAT(got.probabilities, testing::ElementsAreArray(all.first(3)));
}

TEST(learned_gate, is_empty_if_the_view_lacks_inputs) {
  auto gate = gate_of(shape_of(2, 3, 2), random_weights({2, 3, 2, 1, 4}, 5), 1);
  const floats hidden(8, 0.5F);
  const auto size = [&](layer_id layer, std::size_t values, std::size_t tokens) {
    auto view = view_of(layer, hidden, tokens);
    view.hidden = std::span(hidden).first(values);
    return gate.expect(view, {}, 0).probabilities.size();
  };
  EXPECT_EQ(size(0_layer, 2, 1), 3U);
  EXPECT_EQ(size(0_layer, 4, 2), 6U);
  EXPECT_EQ(size(0_layer, 0, 0), 0U);
  EXPECT_EQ(size(0_layer, 0, 1), 0U) << "no hidden states";
  EXPECT_EQ(size(0_layer, 3, 1), 0U) << "no whole number of tokens";
  EXPECT_EQ(size(0_layer, 4, 1), 0U) << "those of a wider model";
  EXPECT_EQ(size(0_layer, 6, 3), 0U) << "more tokens than announced";
  EXPECT_EQ(size(1_layer, 2, 1), 0U) << "nothing comes after the last layer";
  EXPECT_EQ(size(layer_id{-1}, 2, 1), 0U);
}

/// File of one network: kind, version and dimensions, then 1, -2 and 1/2.
bytes golden() {
  bytes out(44);
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<std::byte>("hslearng"[i]);
  std::size_t at = 8;
  for (const std::uint32_t n : {1U, 2U, 1U, 2U, 1U, 0U, 0x3f800000U, 0xc0000000U, 0x3f000000U}) {
    out = support::with_number(out, at, n);
    at += 4;
  }
  return out;
}

TEST(learned_gate, is_read_from_bytes_that_every_machine_reads_alike) {
  auto trained = *weights::create({2, 1, 2, 1, 0});
  fill(trained.of(0_layer, 1).scores, {1, -2});
  fill(trained.of(0_layer, 1).scores_bias, {0.5F});
  const auto loaded = weights::load(golden());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->size(), trained.size());
  EXPECT_EQ(support::saved(*loaded), support::saved(trained));
  EXPECT_EQ(support::saved(*loaded), golden());
  const auto large = support::saved(random_weights({6, 7, 5, 4, 3}, 11));
  EXPECT_EQ(support::saved(*weights::load(large)), large);
}

TEST(learned_gate, refuses_bytes_that_are_no_weights) {
  const auto why = [](std::span<const std::byte> of) { return support::why(weights::load(of)); };
  const auto good = support::saved(random_weights({3, 2, 2, 2, 1}, 1));
  EXPECT_EQ(why(good), "accepted");
  support::expect_other_lengths_refused(good, why);
  const auto changed = [&](std::size_t at, std::uint32_t n) {
    return why(support::with_number(good, at, n));
  };
  EXPECT_EQ(changed(0, 0),
            "no learned_gate weights, accepted: those that python3 -m hotset train-gate writes");
  EXPECT_EQ(changed(8, 2), "learned_gate weights of version 2, accepted: 1");
  EXPECT_EQ(changed(12, 1), "learned_gate layers = 1, accepted: 2..65536");
  EXPECT_EQ(changed(16, 0), "learned_gate experts = 0, accepted: 1..65536");
  EXPECT_EQ(changed(20, 0xffffffffU), "learned_gate d_model = 2147483647, accepted: 1..1048576");
  EXPECT_EQ(changed(24, 3), "learned_gate depth = 3, accepted: 1..2");
  EXPECT_EQ(changed(28, 1048577), "learned_gate width = 1048577, accepted: 0..1048576");
  EXPECT_THAT(changed(28, 2), HasSubstr(" bytes, accepted: "));
  EXPECT_EQ(changed(32, 0x7fc00000U),
            "learned_gate weight 0 is not finite, accepted: finite numbers");
  EXPECT_EQ(changed(good.size() - 4, 0xff800000U), "learned_gate weight " +
                                                       std::to_string((good.size() - 32) / 4 - 1) +
                                                       " is not finite, accepted: finite numbers");
}

TEST(learned_gate, a_header_alone_takes_no_memory) {
  const auto why = [](const dimensions& size) { return support::why(weights::create(size)); };
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(why({65536, 65536, 1 << 20, 65535, 1 << 20}),
              HasSubstr("accepted: at most 17179869184 bytes"));
  EXPECT_THAT(why({3, 65536, 1 << 20, 1, 0}), HasSubstr("2 networks x 68719542272 numbers"));
  EXPECT_EQ(why({most, 1, 1, 1, 0}), "learned_gate layers = 2147483647, accepted: 2..65536");
  EXPECT_EQ(why({2, 1, 1, 0, 0}), "learned_gate depth = 0, accepted: 1..1");
  // A file of 32 bytes that claims 16 GiB.
  auto lie = golden();
  lie.resize(32);
  lie[16] = lie[20] = std::byte{0};
  lie[17] = std::byte{64};  // experts: 16384
  lie[22] = std::byte{4};   // d_model: 262144
  EXPECT_THAT(weights::load(lie).error().message, HasSubstr("accepted: at most"));
  lie[22] = std::byte{2};
  EXPECT_THAT(weights::load(lie).error().message, HasSubstr("32 bytes, accepted: "));
}

TEST(learned_gate, is_read_from_a_file_that_its_parameters_name) {
  const support::temporary_folder folder;
  const auto good = support::file_of(folder, "good.gate", golden());
  const auto read = [](const std::string& text) {
    return support::config_of<learned_gate>("learned-gate" + text);
  };
  const auto found = read(":weights=" + good);
  EXPECT_FALSE(found.validate());
  EXPECT_EQ(support::saved(*found.trained), golden());
  EXPECT_FALSE(found.validate(shape_of(2, 1)));

  const auto why = [&](const std::string& text) { return read(text).validate()->message; };
  EXPECT_EQ(why(""),
            "learned_gate weights = none, accepted: weights=FILE, a file that python3 -m hotset "
            "train-gate wrote");
  EXPECT_EQ(why(":weights=/no/such.gate"),
            "/no/such.gate: cannot be read, accepted: a file of learned_gate weights");
  EXPECT_THAT(why(":weights=" + folder.path().string()), HasSubstr(folder.path().string() + ": "));
  auto cut = golden();
  cut.pop_back();
  const auto bad = support::file_of(folder, "bad.gate", cut);
  EXPECT_EQ(why(":weights=" + bad),
            bad + ": 43 bytes, accepted: 44 for these learned_gate weights");
}

TEST(learned_gate, names_the_accepted_values) {
  const auto trained = std::make_shared<const weights>(random_weights({4, 3, 2, 2, 1}, 3));
  const auto why = [](const geometry& shape, const learned_gate::config& options) {
    return support::why(learned_gate::create(shape, options));
  };
  const auto shape = shape_of(4, 3);
  EXPECT_EQ(why(shape, {.depth = 2, .trained = trained}), "accepted");
  EXPECT_EQ(why(shape, {.d_model = 2, .trained = trained}), "accepted");
  EXPECT_THAT(why(shape, {}), HasSubstr("weights = none"));
  EXPECT_EQ(why(shape, {.depth = 3, .trained = trained}),
            "learned_gate depth = 3, accepted: 1..2 (depth of the weights)");
  EXPECT_THAT(why(shape, {.depth = 0, .trained = trained}), HasSubstr("depth = 0, accepted: 1..2"));
  EXPECT_EQ(why(shape, {.d_model = 5, .trained = trained}),
            "learned_gate weights for hidden states of 2, accepted: of 5");
  EXPECT_EQ(why(shape_of(5, 3), {.trained = trained}),
            "learned_gate weights for 4 layers x 3 experts, accepted: 5 layers x 3 experts");
  EXPECT_EQ(why(shape_of(4, 4), {.trained = trained}),
            "learned_gate weights for 4 layers x 3 experts, accepted: 4 layers x 4 experts");
  EXPECT_THAT(why(shape_of(4, 0), {.trained = trained}), HasSubstr("experts = 0"));
  const auto wide = std::make_shared<const weights>(*weights::create({2, 65536, 1, 1, 0}));
  EXPECT_THAT(why(shape_of(2, 65536, 1 << 24), {.trained = wide}),
              HasSubstr("bytes for visits of 16777216 tokens, accepted: at most"));
}

TEST(learned_gate, behind_any_predictor_gets_the_width_of_hidden_states) {
  const auto trained = std::make_shared<const weights>(random_weights({3, 2, 2, 2, 1}, 3));
  auto config = any_predictor::holding<learned_gate>({.trained = trained});
  EXPECT_TRUE(config.traits.needs_hidden && !config.traits.needs_routers);
  config = with_depth(config, 2);
  EXPECT_FALSE(config.validate());
  EXPECT_TRUE(with_depth(config, 3).validate());
  auto any = any_predictor::create(shape_of(3, 2), config);
  ASSERT_TRUE(any);
  auto own = gate_of(shape_of(3, 2), *trained, 2);
  const floats hidden{1, -0.5F};
  EXPECT_THAT(
      any->expect(view_of(0_layer, hidden, 1)).probabilities,
      testing::ElementsAreArray(own.expect(view_of(0_layer, hidden, 1), {}, 0).probabilities));
  config.d_model = 3;
  EXPECT_THAT(any_predictor::create(shape_of(3, 2), config).error().message,
              HasSubstr("hidden states of 2, accepted: of 3"));
}

}  // namespace
}  // namespace hotset::learned_gate_test
