// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by a value that changes for a whole layer at once, and falls with the distance to the layer's next visit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/vector_level.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/order/least_value.hpp"

namespace hotset::inline v0 {

/// Order: value * discount^(distance / layers), distance = (layer - running - 1) mod layers + 1, products compared exactly; of
/// equals the least recent first. Of each layer the least valuable resident is known until something of that layer changes, so
/// that a choice looks at one resident a layer, and at one layer's experts a victim. Where just its victims leave, what it found
/// after them is the least.
/// Threads: compatible. No allocation after construction. Memory: 8 bytes a key and precision, 4 a key, 24 a slot.
class valued_residents {
 public:
  /// Pre: 0 < discount <= 1.
  valued_residents(const pool_layout& layout, double discount)
      : valued_residents(layout, discount, layout.slots()) {}
  /// As above, of any other numbers below `slots`.
  valued_residents(const pool_layout& layout, double discount, std::size_t slots)
      : layers_(layout.shape().layer_count()),
        experts_(layout.shape().expert_count()),
        values_(layout.shape().keys(), 0.0F),
        rows_(layers_ * layout.precisions()),
        kept_(rows_.size() * experts_, absent),
        of_running_(layout.precisions() * experts_),
        slot_of_(kept_.size(), no_slot),
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
      for (const auto [r, layer] : rows_of_[pool]) rows_[r].bit = unseen_.size() * 64 + n++;
      unseen_of_[pool] = unseen_.size();
      unseen_.resize(unseen_.size() + (n + 63) / 64, 0);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) forget(r);
    worths_.resize(rows_.size());
    passed_.reserve(slots);
  }

  /// From now on the layer's experts are worth this. Shape: [experts], 0 and more. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto l = index_of(layer);
    std::copy_n(values.data(), experts_, values_.data() + l * experts_);
    for (auto r = l; r < rows_.size(); r += layers_) {
      only_residents(r, values, kept_row(r));
      forget(r);
    }
  }
  void use(slot_id slot) noexcept {
    auto& used = slots_[slot];
    used.position = ++clock_;
    forget(used.row);
  }
  /// The same for several, in this order. Pre: they hold experts of one layer at one precision.
  void use(std::span<const slot_id> slots) noexcept {
    for (const auto slot : slots) slots_[slot].position = ++clock_;
    if (!slots.empty()) forget(slots_[slots.front()].row);
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto r = index_of(precision) * layers_ + index_of(key.layer);
    const auto expert = index_of(key.expert);
    const auto place = static_cast<std::uint32_t>(r * experts_ + expert);
    slots_[slot] = {0, place, static_cast<std::uint32_t>(r)};
    slot_of_[place] = slot;
    kept_[place] = values_[index_of(key.layer) * experts_ + expert];
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto& left = slots_[slot];
    slot_of_[left.place] = no_slot;
    const resident leaving{std::exchange(kept_[left.place], absent), left.place, left.position};
    auto& row = rows_[left.row];
    if (row.seen_by == choice_ && leaving.goes_before(row.untaken)) {
      if (--row.passed != 0) return;
      row.least = row.untaken;
      row.seen_by = all;
      unseen_[row.bit / 64] &= ~bit_of(row);
    } else if (row.seen_by != all || row.least.place == left.place) {
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
    if (runs != none)
      for (auto r = runs; r < rows_.size(); r += layers_) begin_running(r, of_running);
    see_all(pool, rows);
    weigh(runs_of_[pool], factors);
    std::size_t count = 0;
    while (count < out.size()) {
      const auto n = lowest(rows);
      if (n == none) break;
      const auto [r, layer] = rows[n];
      const auto slot = slot_of_[first(r).place];
      if (eligible.test(slot)) out[count++] = slot;
      if (layer == runs)
        pass_over(r, running_row(r));
      else
        pass_over_kept(r);
      worths_[n] = first_values_[r] * factors[layer];
    }
    for (const auto& [place, value] : passed_) kept_[place] = value;
    passed_.clear();
    if (runs != none)
      for (auto r = runs; r < rows_.size(); r += layers_) forget(r);
    return count;
  }
  /// As it was set last.
  [[nodiscard]] float value(expert_key key) const noexcept {
    return values_[index_of(key.layer) * experts_ + index_of(key.expert)];
  }
  /// What orders an expert of a layer among all: its value, less for layers further ahead.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return double{value} * factors_after(running)[index_of(layer)];
  }

 private:
  static constexpr float absent = absent_value;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  // Who has seen a row as it is; choices follow.
  static constexpr std::uint64_t nobody = 0;
  static constexpr std::uint64_t all = 1;

  struct slot_state {
    std::uint64_t position = 0;
    std::uint32_t place = 0;  ///< in kept_
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
    /// all: `least` is known. A choice: it passed something over, and nothing but that has left since.
    std::uint64_t seen_by = nobody;
    std::uint32_t passed = 0;  ///< by that choice, and not gone
    std::size_t bit = 0;       ///< in unseen_
    resident least;
    resident untaken;  ///< the least that the choice has not passed over
  };
  struct passed_over {
    std::uint32_t place = 0;
    float value = 0;
  };

  [[nodiscard]] std::span<float> kept_row(std::size_t r) noexcept {
    return std::span(kept_).subspan(r * experts_, experts_);
  }
  [[nodiscard]] std::span<float> running_row(std::size_t r) noexcept {
    return std::span(of_running_).subspan(r / layers_ * experts_, experts_);
  }
  void only_residents(std::size_t r, std::span<const float> values,
                      std::span<float> to) const noexcept {
    residents_only(values, std::span(slot_of_).subspan(r * experts_, experts_), to, level_);
  }

  [[nodiscard]] static std::uint64_t bit_of(const row_state& row) noexcept {
    return std::uint64_t{1} << row.bit % 64;
  }
  void forget(std::size_t r) noexcept {
    rows_[r].seen_by = nobody;
    unseen_[rows_[r].bit / 64] |= bit_of(rows_[r]);
  }
  void find_least(std::size_t r) noexcept {
    rows_[r].least = least_of(kept_row(r), r);
    rows_[r].seen_by = all;
    first_values_[r] = double{rows_[r].least.value};
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
  void begin_running(std::size_t r, std::span<const float> values) noexcept {
    only_residents(r, values, running_row(r));
    rows_[r].untaken = least_of(running_row(r), r);
    rows_[r].seen_by = choice_;
    unseen_[rows_[r].bit / 64] &= ~bit_of(rows_[r]);
    first_values_[r] = double{rows_[r].untaken.value};
  }
  /// Of what the choice has not passed over.
  [[nodiscard]] const resident& first(std::size_t r) const noexcept {
    return rows_[r].seen_by == choice_ ? rows_[r].untaken : rows_[r].least;
  }
  void pass_over(std::size_t r, std::span<float> row) noexcept {
    row[first(r).place - r * experts_] = absent;
    rows_[r].untaken = least_of(row, r);
    first_values_[r] = double{rows_[r].untaken.value};
  }
  void pass_over_kept(std::size_t r) noexcept {
    auto& state = rows_[r];
    passed_.push_back({first(r).place, first(r).value});
    pass_over(r, kept_row(r));
    if (state.seen_by != choice_) state.passed = 0;
    state.seen_by = choice_;
    unseen_[state.bit / 64] |= bit_of(state);
    ++state.passed;
  }
  [[nodiscard]] resident least_of(std::span<const float> values, std::size_t r) const noexcept {
    resident out{.value = least_value(values, level_)};
    if (out.value == absent) return out;
    each_equal(values, out.value, level_, [&](std::size_t e) {
      const auto place = static_cast<std::uint32_t>(r * experts_ + e);
      const auto position = slots_[slot_of_[place]].position;
      if (position < out.position) out = {out.value, place, position};
    });
    return out;
  }
  /// Which of the pool's rows has the first resident that is worth least, or none.
  [[nodiscard]] std::size_t lowest(std::span<const pool_row> rows) const noexcept {
    const std::span<const double> worths(worths_.data(), rows.size());
    if (worths.size() == 1) return worths[0] == double{absent} ? none : 0;
    const auto least = least_value(worths, level_);
    std::size_t found = none;
    if (least == double{absent}) return found;
    each_equal(worths, least, level_, [&](std::size_t n) {
      if (found == none || first(rows[n].row).position < first(rows[found].row).position) found = n;
    });
    return found;
  }
  /// What layers' values count by their distance. Shape: [layers]. Pre: running is a layer, or before_layers.
  [[nodiscard]] std::span<const double> factors_after(layer_id running) const noexcept {
    const auto after = layers_until(running);
    return std::span(factors_).subspan(layers_ - after, layers_);
  }

  std::size_t layers_;
  std::size_t experts_;
  vector_level level_ = best_vector_level();
  std::vector<float> values_;      ///< [key]
  std::vector<row_state> rows_;    ///< [precision, layer]
  std::vector<float> kept_;        ///< [precision, layer, expert] of residents, else absent
  std::vector<float> of_running_;  ///< [precision, expert] likewise, of the running layer, scratch
  std::vector<slot_id> slot_of_;   ///< [precision, layer, expert]
  per_slot<slot_state> slots_;
  std::uint64_t clock_ = 0;
  std::uint64_t choice_ = all;
  std::vector<double> factors_;  ///< [distance - 1], twice; floats, for the product of two is exact
  per_pool<std::vector<pool_row>> rows_of_;  ///< [pool]
  per_pool<std::vector<row_run>> runs_of_;   ///< [pool] the same rows
  std::vector<std::uint64_t> unseen_;  ///< [pool, row of the pool] a bit: its least must be found
  per_pool<std::size_t> unseen_of_;    ///< [pool] first word
  std::vector<double> first_values_;   ///< [precision, layer] of first()
  std::vector<double> worths_;         ///< [row of the pool], of what is first, scratch
  std::vector<passed_over> passed_;    ///< of kept_, scratch
};

}  // namespace hotset::inline v0
