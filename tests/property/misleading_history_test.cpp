// SPDX-License-Identifier: Apache-2.0
// Traffic whose past does not predict its future, or misleads: similar_steps stays within 3 % of the better of lru
// and lfu.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/paging/pager.hpp"

namespace hotset::misleading_history_test {
namespace {

constexpr geometry shape{.layers = 8, .experts = 64, .top_k = 6};
constexpr std::size_t steps = 1200;

/// One token's routed experts, [layers * top_k].
using token = std::vector<expert_id>;

/// Draws distinct experts for each layer by rank(); rank 0 is the layer's most popular expert.
class drawn_tokens {
 public:
  explicit drawn_tokens(std::uint64_t seed) : random_(seed) { new_favourites(); }

  void new_favourites() {
    order_.clear();
    for (std::int32_t l = 0; l < shape.layers; ++l) {
      std::vector<expert_id> ids;
      for (const auto e : each<expert_id>(shape.experts)) ids.push_back(e);
      for (auto n = ids.size(); n > 1; --n) std::swap(ids[n - 1], ids[random_.below(n)]);
      order_.push_back(ids);
    }
  }
  token uniform() {
    return draw([&] { return random_.below(64); });
  }
  /// The product of two uniform ranks: the first eighth of the experts gets four of ten uses.
  token favoured() {
    return draw([&] { return random_.below(64) * random_.below(64) / 64; });
  }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }

 private:
  template <class Rank>
  token draw(Rank rank) {
    token out;
    for (const auto& ids : order_) {
      const auto first = out.size();
      while (out.size() < first + 6) {
        const auto id = ids[rank()];
        if (std::find(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), id) == out.end())
          out.push_back(id);
      }
    }
    return out;
  }

  splitmix64 random_;
  std::vector<std::vector<expert_id>> order_;
};

std::vector<token> uniform_routing() {
  drawn_tokens draw(1);
  std::vector<token> out;
  while (out.size() < steps) out.push_back(draw.uniform());
  return out;
}
std::vector<token> phases_of_200_steps() {
  drawn_tokens draw(2);
  std::vector<token> out;
  while (out.size() < steps) {
    if (out.size() % 200 == 0) draw.new_favourites();
    out.push_back(draw.favoured());
  }
  return out;
}
/// Twenty phrases repeat word for word, each time with another successor.
std::vector<token> old_phrases_with_other_successors(bool favoured) {
  drawn_tokens draw(3);
  std::vector<token> phrases;
  for (int i = 0; i < 20 * 6; ++i) phrases.push_back(draw.uniform());
  std::vector<token> out;
  while (out.size() < steps) {
    const auto first = draw.below(20) * 6;
    for (std::size_t i = 0; i < 6; ++i) out.push_back(phrases[first + i]);
    for (int i = 0; i < 8; ++i) out.push_back(favoured ? draw.favoured() : draw.uniform());
  }
  out.resize(steps);
  return out;
}

template <class P>
std::uint64_t misses(const std::vector<token>& tokens, const pool_layout& layout) {
  pager<P> cache({.layout = layout});
  auto plan = cache.make_plan();
  for (std::size_t step = 0; step < tokens.size(); ++step)
    for (const auto l : each<layer_id>(shape.layers)) {
      const routing_view view{
          .layer = l,
          .step = step,
          .experts = std::span(tokens[step]).subspan(static_cast<std::size_t>(l) * 6, 6)};
      EXPECT_EQ(cache.serve(view, plan, [](const visit_group&) {}), status::ok);
    }
  return cache.stats().misses;
}

/// Slots per layer.
class misleading_history : public testing::TestWithParam<std::int64_t> {
 protected:
  static void expect_within_3_percent(const std::vector<token>& tokens) {
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(shared ? "shared" : "a layer");
      const auto layout = shared ? pool_layout::shared(shape, GetParam() * shape.layers).value()
                                 : pool_layout::per_layer(shape, GetParam()).value();
      const auto better = std::min(misses<lru>(tokens, layout), misses<lfu>(tokens, layout));
      EXPECT_LE(static_cast<double>(misses<similar_steps>(tokens, layout)),
                1.03 * static_cast<double>(better));
    }
  }
};
TEST_P(misleading_history, uniform_routing) { expect_within_3_percent(uniform_routing()); }
TEST_P(misleading_history, phases_of_200_steps) { expect_within_3_percent(phases_of_200_steps()); }
TEST_P(misleading_history, old_phrases_with_other_successors) {
  expect_within_3_percent(old_phrases_with_other_successors(false));
}
TEST_P(misleading_history, old_phrases_with_other_successors_that_are_popular) {
  expect_within_3_percent(old_phrases_with_other_successors(true));
}
INSTANTIATE_TEST_SUITE_P(slots, misleading_history, testing::Values(8, 16, 32));

}  // namespace
}  // namespace hotset::misleading_history_test
