// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/layer_tournament.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/order/valued_residents.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::layer_tournament_test {
namespace {

constexpr geometry shape{.layers = 4, .experts = 20, .top_k = 2};

/// Scores are a layer's values times the layer's factor. Rounded, so that a factor makes some equal and separates
/// others.
struct layer_scores {
  explicit layer_scores(const geometry& of)
      : values(of.layer_count(), std::vector<double>(of.expert_count(), 1.0)),
        factors(of.layer_count(), 1.0),
        written(of.layer_count(), 1.0) {}

  std::vector<std::vector<double>> values;
  std::vector<double> factors;
  std::vector<double> written;  ///< factors when the estimates were written

  [[nodiscard]] double near(expert_key key) const {
    return values[index_of(key.layer)][index_of(key.expert)] * factors[index_of(key.layer)];
  }
  [[nodiscard]] double of(expert_key key) const { return std::round(near(key) * 1e3) / 1e3; }
};

/// A tournament of exact scores.
struct exact_scores {
  layer_scores& scores;
  layer_tournament& residents;

  explicit exact_scores(layer_scores& of, layer_tournament& held) : scores(of), residents(held) {}
  void write(const layer_residents& of, std::span<double> to) const {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = scores.of({of.layer, of.experts[i]});
  }
};
/// Estimates deviate by up to a thousandth, each in a random direction.
struct estimates : exact_scores {
  using exact_scores::exact_scores;
  void write(const layer_residents& of, std::span<double> to) const {
    scores.written[index_of(of.layer)] = scores.factors[index_of(of.layer)];
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = scores.near({of.layer, of.experts[i]}) * (1 + (number(of.experts[i]) % 3 - 1) * 1e-3);
  }
  [[nodiscard]] static double bound(double least) { return least * 1.008; }
  [[nodiscard]] double exact(expert_key key) const { return scores.of(key); }
  [[nodiscard]] double factor(layer_id layer, std::span<const double>) const {
    return scores.factors[index_of(layer)] / scores.written[index_of(layer)];
  }
};

/// A tournament with the scores of `Form`, and their values.
template <class Form>
class scored {
 public:
  explicit scored(const pool_layout& layout) : residents(layout), scores_(layout.shape()) {}
  layer_tournament residents;

  void revalue(layer_id layer, support::random_source& random) {
    // Many ties, and many differences smaller than the error of estimates.
    for (auto& v : scores_.values[index_of(layer)])
      v = 1.0 + static_cast<double>(random.below(6)) + static_cast<double>(random.below(3)) * 3e-4;
    residents.rescore(layer);
  }
  void rescale(layer_id layer, support::random_source& random) {
    if constexpr (!std::is_same_v<Form, estimates>) return;
    scores_.factors[index_of(layer)] = 0.5 + static_cast<double>(random.below(1000)) / 500;
    residents.rescale(layer);
  }
  void begin_choice(support::random_source&) {}
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) {
    return residents.select(pool, eligible, out, Form(scores_, residents));
  }
  [[nodiscard]] double of(expert_key key) const { return scores_.of(key); }

 private:
  layer_scores scores_;
};
/// Values discounted by distance. The running layer may have values other than the stored ones.
class valued {
 public:
  explicit valued(const pool_layout& layout)
      : residents(layout, 0.6),
        layers_(layout.shape().layers),
        values_(layout.shape().layer_count(),
                std::vector<float>(layout.shape().expert_count(), 0.0F)) {}
  valued_residents residents;

  void revalue(layer_id layer, support::random_source& random) {
    auto& values = values_[index_of(layer)];
    values = few(random);
    residents.set_values(layer, values);
  }
  void rescale(layer_id, support::random_source&) {}
  void begin_choice(support::random_source& random) {
    running_ = layer_id{random.id_below(layers_ + 1)} - 1;
    of_running_.clear();
    if (running_ >= 0 && random.one_in(2)) of_running_ = few(random);
  }
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) {
    return residents.select(pool, running_, of_running_, eligible, out);
  }
  [[nodiscard]] double of(expert_key key) const {
    const auto distance = (key.layer - running_ - 1 + 2 * layers_) % layers_ + 1;
    const auto factor = static_cast<float>(std::pow(0.6, static_cast<double>(distance) / layers_));
    const bool is_running = key.layer == running_ && !of_running_.empty();
    const auto& values = is_running ? of_running_ : values_[index_of(key.layer)];
    return double{values[index_of(key.expert)]} * double{factor};
  }

 private:
  /// Many ties.
  [[nodiscard]] std::vector<float> few(support::random_source& random) const {
    std::vector<float> out(values_.front().size());
    for (auto& v : out) v = static_cast<float>(random.below(6)) / 8.0F;
    return out;
  }
  std::int32_t layers_;
  std::vector<std::vector<float>> values_;
  layer_id running_{};
  std::vector<float> of_running_;
};

