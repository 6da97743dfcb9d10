// SPDX-License-Identifier: Apache-2.0
// Every prefetch policy joins the suite here with an `entry`: its type and configuration. Several instances get
// random visits with all optional inputs; they must keep the concept's promises and agree.

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/prefetch/no_prefetch.hpp"
#include "hotset/prefetch/noisy_oracle.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/prefetch/previous_step.hpp"
#include "hotset/prefetch/score_threshold.hpp"
#include "random_source.hpp"

namespace hotset::prefetch_conformance_test {
namespace {

using support::random_source;

// ---- entries

template <class P>
struct plain {
  using policy = P;
  static typename P::config options(const geometry&) { return {}; }
};
struct far_entry : plain<next_layer_top_k> {
  static next_layer_top_k::config options(const geometry&) {
    return {.overfetch = 1.5, .depth = 3};
  }
};
struct narrow_window_entry : plain<score_threshold> {
  static score_threshold::config options(const geometry&) {
    return {.percentile = 60, .window = 37};
  }
};
struct profile_entry : plain<popular> {
  static popular::config options(const geometry& shape) {
    popular::config out;
    for (std::size_t k = 0; k < shape.keys(); ++k)
      out.profile.counts.push_back(static_cast<double>(k * 7 % 5));
    out.count = shape.experts;
    return out;
  }
};
struct oracle_entry : plain<noisy_oracle> {
  static noisy_oracle::config options(const geometry&) {
    return {.precision = 0.4, .recall = 0.7, .seed = 3};
  }
};
// A type-erased holder of each policy.
template <class Inner>
struct any_entry {
  using policy = any_prefetch_policy;
  static any_prefetch_policy::config options(const geometry& shape) {
    return any_prefetch_policy::holding<typename Inner::policy>(Inner::options(shape));
  }
};

template <class Entry>
class prefetch_conformance : public testing::Test {};

using entries = testing::Types<plain<no_prefetch>, plain<next_layer_top_k>, far_entry,
                               plain<score_threshold>, narrow_window_entry, plain<previous_step>,
                               plain<popular>, profile_entry, plain<noisy_oracle>, oracle_entry,
                               any_entry<plain<no_prefetch>>, any_entry<far_entry>,
                               any_entry<narrow_window_entry>, any_entry<plain<previous_step>>,
                               any_entry<plain<popular>>, any_entry<oracle_entry>>;
TYPED_TEST_SUITE(prefetch_conformance, entries);

// ---- visits

struct visit {
  layer_id layer{};
  step_id step = 0;
  std::vector<expert_id> experts;    // with ids that name no expert
  std::vector<float> probabilities;  // [tokens, depth, experts]
  std::vector<expert_id> truth;      // of the next visit, with ids that name no expert

  [[nodiscard]] routing_view view() const {
    return {.layer = layer, .step = step, .experts = experts};
  }
};

expert_id any_id(const geometry& shape, random_source& random) {
  switch (random.below(12)) {
    case 0: return no_expert;
    case 1: return expert_id{shape.experts};
    case 2: return expert_id{std::numeric_limits<std::int32_t>::min()};
    // Skewed, so that some experts are popular.
    default: return expert_id{random.id_below(1 + random.id_below(shape.experts))};
  }
}

std::vector<visit> write_visits(const geometry& shape, std::int32_t depth, std::size_t count,
                                random_source& random) {
  std::vector<visit> out(count + 1);
  std::int32_t layer = 0;
  step_id step = 5;
  for (auto& v : out) {
    v.layer = layer_id{layer};
    v.step = step;
    const auto tokens = 1 + random.below(static_cast<std::uint64_t>(shape.max_tokens_per_visit));
    v.experts.resize(tokens * static_cast<std::size_t>(shape.top_k));
    for (auto& id : v.experts) id = any_id(shape, random);
    v.probabilities.resize(tokens * static_cast<std::size_t>(depth * shape.experts));
    for (auto& p : v.probabilities) p = static_cast<float>(random.below(64)) / 256.0F;
    if (random.one_in(10)) v.probabilities[0] = std::numeric_limits<float>::quiet_NaN();
    layer += random.one_in(8) ? 2 : 1;
    if (layer >= shape.layers) {
      layer = 0;
      ++step;
    }
  }
  for (std::size_t n = 0; n < count; ++n) out[n].truth = out[n + 1].experts;
  return out;
}

std::vector<geometry> shapes() {
  return {{.layers = 5, .experts = 12, .top_k = 3, .max_tokens_per_visit = 4},
          {.layers = 2, .experts = 40, .top_k = 8},
          {.layers = 1, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2},
          {.layers = 7, .experts = 1, .top_k = 1, .max_tokens_per_visit = 2}};
}

/// Compared members of a request.
using asked = std::vector<std::tuple<layer_id, expert_id, step_id, float>>;

/// One policy with its state during the visits.
template <class P>
class walker {
 public:
  walker(const geometry& shape, const typename P::config& options)
      : policy_(std::make_unique<P>(shape, options)) {}
  P& policy() { return *policy_; }
  void move() { policy_ = std::make_unique<P>(std::move(*policy_)); }

