// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/mixed.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/predict/co_activation.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/predict/last_routed.hpp"
#include "predictor_samples.hpp"
#include "random_source.hpp"

namespace hotset::mixed_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

/// A predictor that returns a function's rows for a given number of layers ahead. Rows start with zeros. Without a
/// function it returns no forecast.
using writer = std::function<void(const routing_view&, std::size_t token, std::int32_t ahead,
                                  std::span<float> row)>;
template <bool Opens>
struct teller {
  struct config {
    std::int32_t depth = 1;
    writer write{};
    std::vector<sequence_id>* ended = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "teller";
  static constexpr predictor_traits traits{.opens_steps = Opens, .wants_sequence_ends = true};
  static result<teller> create(const geometry& shape, const config& options) {
    return teller{options, view_tokens(shape), static_cast<std::size_t>(shape.experts), {}};
  }
  forecast expect(const routing_view& view, std::span<const float>, std::int32_t) noexcept {
    if (!options.write) return {};
    const auto depth = static_cast<std::size_t>(options.depth);
    const auto tokens = shape.tokens(view);
    rows.assign(tokens * depth * experts, 0.0F);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t d = 0; d < depth; ++d)
        options.write(view, t, static_cast<std::int32_t>(d + 1),
                      std::span(rows).subspan((t * depth + d) * experts, experts));
    return {.probabilities = rows, .depth = options.depth};
  }
  void on_sequence_end(sequence_id sequence) noexcept {
    if (options.ended != nullptr) options.ended->push_back(sequence);
  }
  config options;
  view_tokens shape;
  std::size_t experts;
  std::vector<float> rows;
};
any_predictor::config says(writer write) {
  return any_predictor::holding<teller<false>>({.write = std::move(write)});
}
any_predictor::config says(const std::vector<float>& row) {
  return says([row](const routing_view&, std::size_t, std::int32_t, std::span<float> out) {
    std::ranges::copy(row, out.begin());
  });
}

const geometry small{.layers = 3, .experts = 4, .top_k = 2, .max_tokens_per_visit = 3};

using support::said;
using support::view_of;

std::vector<double> weights_of(const mixed& mix, std::size_t distance = 1, bool opening = false) {
  const auto found = mix.weights(distance, opening);
  return {found.begin(), found.end()};
}
double logistic(double z) { return 1 / (1 + std::exp(-z)); }
/// Rows that sum to 1, from chances.
auto is_row(std::vector<double> chances) {
  const auto total = std::accumulate(chances.begin(), chances.end(), 0.0);
  std::vector<float> wanted;
  for (const auto p : chances) wanted.push_back(static_cast<float>(p / total));
  return Pointwise(FloatNear(1e-6F), wanted);
}

TEST(mixed, begins_as_the_sum_of_its_parts) {
  auto mix =
      mixed::create(small, {.parts = {says({1, 0, 0.25F, 0}), says({0, 0, 0.25F, 0.04F})}}).value();
  const auto b = std::log(0.5);
  const std::array<std::int32_t, 2> ids{0, 1};
  EXPECT_THAT(said(mix, view_of(0_layer, 0, ids)),
              is_row({logistic(b + 1), logistic(b), logistic(b + 1), logistic(b + 0.2)}));
  EXPECT_THAT(weights_of(mix), ElementsAre(1, 1, b));
}

TEST(mixed, learns_from_the_routing_that_it_predicted) {
  auto mix = mixed::create(small, {.parts = {says({1, 0, 0.25F, 0})}, .rate = 0.1}).value();
  const std::array<std::int32_t, 2> first{3, 3};
  const std::array<std::int32_t, 2> then{0, 2};
  said(mix, view_of(0_layer, 0, first));
  said(mix, view_of(1_layer, 0, then));
  // Gradient of the weight: (p0 - 1) x0 + (p2 - 1) x2; of the bias: the sum of p - y. The first step has the length
  // of the rate.
  const auto gradients = [&](double w, double b, double y0, double y2, double y3) {
    const double p0 = logistic(b + w) - y0;
    const double p2 = logistic(b + w / 2) - y2;
    return std::array{p0 + p2 / 2, p0 + p2 + 2 * logistic(b) - y3};
  };
  const auto b = std::log(0.5);
  const auto one = gradients(1, b, 1, 1, 0);
  EXPECT_LT(one[0], 0);
  EXPECT_LT(one[1], 0);
  EXPECT_THAT(weights_of(mix),
              ElementsAre(testing::DoubleNear(1.1, 1e-6), testing::DoubleNear(b + 0.1, 1e-6)));
  said(mix, view_of(2_layer, 0, first));  // once, although it is named twice
  const auto two = gradients(1.1, b + 0.1, 0, 0, 1);
  const auto moved = [&](std::size_t i) {
    return 0.1 * two[i] / std::sqrt(one[i] * one[i] + two[i] * two[i]);
  };
  EXPECT_THAT(weights_of(mix), ElementsAre(testing::DoubleNear(1.1 - moved(0), 1e-5),
                                           testing::DoubleNear(b + 0.1 - moved(1), 1e-5)));
}