/// Random fills, uses, moves, evictions and score changes; compares with sorting all residents.
template <class Form>
class walk {
 public:
  walk(const pool_layout& layout, std::uint64_t seed)
      : layout_(layout), random_(seed), form_(layout) {
    for (const auto s : each<slot_id>(layout.slots())) free_.push_back(s);
    for (const auto l : each<layer_id>(layout.shape().layers)) form_.revalue(l, random_);
  }
  void run() {
    for (std::size_t n = 0; n < 2 * layout_.slots(); ++n)
      if (!free_.empty()) fill();
    for (int n = 0; n < 3000 && !testing::Test::HasFailure(); ++n) step();
  }

 private:
  struct held {
    expert_key key;
    std::uint64_t position = 0;
  };

  void step() {
    const auto what = random_.below(7);
    if (what == 0) return form_.revalue(any_layer(), random_);
    if (what <= 2 && !free_.empty()) return fill();
    if (what == 3 && !held_.empty()) return use();
    if (what == 4 && !held_.empty()) return move_or_vacate();
    if (what == 5) return form_.rescale(any_layer(), random_);
    choose();
  }
  [[nodiscard]] layer_id any_layer() {
    return static_cast<layer_id>(random_.below(layout_.shape().layer_count()));
  }
  [[nodiscard]] slot_id any_held() {
    return std::next(held_.begin(), static_cast<std::ptrdiff_t>(random_.below(held_.size())))
        ->first;
  }
  [[nodiscard]] bool is_held(expert_key key) const {
    return std::ranges::any_of(held_, [&](const auto& one) { return one.second.key == key; });
  }
  void fill() {
    const expert_key key{any_layer(),
                         static_cast<expert_id>(random_.below(layout_.shape().expert_count()))};
    if (is_held(key)) return;
    std::swap(free_.front(), free_[random_.below(free_.size())]);
    const auto at = std::ranges::find_if(free_, [&](slot_id s) {
      return layout_.pool_of_slot(s) == layout_.pool_of_layer(key.layer);
    });
    if (at == free_.end()) return;
    form_.residents.fill(*at, key, 0_precision);
    held_[*at] = {key, ++clock_};
    free_.erase(at);
  }
  /// Uses one, or several of a layer, or several of any layer.
  void use() {
    std::vector<slot_id> slots;
    const auto first = any_held();
    const bool of_layer = random_.one_in(2);
    for (const auto& [slot, one] : held_)
      if (of_layer && one.key.layer == held_[first].key.layer && !random_.one_in(3))
        slots.push_back(slot);
    if (!of_layer)
      for (auto n = 1 + random_.below(3); n > 0; --n) slots.push_back(any_held());
    if (slots.size() == 1)
      form_.residents.use(slots.front());
    else
      form_.residents.use(slots);
    for (const auto slot : slots) held_[slot].position = ++clock_;
  }
  void move_or_vacate() {
    const auto slot = any_held();
    if (!free_.empty() && random_.one_in(2) && layout_.pools() == 1) {
      form_.residents.move(slot, free_.back());
      held_[free_.back()] = held_[slot];
      free_.back() = slot;
      held_.erase(slot);
    } else if (random_.one_in(2)) {
      vacate(slot);
    }
  }
  void vacate(slot_id slot) {
    form_.residents.vacate(slot);
    held_.erase(slot);
    free_.push_back(slot);
  }
  /// Experts of one layer take some slots of its pool.
  void replace(const std::vector<slot_id>& slots) {
    if (slots.empty()) return;
    const auto& layers = layout_.at(layout_.pool_of_layer(held_[slots.front()].key.layer)).layers;
    const auto layer = layers[random_.below(layers.size())];
    std::vector<hotset::fill> fills;
    for (const auto e : each<expert_id>(layout_.shape().experts)) {
      const expert_key key{layer, e};
      if (fills.size() == slots.size()) break;
      if (is_held(key) || random_.one_in(4)) continue;
      const auto slot = slots[fills.size()];
      fills.push_back({.key = key, .slot = slot, .victim = held_[slot].key});
    }
    form_.residents.bring(fills);
    for (const auto& f : fills) held_[f.slot] = {f.key, ++clock_};
  }
  [[nodiscard]] std::vector<slot_id> sorted(pool_id pool, const slot_mask& eligible) const {
    std::vector<std::tuple<double, std::uint64_t, slot_id>> order;
    for (const auto& [slot, one] : held_)
      if (layout_.pool_of_layer(one.key.layer) == pool && eligible.test(slot))
        order.emplace_back(form_.of(one.key), one.position, slot);
    std::ranges::sort(order);
    std::vector<slot_id> out;
    for (const auto& entry : order) out.push_back(std::get<2>(entry));
    return out;
  }
  void choose() {
    slot_mask eligible(layout_.slots());
    const auto refused = 1 + random_.below(4);
    for (const auto& [slot, one] : held_) eligible.assign(slot, random_.below(5) >= refused);
    for (const auto pool : each<pool_id>(layout_.pools())) {
      form_.begin_choice(random_);
      const auto wanted = sorted(pool, eligible);
      std::vector<slot_id> out(random_.below(12));
      for (int again = random_.one_in(3) ? 2 : 1; again > 0; --again) {
        out.resize(form_.select(pool, eligible, out));
        ASSERT_LE(out.size(), wanted.size());
        ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin()));
        if (again == 2) out.resize(random_.below(out.size() + 1));
      }
      // Evicts all victims, some, or none; something else may be evicted before. Or other experts take their slots.
      const auto leave = random_.below(4);
      if (out.size() < wanted.size() && random_.one_in(2))
        out.insert(out.begin(), wanted[out.size()]);
      if (leave == 3) replace(out);
      for (const auto slot : out)
        if (leave == 2 || (leave == 1 && !random_.one_in(3))) vacate(slot);
    }
  }

  const pool_layout& layout_;
  support::random_source random_;
  Form form_;
  std::map<slot_id, held> held_;
  std::vector<slot_id> free_;
  std::uint64_t clock_ = 0;
};

