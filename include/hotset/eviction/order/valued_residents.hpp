// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by a value that changes for a whole layer at once, and falls with the distance to the layer's next visit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_values.hpp"

namespace hotset {

/// Order: value * discount^(distance / layers), distance = (layer - running - 1) mod layers + 1, products compared exactly; of
/// equals the least recent first. Of each layer the least valuable resident is known until something of that layer changes, so
/// that a choice looks at one resident a layer, and at one layer's experts a victim. Where just its victims leave, what it found
/// after them is the least.
/// Threads: compatible. No allocation after construction. Memory: 4 bytes and a bit a key and precision, 4 bytes a key, 24 a
/// slot; layers' experts are filled up to whole 64s.
class valued_residents {
 public:
  /// Pre: 0 < discount <= 1.
  valued_residents(const pool_layout& layout, double discount)
      : valued_residents(layout, discount, layout.slots()) {}
  /// As above, of any other numbers below `slots`.
  valued_residents(const pool_layout& layout, double discount, std::size_t slots)
      : layers_(layout.shape().layer_count()),
        experts_(layout.shape().expert_count()),
        words_(words_for(experts_)),
        values_(layers_ * words_ * 64, 0.0F),
        rows_(layers_ * layout.precisions()),
        of_running_(words_ * 64, 0.0F),
        residents_(rows_.size() * words_, 0),
        slot_of_(rows_.size() * experts_, no_slot),
        slots_(slots),
        rows_of_(layout.pools()),
        runs_of_(layout.pools()),
        unseen_of_(layout.pools()),
        first_values_(rows_.size(), double{absent}) {
    for (std::size_t l = 0; l < 2 * layers_; ++l)
      factors_.push_back(double{static_cast<float>(std::pow(
          discount, static_cast<double>(l % layers_ + 1) / static_cast<double>(layers_)))});
    for (std::size_t p = 0; p < layout.precisions(); ++p)
      for (std::size_t l = 0; l < layers_; ++l) {
        const auto pool = layout.pool_of(static_cast<layer_id>(l), static_cast<precision_id>(p));
        const pool_row row{p * layers_ + l, l};
        auto& runs = runs_of_[pool];
        if (runs.empty() || !runs.back().is_followed_by(row)) runs.push_back({row, 0});
        ++runs.back().rows;
        rows_of_[pool].push_back(row);
      }
    for (const auto pool : rows_of_.ids()) {
      std::size_t n = 0;
      for (const auto [r, layer] : rows_of_[pool])
        rows_[r].bit = static_cast<std::uint32_t>(unseen_.size() * 64 + n++);
      unseen_of_[pool] = unseen_.size();
      unseen_.resize(unseen_.size() + (n + 63) / 64, 0);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) forget(r);
    worths_.resize(words_for(rows_.size()) * 64, double{absent});
    others_.resize(words_for(rows_.size()));
    found_.resize(std::max(words_, others_.size()));
    passed_.resize(slots);
  }

  /// From now on the layer's experts are worth this. Shape: [experts], 0 and more. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto l = index_of(layer);
    std::copy_n(values.data(), experts_, values_.data() + l * words_ * 64);
    for (auto r = l; r < rows_.size(); r += layers_) forget(r);
  }
  void use(slot_id slot) noexcept {
    auto& used = slots_[slot];
    used.position = ++clock_;
    forget(used.row);
  }
  /// The same for several, in this order. Pre: they hold experts of one layer at one precision.
  void use(std::span<const slot_id> slots) noexcept {
    if (slots.empty()) return;
    forget(slots_[slots.front()].row);
    for (const auto slot : slots) slots_[slot].position = ++clock_;
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto r = index_of(precision) * layers_ + index_of(key.layer);
    const auto expert = index_of(key.expert);
    const auto place = static_cast<std::uint32_t>(r * experts_ + expert);
    slots_[slot] = {0, place, static_cast<std::uint32_t>(r)};
    slot_of_[place] = slot;
    show(place, r);
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto& left = slots_[slot];
    slot_of_[left.place] = no_slot;
    hide(left.place, left.row);
    auto& row = rows_[left.row];
    const resident leaving{values_of(left.row)[left.place - left.row * experts_], left.place,
                           left.position};
    if (row.seen_by == choice_ && leaving.goes_before(row.first)) {
      if (--row.passed != 0) return;
      row.seen_by = all;
      unseen_[row.bit / 64] &= ~bit_of(row);
    } else if (row.seen_by != all || row.first.place == left.place) {
      forget(left.row);
    }
  }
  void move(slot_id from, slot_id to) noexcept {
    slots_[to] = slots_[from];
    slot_of_[slots_[to].place] = to;
  }