TEST(mixed, forecasts_for_other_steps_or_tokens_are_not_learned) {
  auto mix = mixed::create(small, {.parts = {says({1, 0, 0.25F, 0})}}).value();
  const auto before = weights_of(mix);
  const std::array<std::int32_t, 4> ids{0, 1, 2, 3};
  const auto two = std::span(ids).first(2);
  said(mix, view_of(0_layer, 0, two));
  said(mix, view_of(1_layer, 1, two));  // another step
  said(mix, view_of(2_layer, 1, ids));  // two tokens instead of one
  said(mix, view_of(0_layer, 2, two));
  said(mix, view_of(2_layer, 2, two));  // a layer is left out
  EXPECT_EQ(weights_of(mix), before);
  said(mix, view_of(1_layer, 3, two));
  said(mix, view_of(2_layer, 3, two));
  EXPECT_NE(weights_of(mix), before);
}

TEST(mixed, a_part_without_an_answer_counts_nothing) {
  const auto some = says({1, 0, 0.25F, 0});
  const auto none = says(writer{});
  auto alone = mixed::create(small, {.parts = {some}}).value();
  auto beside = mixed::create(small, {.parts = {none, some}}).value();
  const std::array<std::int32_t, 2> ids{0, 1};
  for (step_id step = 0; step < 5; ++step)
    for (const auto layer : each<layer_id>(3))
      EXPECT_EQ(said(beside, view_of(layer, step, ids)), said(alone, view_of(layer, step, ids)));
  EXPECT_EQ(weights_of(beside)[0], 1);
  EXPECT_EQ(weights_of(beside)[1], weights_of(alone)[0]);
  auto silent = mixed::create(small, {.parts = {none, none}}).value();
  EXPECT_THAT(said(silent, view_of(0_layer, 0, ids)), IsEmpty());
}

TEST(mixed, scores_that_are_none_count_as_0_or_1) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto inf = std::numeric_limits<float>::infinity();
  auto mix = mixed::create(small, {.parts = {says({nan, -1, inf, 9})}}).value();
  const std::array<std::int32_t, 2> ids{0, 1};
  const auto b = std::log(0.5);
  EXPECT_THAT(said(mix, view_of(0_layer, 0, ids)),
              is_row({logistic(b), logistic(b), logistic(b + 1), logistic(b + 1)}));
}

TEST(mixed, layers_past_the_last_have_rows_of_zeros) {
  auto mix = mixed::create(small, {.parts = {says({1, 0, 0.25F, 0})}, .depth = 2}).value();
  const std::array<std::int32_t, 2> ids{0, 1};
  const auto found = said(mix, view_of(1_layer, 0, ids));
  ASSERT_EQ(found.size(), 8U);
  EXPECT_GT(found[0], 0);
  EXPECT_THAT(std::span(found).subspan(4), Each(0));
  EXPECT_THAT(said(mix, view_of(2_layer, 0, ids)), Each(0));
}

