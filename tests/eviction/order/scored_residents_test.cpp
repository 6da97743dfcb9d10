// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/scored_residents.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::scored_residents_test {
namespace {

constexpr geometry shape{.layers = 4, .experts = 20, .top_k = 2};

struct held {
  expert_key key;
  std::uint64_t position = 0;
};

/// Scores as they are: layers' values times layers' factors, rounded, so that a factor makes equals of some and tells others apart.
struct true_scores {
  explicit true_scores(const geometry& of)
      : values(of.layer_count(), std::vector<double>(of.expert_count(), 1.0)),
        factors(of.layer_count(), 1.0) {}

  std::vector<std::vector<double>> values;
  std::vector<double> factors;

  [[nodiscard]] double of(expert_key key) const { return std::round(near(key) * 1e3) / 1e3; }
  [[nodiscard]] double near(expert_key key) const {
    return values[index_of(key.layer)][index_of(key.expert)] * factors[index_of(key.layer)];
  }
};
struct told_exactly {
  const true_scores& of;

  void write(layer_id layer, std::span<const expert_id> experts, std::span<double> to) const {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = of.of({layer, experts[i]});
  }
};
/// Each up to a thousandth off, in a direction of its own.
struct told_about {
  const true_scores& of;
  std::vector<double>& written;  ///< layers' factors as they were

  void write(layer_id layer, std::span<const expert_id> experts, std::span<double> to) {
    written[index_of(layer)] = of.factors[index_of(layer)];
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = of.near({layer, experts[i]}) * (1 + (number(experts[i]) % 3 - 1) * 1e-3);
  }
  [[nodiscard]] static double bound(double least) { return least * 1.008; }
  [[nodiscard]] double exact(expert_key key) const { return of.of(key); }
  [[nodiscard]] double factor(layer_id layer, std::span<const double>) const {
    return of.factors[index_of(layer)] / written[index_of(layer)];
  }
};

std::vector<slot_id> sorted(const std::map<slot_id, held>& all, const pool_layout& layout,
                            pool_id pool, const true_scores& scores, const slot_mask& eligible) {
  std::vector<std::tuple<double, std::uint64_t, slot_id>> order;
  for (const auto& [slot, one] : all)
    if (layout.pool_of_layer(one.key.layer) == pool && eligible.test(slot))
      order.emplace_back(scores.of(one.key), one.position, slot);
  std::ranges::sort(order);
  std::vector<slot_id> out;
  for (const auto& [score, position, slot] : order) out.push_back(slot);
  return out;
}

/// Random fills, uses, moves, departures and changes of scores, against sorting all residents.
class walk {
 public:
  walk(const pool_layout& layout, std::uint64_t seed, bool estimates)
      : layout_(layout),
        random_(seed),
        estimates_(estimates),
        residents_(layout),
        scores_(layout.shape()),
        written_(scores_.factors) {
    for (const auto s : each<slot_id>(layout.slots())) free_.push_back(s);
  }
  void run() {
    for (std::size_t n = 0; n < 2 * layout_.slots(); ++n)
      if (!free_.empty()) fill();
    for (int n = 0; n < 3000 && !testing::Test::HasFailure(); ++n) step();
  }