  /// The eligible residents of a pool in order; returns how many. `of_running`: what the running layer's experts are worth in
  /// place of the values that were set; empty: those. Complexity: O(layers of the pool) a victim, and O(experts) for each
  /// resident that is looked at.
  std::size_t select(pool_id pool, layer_id running, std::span<const float> of_running,
                     const slot_mask& eligible, std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    ++choice_;
    const std::span<const pool_row> rows(rows_of_[pool]);
    const auto factors = factors_after(running);
    const auto runs = of_running.empty() ? none : index_of(running);
    if (runs != none) begin_running(runs, of_running);
    see_all(pool, rows);
    weigh(runs_of_[pool], factors);
    begin_others(rows.size());
    std::size_t count = 0;
    for (auto n = lowest_row(rows); n != none;) {
      const auto [r, layer] = rows[n];
      const auto slot = slot_of_[rows_[r].first.place];
      if (eligible.test(slot)) out[count++] = slot;
      pass_over(r, layer == runs ? of_running_.data() : values_of(r));
      if (count == out.size()) break;
      // Which of the others is lowest does not wait for what comes next of this row.
      const auto other = lowest_row_but(rows, n);
      worths_[n] = first_values_[r] * factors[layer];
      n = lower(rows, n, other);
    }
    show_passed();
    if (runs != none)
      for (auto r = runs; r < rows_.size(); r += layers_) forget(r);
    return count;
  }
  /// As it was set last.
  [[nodiscard]] float value(expert_key key) const noexcept {
    return values_[index_of(key.layer) * words_ * 64 + index_of(key.expert)];
  }
  /// What orders an expert of a layer among all: its value, less for layers further ahead.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return double{value} * factors_after(running)[index_of(layer)];
  }

 private:
  static constexpr float absent = std::numeric_limits<float>::infinity();
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  // Who has seen a row as it is; choices follow.
  static constexpr std::uint64_t nobody = 0;
  static constexpr std::uint64_t all = 1;

  struct slot_state {
    std::uint64_t position = 0;
    std::uint32_t place = 0;  ///< in slot_of_
    std::uint32_t row = 0;    ///< of the place
  };
  /// A row of a pool.
  struct pool_row {
    std::size_t row = 0;
    std::size_t layer = 0;
  };
  /// Rows of a pool that follow one another, and so do their layers.
  struct row_run {
    pool_row first;
    std::size_t rows = 0;

    [[nodiscard]] bool is_followed_by(const pool_row& next) const noexcept {
      return first.row + rows == next.row && first.layer + rows == next.layer;
    }
  };
  /// None, unless it is one.
  struct resident {
    float value = absent;
    std::uint32_t place = std::numeric_limits<std::uint32_t>::max();
    std::uint64_t position = std::numeric_limits<std::uint64_t>::max();

    /// Of one layer.
    [[nodiscard]] bool goes_before(const resident& other) const noexcept {
      return value < other.value || (value == other.value && position < other.position);
    }
  };
  /// A layer's experts at one precision.
  struct row_state {
    /// all: `first` is the least. A choice: the least that it has not passed over, and nothing but what it has has left since.
    std::uint64_t seen_by = nobody;
    std::uint32_t passed = 0;  ///< by that choice, and not gone
    std::uint32_t bit = 0;     ///< in unseen_
    resident first;
  };
  struct passed_over {
    std::uint32_t place = 0;
    std::uint32_t row = 0;
  };

  /// As they were set. Shape: [experts, filled up].
  [[nodiscard]] const float* values_of(std::size_t r) const noexcept {
    return values_.data() + (r < layers_ ? r : r % layers_) * words_ * 64;
  }
  void show(std::size_t place, std::size_t r) noexcept {
    const auto expert = place - r * experts_;
    residents_[r * words_ + expert / 64] |= std::uint64_t{1} << expert % 64;
  }
  void hide(std::size_t place, std::size_t r) noexcept {
    const auto expert = place - r * experts_;
    residents_[r * words_ + expert / 64] &= ~(std::uint64_t{1} << expert % 64);
  }

  [[nodiscard]] static std::uint64_t bit_of(const row_state& row) noexcept {
    return std::uint64_t{1} << row.bit % 64;
  }
  void forget(std::size_t r) noexcept {
    rows_[r].seen_by = nobody;
    unseen_[rows_[r].bit / 64] |= bit_of(rows_[r]);
  }
  void find_least(std::size_t r) noexcept {
    find_first(r, values_of(r));
    rows_[r].seen_by = all;
  }
  /// Of each of a pool's rows the first is known.
  void see_all(pool_id pool, std::span<const pool_row> rows) noexcept {
    for (std::size_t w = 0; w * 64 < rows.size(); ++w)
      for (auto left = std::exchange(unseen_[unseen_of_[pool] + w], 0); left != 0; left &= left - 1)
        find_least(rows[w * 64 + static_cast<std::size_t>(std::countr_zero(left))].row);
  }
  /// Writes what the first of each row of a pool is worth.
  void weigh(std::span<const row_run> runs, std::span<const double> factors) noexcept {
    auto* to = worths_.data();
    for (const auto& run : runs) {
      const auto* const values = first_values_.data() + run.first.row;
      const auto* const by = factors.data() + run.first.layer;
      for (std::size_t i = 0; i < run.rows; ++i) *to++ = values[i] * by[i];
    }
  }
  void begin_running(std::size_t layer, std::span<const float> values) noexcept {
    std::copy_n(values.data(), experts_, of_running_.data());
    for (auto r = layer; r < rows_.size(); r += layers_) {
      find_first(r, of_running_.data());
      rows_[r].seen_by = choice_;
      unseen_[rows_[r].bit / 64] &= ~bit_of(rows_[r]);
    }
  }
  void pass_over(std::size_t r, const float* values) noexcept {
    auto& state = rows_[r];
    hide(state.first.place, r);
    passed_[passed_count_++] = {state.first.place, static_cast<std::uint32_t>(r)};
    find_first(r, values);
    state.passed = (state.seen_by == choice_ ? state.passed : 0) + 1;
    state.seen_by = choice_;
    unseen_[state.bit / 64] |= bit_of(state);
  }
  void show_passed() noexcept {
    for (const auto& [place, r] : std::span(passed_).first(passed_count_)) show(place, r);
    passed_count_ = 0;
  }
  /// Of those that are not hidden. Shape of values: [experts, filled up].
  void find_first(std::size_t r, const float* values) noexcept {
    const auto among = std::span<const std::uint64_t>(residents_).subspan(r * words_, words_);
    const auto least = lowest_values(values, among, found_.data(), std::identity(), level_);
    first_values_[r] = double{least};
    auto& first = rows_[r].first;
    if (least == absent) {
      first = {};
      return;
    }
    const auto found = std::span<const std::uint64_t>(found_).first(words_);
    const few_members lowest(found);
    first = resident_at(r, lowest.first, least);
    if (lowest.is_alone) return;
    auto oldest = first;
    each_member(found, [&](std::size_t e) {
      const auto other = resident_at(r, e, least);
      oldest = other.position < oldest.position ? other : oldest;
    });
    first = oldest;
  }
  [[nodiscard]] resident resident_at(std::size_t r, std::size_t expert,
                                     float value) const noexcept {
    const auto place = static_cast<std::uint32_t>(r * experts_ + expert);
    return {value, place, slots_[slot_of_[place]].position};
  }
  void begin_others(std::size_t rows) noexcept {
    for (std::size_t w = 0; w < words_for(rows); ++w) others_[w] = ~std::uint64_t{0};
    others_[words_for(rows) - 1] >>= (64 - rows % 64) % 64;
  }
  [[nodiscard]] std::size_t lowest_row_but(std::span<const pool_row> rows, std::size_t n) noexcept {
    if (rows.size() == 1) return none;
    auto& word = others_[n / 64];
    const auto bit = std::uint64_t{1} << n % 64;
    word &= ~bit;
    const auto out = lowest_row(rows);
    word |= bit;
    return out;
  }
  /// Which of the rows in others_ has the first resident that is worth least, or none.
  [[nodiscard]] std::size_t lowest_row(std::span<const pool_row> rows) noexcept {
    if (rows.size() == 1) return worths_[0] == double{absent} ? none : 0;
    const auto words = words_for(rows.size());
    const auto among = std::span<const std::uint64_t>(others_).first(words);
    const auto least = lowest_values(worths_.data(), among, found_.data(), std::identity(), level_);
    if (least == double{absent}) return none;
    const auto found = std::span<const std::uint64_t>(found_).first(words);
    const few_members lowest(found);
    auto out = lowest.first;
    if (lowest.is_alone) return out;
    each_member(found, [&](std::size_t n) {
      if (rows_[rows[n].row].first.position < rows_[rows[out].row].first.position) out = n;
    });
    return out;
  }
  /// Whose first resident is worth less, of equals the one that is less recent. Pre: n is a row; other is one, or none.
  [[nodiscard]] std::size_t lower(std::span<const pool_row> rows, std::size_t n,
                                  std::size_t other) const noexcept {
    if (other == none) return worths_[n] == double{absent} ? none : n;
    const bool is_equal = worths_[n] == worths_[other];
    const bool is_older = rows_[rows[n].row].first.position < rows_[rows[other].row].first.position;
    // Without a branch: the outcome cannot be predicted.
    return (worths_[n] < worths_[other]) | (is_equal & is_older) ? n : other;
  }
  /// What layers' values count by their distance. Shape: [layers]. Pre: running is a layer, or before_layers.
  [[nodiscard]] std::span<const double> factors_after(layer_id running) const noexcept {
    const auto after = layers_until(running);
    return std::span(factors_).subspan(layers_ - after, layers_);
  }

  std::size_t layers_;
  std::size_t experts_;
  std::size_t words_;  ///< of a set of experts
  vector_level level_ = best_vector_level();
  aligned_vector<float> values_;          ///< [layer, expert, filled up]
  std::vector<row_state> rows_;           ///< [precision, layer]
  aligned_vector<float> of_running_;      ///< [expert, filled up] in place of values_, scratch
  std::vector<std::uint64_t> residents_;  ///< [precision, layer, words] a bit an expert
  std::vector<slot_id> slot_of_;          ///< [precision, layer, expert]
  per_slot<slot_state> slots_;
  std::uint64_t clock_ = 0;
  std::uint64_t choice_ = all;
  std::vector<double> factors_;  ///< [distance - 1], twice; floats, for the product of two is exact
  per_pool<std::vector<pool_row>> rows_of_;  ///< [pool]
  per_pool<std::vector<row_run>> runs_of_;   ///< [pool] the same rows
  std::vector<std::uint64_t> unseen_;  ///< [pool, row of the pool] a bit: its least must be found
  per_pool<std::size_t> unseen_of_;    ///< [pool] first word
  std::vector<double> first_values_;   ///< [precision, layer] of `first`
  aligned_vector<double> worths_;      ///< [row of the pool], of what is first, scratch
  std::vector<std::uint64_t> others_;  ///< a bit a row of the pool, scratch
  std::vector<std::uint64_t> found_;   ///< as lowest_values gives it, scratch
  std::vector<passed_over> passed_;    ///< hidden by the choice, scratch
  std::size_t passed_count_ = 0;
};

}  // namespace hotset