/// Routing of a synthetic model: K distinct experts, drawn by sequence position and layer.
struct world {
  geometry shape;
  std::vector<expert_id> routed(step_id step, layer_id layer, std::size_t token) const {
    support::random_source random(step * 1000003 + static_cast<std::uint64_t>(layer) * 1009 +
                                  token);
    std::vector<expert_id> out;
    while (std::ssize(out) < shape.top_k)
      if (const auto id = expert_id{random.id_below(shape.experts)};
          std::ranges::find(out, id) == out.end())
        out.push_back(id);
    return out;
  }
  /// Predicts each true expert with this chance, otherwise another one.
  any_predictor::config part(double right, std::uint64_t seed) const {
    return part([right](std::int32_t) { return right; }, seed);
  }
  any_predictor::config part(std::function<double(std::int32_t ahead)> right,
                             std::uint64_t seed) const {
    return says([*this, right, seed](const routing_view& view, std::size_t token,
                                     std::int32_t ahead, std::span<float> row) {
      support::random_source random(seed + view.step * 7919 +
                                    static_cast<std::uint64_t>(view.layer) * 31 + token * 7 +
                                    static_cast<std::uint64_t>(ahead));
      for (const auto id : routed(view.step, view.layer + ahead, token)) {
        const bool tells = random.below(1000) < static_cast<std::uint64_t>(1000 * right(ahead));
        row[index_of(tells ? id : expert_id{random.id_below(shape.experts)})] = 0.5F;
      }
    });
  }
  /// Share of the K best of a row that are routed; ties go to the lower id.
  double precision(std::span<const float> row, const std::vector<expert_id>& routed) const {
    const auto all = each<expert_id>(row.size());
    std::vector<expert_id> order(all.begin(), all.end());
    std::ranges::stable_sort(order, [&](auto a, auto b) {
      return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
    });
    double right = 0;
    for (std::int32_t k = 0; k < shape.top_k; ++k)
      right +=
          std::ranges::find(routed, order[static_cast<std::size_t>(k)]) != routed.end() ? 1 : 0;
    return right / shape.top_k;
  }
  /// Precision at each distance over the steps from `from` to `to`; runs all steps.
  template <class Predictor>
  std::vector<double> judge(Predictor& predictor, step_id from, step_id to,
                            std::size_t tokens = 1) const {
    std::vector<double> right;
    std::vector<double> asked;
    const auto width = static_cast<std::size_t>(shape.experts);
    for (step_id step = 0; step < to; ++step)
      for (const auto layer : each<layer_id>(shape.layers)) {
        std::vector<expert_id> ids;
        for (std::size_t t = 0; t < tokens; ++t)
          for (const auto id : routed(step, layer, t)) ids.push_back(id);
        const auto found = predictor.expect(view_of(layer, step, ids), {}, 0);
        const auto depth = static_cast<std::size_t>(found.depth);
        right.resize(depth, 0.0);
        asked.resize(depth, 0.0);
        for (std::size_t t = 0; t < tokens && step >= from; ++t)
          for (std::size_t d = 0; d < depth; ++d) {
            const auto target = layer + 1 + static_cast<std::int32_t>(d);
            if (target >= shape.layers) continue;
            right[d] += precision(found.probabilities.subspan((t * depth + d) * width, width),
                                  routed(step, target, t));
            asked[d] += 1;
          }
      }
    for (std::size_t d = 0; d < right.size(); ++d) right[d] /= asked[d];
    return right;
  }
};
const world made_up{{.layers = 4, .experts = 16, .top_k = 2, .max_tokens_per_visit = 4}};

TEST(mixed, learns_within_three_steps_of_four_layers_which_part_is_perfect) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    auto mix = mixed::create(made_up.shape, {.parts = {made_up.part(0, seed), made_up.part(1, 0)}})
                   .value();
    EXPECT_EQ(made_up.judge(mix, 3, 200)[0], 1.0) << seed;
    EXPECT_GT(weights_of(mix)[1], 4 * std::abs(weights_of(mix)[0]));
  }
}

TEST(mixed, each_distance_has_weights_of_its_own) {
  const auto near = made_up.part([](std::int32_t ahead) { return ahead == 1 ? 1.0 : 0.0; }, 3);
  const auto far = made_up.part([](std::int32_t ahead) { return ahead == 1 ? 0.0 : 1.0; }, 4);
  auto mix = mixed::create(made_up.shape, {.parts = {near, far}, .depth = 2}).value();
  EXPECT_THAT(made_up.judge(mix, 10, 200), Each(1.0));
  EXPECT_GT(weights_of(mix, 1)[0], weights_of(mix, 1)[1]);
  EXPECT_LT(weights_of(mix, 2)[0], weights_of(mix, 2)[1]);
}

TEST(mixed, more_tokens_than_it_learns_from_are_judged_all) {
  auto few =
      mixed::create(made_up.shape,
                    {.parts = {made_up.part(0, 1), made_up.part(1, 0)}, .depth = 2, .learned = 1})
          .value();
  EXPECT_THAT(made_up.judge(few, 10, 150, 4), Each(1.0));
  // It learns the same as from the first token alone.
  auto one =
      mixed::create(made_up.shape, {.parts = {made_up.part(0, 1), made_up.part(1, 0)}, .depth = 2})
          .value();
  made_up.judge(one, 0, 150, 1);
  EXPECT_EQ(weights_of(few, 1), weights_of(one, 1));
  EXPECT_EQ(weights_of(few, 2), weights_of(one, 2));
}