  asked propose(const visit& v, const forecast& expected, std::size_t room) {
    const prefetch_request untouched{{layer_id{-7}, expert_id{-7}}, 77, 7.0F};
    std::vector<prefetch_request> out(room + 3, untouched);
    const auto count = policy_->propose(v.view(), expected, std::span(out).first(room));
    EXPECT_LE(count, room);
    EXPECT_LE(count, policy_->most_requests());
    for (std::size_t n = std::min(count, room); n < out.size(); ++n)
      EXPECT_EQ(out[n].key, untouched.key) << "wrote past what it says";
    asked got;
    for (std::size_t n = 0; n < std::min(count, room); ++n)
      got.emplace_back(out[n].key.layer, out[n].key.expert, out[n].for_step, out[n].probability);
    return got;
  }

 private:
  std::unique_ptr<P> policy_;
};

forecast expectation(const visit& v, const visit& next, std::int32_t depth) {
  return {.probabilities = v.probabilities,
          .depth = depth,
          .truth = v.truth,
          .truth_layer = next.layer,
          .truth_step = next.step};
}

TYPED_TEST(prefetch_conformance, keeps_the_promises_of_the_concept) {
  using P = typename TypeParam::policy;
  std::size_t requests = 0;
  bool may_ask = false;
  for (const auto& shape : shapes())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("layers " + std::to_string(shape.layers) + ", seed " + std::to_string(seed));
      random_source random(seed);
      const auto options = TypeParam::options(shape);
      ASSERT_FALSE(options.validate());
      walker<P> whole(shape, options);
      walker<P> same(shape, options);     // is moved between visits
      walker<P> cut(shape, options);      // gets less room for requests
      walker<P> puzzled(shape, options);  // also gets empty forecasts
      const auto needs = facts_of(whole.policy()).needs;
      const auto most = whole.policy().most_requests();
      const auto depth = std::max(whole.policy().depth(), 1);
      may_ask = may_ask || most > 0;
      const auto visits = write_visits(shape, depth, 150, random);
      for (std::size_t n = 0; n + 1 < visits.size(); ++n) {
        SCOPED_TRACE("visit " + std::to_string(n));
        const auto& v = visits[n];
        const auto expected = expectation(v, visits[n + 1], depth);
        for (auto* const w : {&whole, &same, &cut, &puzzled}) w->policy().observe(v.view());

        const auto got = whole.propose(v, expected, most);
        requests += got.size();
        std::set<expert_key> keys;
        for (const auto& [layer, expert, step, probability] : got) {
          ASSERT_TRUE(shape.contains({layer, expert})) << layer << " " << expert;
          EXPECT_TRUE(keys.insert({layer, expert}).second) << "twice: " << layer << " " << expert;
          EXPECT_TRUE(std::pair(step, layer) > std::pair(v.step, v.layer)) << step << " " << layer;
          EXPECT_TRUE(probability >= 0.0F && probability <= 1.0F) << probability;
        }

        if (random.one_in(10)) same.move();
        ASSERT_EQ(same.propose(v, expected, most + 5), got) << "not deterministic";

        auto first = got;
        first.resize(std::min<std::size_t>(first.size(), random.below(most + 2)));
        ASSERT_EQ(cut.propose(v, expected, first.size()), first) << "not the first of them";

        // Without its inputs a policy requests nothing and learns nothing.
        auto lacking = expected;
        if (needs == forecast_need::probabilities) {
          lacking.probabilities = {};
        } else if (needs == forecast_need::truth) {
          lacking.truth = {};
        } else {
          ASSERT_EQ(puzzled.propose(v, {}, most), got) << "goes by what it does not need";
          continue;
        }
        ASSERT_TRUE(puzzled.propose(v, {}, most).empty());
        ASSERT_TRUE(puzzled.propose(v, lacking, most).empty());
        ASSERT_EQ(puzzled.propose(v, expected, most), got);
      }
    }
  EXPECT_EQ(requests > 200, may_ask) << "the visits put nothing to the test";
}

TYPED_TEST(prefetch_conformance, has_a_name_and_bounds) {
  using P = typename TypeParam::policy;
  EXPECT_FALSE(std::string_view(P::name).empty());
  for (const auto& shape : shapes()) {
    const P policy(shape, TypeParam::options(shape));
    EXPECT_GE(policy.depth(), 0);
    // All other layers, if the policy looks that far ahead.
    const auto layers = static_cast<std::size_t>(std::max(policy.depth(), 1));
    EXPECT_LE(policy.most_requests(), layers * static_cast<std::size_t>(shape.experts));
  }
}

}  // namespace
}  // namespace hotset::prefetch_conformance_test