 private:
  void step() {
    const auto what = random_.below(7);
    if (what == 0) return revalue();
    if (what <= 2 && !free_.empty()) return fill();
    if (what == 3 && !held_.empty()) return use();
    if (what == 4 && !held_.empty()) return move_or_vacate();
    if (what == 5) return rescale();
    choose();
  }
  void revalue() {
    const auto layer = any_layer();
    // Many ties, and many that differ by less than estimates tell.
    for (auto& v : scores_.values[index_of(layer)])
      v = 1.0 + static_cast<double>(random_.below(6)) +
          static_cast<double>(random_.below(3)) * 3e-4;
    residents_.rescore(layer);
  }
  void rescale() {
    if (!estimates_) return;
    const auto layer = any_layer();
    scores_.factors[index_of(layer)] = 0.5 + static_cast<double>(random_.below(1000)) / 500;
    residents_.rescale(layer);
  }
  [[nodiscard]] layer_id any_layer() {
    return static_cast<layer_id>(random_.below(layout_.shape().layer_count()));
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
    residents_.fill(*at, key, 0_precision);
    held_[*at] = {key, ++clock_};
    EXPECT_EQ(residents_.key(*at), key);
    EXPECT_EQ(residents_.used_at(*at), clock_);
    EXPECT_EQ(residents_.now(), clock_);
    free_.erase(at);
  }
  [[nodiscard]] slot_id any_held() {
    return std::next(held_.begin(), static_cast<std::ptrdiff_t>(random_.below(held_.size())))
        ->first;
  }
  void use() {
    std::vector<slot_id> slots;
    for (auto n = 1 + random_.below(3); n > 0; --n) slots.push_back(any_held());
    if (slots.size() == 1)
      residents_.use(slots.front());
    else
      residents_.use(slots);
    for (const auto slot : slots) held_[slot].position = ++clock_;
  }
  void move_or_vacate() {
    const auto slot = any_held();
    if (!free_.empty() && random_.one_in(2) && layout_.pools() == 1) {
      residents_.move(slot, free_.back());
      held_[free_.back()] = held_[slot];
      free_.back() = slot;
      held_.erase(slot);
    } else if (random_.one_in(2)) {
      vacate(slot);
    }
  }
  /// Experts of one layer come in the places of some slots of its pool.
  void replace(std::vector<slot_id> slots) {
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
    if (fills.empty()) return;
    std::size_t told = 0;
    residents_.bring(fills, [&](const hotset::fill& f) {
      EXPECT_EQ(f.slot, fills[told++].slot);
      held_[f.slot] = {f.key, ++clock_};
    });
    EXPECT_EQ(told, fills.size());
    for (const auto& f : fills) {
      EXPECT_EQ(residents_.key(f.slot), f.key);
      EXPECT_EQ(residents_.used_at(f.slot), held_[f.slot].position);
    }
  }
  [[nodiscard]] bool is_held(expert_key key) const {
    return std::ranges::any_of(held_, [&](const auto& one) { return one.second.key == key; });
  }
  void vacate(slot_id slot) {
    residents_.vacate(slot);
    held_.erase(slot);
    free_.push_back(slot);
  }
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) {
    if (!estimates_) return residents_.select(pool, eligible, out, told_exactly{scores_});
    return residents_.select(pool, eligible, out, told_about{scores_, written_});
  }
  void choose() {
    slot_mask eligible(layout_.slots());
    const auto refused = 1 + random_.below(4);
    for (const auto& [slot, one] : held_) eligible.assign(slot, random_.below(5) >= refused);
    for (const auto pool : each<pool_id>(layout_.pools())) {
      const auto wanted = sorted(held_, layout_, pool, scores_, eligible);
      std::vector<slot_id> out(random_.below(12));
      for (int again = random_.one_in(3) ? 2 : 1; again > 0; --again) {
        out.resize(select(pool, eligible, out));
        ASSERT_LE(out.size(), wanted.size());
        ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin()));
        if (again == 2) out.resize(random_.below(out.size() + 1));
      }
      // Sometimes they all leave, sometimes some, sometimes none; something else may leave before. Or others come in their places.
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
  bool estimates_;
  scored_residents residents_;
  true_scores scores_;
  std::vector<double> written_;
  std::map<slot_id, held> held_;
  std::vector<slot_id> free_;
  std::uint64_t clock_ = 0;
};

constexpr std::int64_t shared_slots[] = {30, 65};

TEST(scored_residents, as_sorting_all_of_them_in_one_pool) {
  for (const auto slots : shared_slots) {
    const auto layout = pool_layout::shared(shape, slots).value();
    for (std::uint64_t seed = 1; seed <= 5; ++seed) walk(layout, seed, false).run();
  }
}
TEST(scored_residents, as_sorting_all_of_them_a_pool_a_layer) {
  const auto layout = pool_layout::per_layer(shape, 9).value();
  for (std::uint64_t seed = 11; seed <= 15; ++seed) walk(layout, seed, false).run();
}
TEST(scored_residents, as_sorting_all_of_them_by_estimates) {
  const auto per_layer = pool_layout::per_layer(shape, 9).value();
  for (std::uint64_t seed = 21; seed <= 25; ++seed) {
    for (const auto slots : shared_slots)
      walk(pool_layout::shared(shape, slots).value(), seed, true).run();
    walk(per_layer, seed, true).run();
  }
}