TEST(mixed, the_first_visit_of_a_step_is_learned_separately) {
  const auto row = [](const routing_view&, std::size_t, std::int32_t, std::span<float> out) {
    out[1] = 1;
  };
  const auto opens = any_predictor::holding<teller<true>>({.write = row});
  auto mix = mixed::create(small, {.parts = {opens, says({0, 0, 1, 0})}}).value();
  const auto b = std::log(0.5);
  EXPECT_THAT(said(mix, view_of(before_layers, 0, {})),
              is_row({logistic(b), logistic(b + 1), logistic(b), logistic(b)}))
      << "the other part was not asked";
  const std::array<std::int32_t, 2> ids{1, 3};
  said(mix, view_of(0_layer, 0, ids));
  EXPECT_GT(weights_of(mix, 1, true)[0], 1);
  EXPECT_THAT(weights_of(mix), ElementsAre(1, 1, b));
  said(mix, view_of(1_layer, 0, ids));
  EXPECT_NE(weights_of(mix), weights_of(mix, 1, true));
  auto late = mixed::create(small, {.parts = {says({0, 0, 1, 0})}}).value();
  EXPECT_THAT(said(late, view_of(before_layers, 0, {})), IsEmpty());
}

TEST(mixed, its_parts_are_notified_of_ended_requests) {
  std::vector<sequence_id> ended;
  const auto part = any_predictor::holding<teller<false>>({.ended = &ended});
  auto mix = mixed::create(small, {.parts = {part, says({0, 0, 1, 0}), part}}).value();
  mix.on_sequence_end(5);
  EXPECT_THAT(ended, ElementsAre(5, 5));
}

TEST(mixed, needs_the_inputs_of_its_parts) {
  const mixed::config plain{.parts = {any_predictor::holding<co_activation>()}};
  EXPECT_FALSE(plain.needs().needs_scores || plain.needs().opens_steps);
  const mixed::config gated{
      .parts = {any_predictor::holding<last_routed>(), any_predictor::holding<current_gate>()}};
  EXPECT_TRUE(gated.needs().needs_scores && gated.needs().opens_steps &&
              gated.needs().wants_sequence_ends);
  EXPECT_FALSE(gated.needs().needs_recorded || gated.needs().needs_routers);
}

TEST(mixed, inconsistent_arrays_are_refused_without_effect) {
  auto mix = mixed::create(small, {.parts = {says({1, 0, 0.25F, 0})}}).value();
  const std::array<std::int32_t, 8> ids{0, 1, 2, 3, 0, 1, 2, 3};
  const auto before = weights_of(mix);
  said(mix, view_of(0_layer, 0, std::span(ids).first(2)));
  for (const auto& [layer, count] :
       {std::pair(1_layer, 3U), std::pair(3_layer, 2U), std::pair(1_layer, 8U)})
    EXPECT_THAT(said(mix, view_of(layer, 0, std::span(ids).first(count))), IsEmpty());
  EXPECT_EQ(weights_of(mix), before);
  said(mix, view_of(1_layer, 0, std::span(ids).first(2)));
  EXPECT_NE(weights_of(mix), before);
}

TEST(mixed, a_wrong_configuration_is_refused) {
  const auto part = says({1, 0, 0, 0});
  const auto why = [](const geometry& shape, const mixed::config& options) {
    return support::why(mixed::create(shape, options));
  };
  EXPECT_EQ(why(small, {.parts = {part}, .depth = 3}), "accepted");
  EXPECT_EQ(why(small, {}), "mixed has 0 parts, accepted: 1..16");
  EXPECT_EQ(why(small, {.parts = std::vector(17, part)}), "mixed has 17 parts, accepted: 1..16");
  EXPECT_EQ(why(small, {.parts = {part}, .depth = 0}), "mixed depth = 0, accepted: 1..64");
  EXPECT_EQ(why(small, {.parts = {part}, .depth = 4}), "mixed depth = 4, accepted: 1..3 (layers)");
  EXPECT_EQ(why(small, {.parts = {part}, .learned = 0}), "mixed learned = 0, accepted: 1..4096");
  EXPECT_THAT(why(small, {.parts = {part}, .rate = 0}), HasSubstr("rate = 0.000000, accepted"));
  EXPECT_THAT(why(small, {.parts = {part}, .rate = std::nan("")}), HasSubstr("rate = "));
  EXPECT_EQ(why(small, {.parts = {any_predictor::config{}}}),
            "any_predictor factory = none, accepted: a factory");
  EXPECT_EQ(
      why(small, {.parts = {any_predictor::holding<co_activation>({.reach = 1})}, .depth = 2}),
      "co_activation depth = 2, accepted: 1..1 (reach)");
  EXPECT_THAT(why({.layers = 64, .experts = 4096, .top_k = 2, .max_tokens_per_visit = 1 << 24},
                  {.parts = {part}, .depth = 64}),
              HasSubstr("accepted: at most 17179869184"));
}

}  // namespace
}  // namespace hotset::mixed_test