template <class Form>
class layer_tournament_of : public testing::Test {};
using forms = testing::Types<scored<exact_scores>, scored<estimates>, valued>;
TYPED_TEST_SUITE(layer_tournament_of, forms);

TYPED_TEST(layer_tournament_of, agrees_with_sorting_all_residents) {
  geometry mixed = shape;
  mixed.expert_bytes = {8, 4, 4, 8};
  const std::int64_t of_class[] = {21, 13};
  const pool_layout layouts[] = {
      pool_layout::shared(shape, 30).value(), pool_layout::shared(shape, 65).value(),
      pool_layout::per_layer(shape, 9).value(),
      pool_layout::shared_by_size_class(mixed, of_class).value(),  // pools may start at any slot
      // more experts and layers than one word has bits
      pool_layout::shared({.layers = 2, .experts = 150, .top_k = 2}, 200).value(),
      pool_layout::shared({.layers = 130, .experts = 3, .top_k = 2}, 200).value()};
  for (const auto& layout : layouts)
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::to_string(layout.slots()) + " slots, seed " + std::to_string(seed));
      walk<TypeParam>(layout, seed).run();
      if (this->HasFailure()) return;
    }
}

class layer_tournament_walked : public testing::Test {
 protected:
  /// Scores are the experts' numbers.
  struct by_number {
    std::vector<layer_id>& asked;
    void write(const layer_residents& of, std::span<double> to) const {
      if (!of.experts.empty()) asked.push_back(of.layer);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = number(of.experts[i]);
    }
  };
  void fill(slot_id slot, layer_id layer, expert_id expert) {
    residents.fill(slot, {layer, expert}, 0_precision);
    eligible.set(slot);
  }
  void vacate(slot_id slot) {
    residents.vacate(slot);
    eligible.reset(slot);
  }
  std::vector<slot_id> choose(std::size_t n) {
    asked.clear();
    std::vector<slot_id> out(n, no_slot);
    out.resize(residents.select(0_pool, eligible, out, by_number{asked}));
    return out;
  }
  const pool_layout layout = pool_layout::shared(shape, 65).value();
  layer_tournament residents{layout};
  slot_mask eligible{layout.slots()};
  std::vector<layer_id> asked;  ///< by the last choice
};

TEST_F(layer_tournament_walked, recomputes_only_changed_layers) {
  for (const auto s : each<slot_id>(4)) fill(s, layer_id{number(s) % 2}, expert_id{number(s)});
  const auto expect_asked = [&](const std::vector<layer_id>& layers) {
    EXPECT_EQ(choose(2), support::slot_ids({0, 1}));
    EXPECT_EQ(asked, layers);
  };
  expect_asked({0_layer, 1_layer});
  expect_asked({});
  residents.rescore(1_layer);
  expect_asked({1_layer});
  residents.use(2_slot);
  expect_asked({});
  residents.rescore_all();
  expect_asked({0_layer, 1_layer});
}

TEST_F(layer_tournament_walked, a_runner_up_may_be_evicted_before_the_victims) {
  fill(0_slot, 0_layer, 0_expert);
  fill(1_slot, 0_layer, 3_expert);
  fill(2_slot, 0_layer, 5_expert);
  fill(3_slot, 1_layer, 1_expert);
  EXPECT_EQ(choose(2), support::slot_ids({0, 3}));
  vacate(1_slot);
  vacate(0_slot);
  vacate(3_slot);
  fill(1_slot, 1_layer, 9_expert);
  EXPECT_EQ(choose(2), support::slot_ids({2, 1}));
}

TEST(as_number, treats_nan_as_larger_than_all) {
  constexpr auto infinite = std::numeric_limits<double>::infinity();
  const auto odd = std::nan("");
  const std::vector<double> ascending{-odd, -infinite, -1e300, -1, 0, 1e300, infinite, odd};
  for (std::size_t i = 1; i < ascending.size(); ++i)
    EXPECT_LT(as_number(ascending[i - 1]), as_number(ascending[i])) << i;
  EXPECT_EQ(as_number(0.25), 0.25);
  EXPECT_LT(as_number(odd), infinite);
}

}  // namespace
}  // namespace hotset::layer_tournament_test