TEST(scored_residents, as_sorting_all_of_them_in_pools_that_begin_anywhere) {
  geometry mixed = shape;
  mixed.expert_bytes = {8, 4, 4, 8};
  const std::int64_t slots[] = {21, 13};
  const auto layout = pool_layout::shared_by_size_class(mixed, slots).value();
  ASSERT_EQ(layout.pools(), 2U);
  for (std::uint64_t seed = 41; seed <= 45; ++seed)
    for (const bool estimates : {false, true}) walk(layout, seed, estimates).run();
}

TEST(scored_residents, as_sorting_all_of_more_than_a_vector_of_them) {
  const auto wide = pool_layout::shared({.layers = 2, .experts = 150, .top_k = 2}, 200).value();
  const auto deep = pool_layout::shared({.layers = 130, .experts = 3, .top_k = 2}, 200).value();
  for (std::uint64_t seed = 31; seed <= 33; ++seed)
    for (const bool estimates : {false, true}) {
      walk(wide, seed, estimates).run();
      walk(deep, seed, estimates).run();
    }
}

class scored_residents_asked : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(pools, scored_residents_asked, testing::ValuesIn(shared_slots));

TEST_P(scored_residents_asked, only_for_layers_that_have_changed) {
  const auto layout = pool_layout::shared(shape, GetParam()).value();
  scored_residents residents(layout);
  slot_mask eligible(layout.slots());
  for (const auto s : each<slot_id>(4)) {
    residents.fill(s, {layer_id{number(s) % 2}, expert_id{number(s)}}, 0_precision);
    eligible.set(s);
  }
  struct asked_scores {
    std::vector<layer_id>& asked;
    void write(layer_id layer, std::span<const expert_id> experts, std::span<double> to) const {
      if (!experts.empty()) asked.push_back(layer);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = number(experts[i]);
    }
  };
  const auto layers_asked = [&] {
    std::vector<layer_id> asked;
    std::vector<slot_id> out(2, no_slot);
    EXPECT_EQ(residents.select(0_pool, eligible, out, asked_scores{asked}), 2U);
    EXPECT_EQ(out, support::slot_ids({0, 1}));
    return asked;
  };
  EXPECT_EQ(layers_asked(), (std::vector{0_layer, 1_layer}));
  EXPECT_TRUE(layers_asked().empty());
  residents.rescore(1_layer);
  EXPECT_EQ(layers_asked(), std::vector{1_layer});
  residents.use(2_slot);
  EXPECT_TRUE(layers_asked().empty());
  residents.rescore_all();
  EXPECT_EQ(layers_asked(), (std::vector{0_layer, 1_layer}));
}

TEST(scored_residents, what_followed_a_victim_may_leave_before_it) {
  const auto layout = pool_layout::shared(shape, 65).value();
  scored_residents residents(layout);
  slot_mask eligible(layout.slots());
  const auto fill = [&](slot_id slot, layer_id layer, expert_id expert) {
    residents.fill(slot, {layer, expert}, 0_precision);
    eligible.set(slot);
  };
  const auto vacate = [&](slot_id slot) {
    residents.vacate(slot);
    eligible.reset(slot);
  };
  true_scores by_number(shape);
  for (auto& values : by_number.values)
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = static_cast<double>(e);
  const auto choose = [&](std::size_t n) {
    std::vector<slot_id> out(n, no_slot);
    out.resize(residents.select(0_pool, eligible, out, told_exactly{by_number}));
    return out;
  };
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

TEST(scored_residents, takes_what_is_no_number_for_one_beyond_all) {
  constexpr auto infinite = std::numeric_limits<double>::infinity();
  const auto odd = std::nan("");
  const std::vector<double> ascending{-odd, -infinite, -1e300, -1, 0, 1e300, infinite, odd};
  for (std::size_t i = 1; i < ascending.size(); ++i)
    EXPECT_LT(as_number(ascending[i - 1]), as_number(ascending[i])) << i;
  EXPECT_EQ(as_number(0.25), 0.25);
  EXPECT_LT(as_number(odd), infinite);
}

}  // namespace
}  // namespace hotset::scored_residents_test
