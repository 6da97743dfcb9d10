// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by a value that changes for a whole layer at once, and falls with the distance to the layer's next visit.

#include <algorithm>
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
        rows_of_(layout.pools()) {
    for (std::size_t l = 0; l < 2 * layers_; ++l)
      factors_.push_back(static_cast<float>(
          std::pow(discount, static_cast<double>(l % layers_ + 1) / static_cast<double>(layers_))));
    for (std::size_t p = 0; p < layout.precisions(); ++p)
      for (std::size_t l = 0; l < layers_; ++l) {
        const auto pool = layout.pool_of(static_cast<layer_id>(l), static_cast<precision_id>(p));
        rows_of_[pool].push_back({p * layers_ + l, l});
      }
    worths_.resize(rows_.size());
    passed_.reserve(slots);
  }

  /// From now on the layer's experts are worth this. Shape: [experts], 0 and more. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto l = index_of(layer);
    std::copy_n(values.data(), experts_, values_.data() + l * experts_);
    for (auto r = l; r < rows_.size(); r += layers_) {
      only_residents(r, values, kept_row(r));
      rows_[r].seen_by = nobody;
    }
  }
  void use(slot_id slot) noexcept {
    auto& used = slots_[slot];
    used.position = ++clock_;
    rows_[used.row].seen_by = nobody;
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
    } else if (row.seen_by != all || row.least.place == left.place) {
      row.seen_by = nobody;
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
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const auto [r, layer] = rows[n];
      if (layer == runs)
        begin_running(r, of_running);
      else if (rows_[r].seen_by != all)
        find_least(r);
      worths_[n] = worth_of(first(r).value, factors[layer]);
    }
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
      worths_[n] = worth_of(first(r).value, factors[layer]);
    }
    for (const auto& [place, value] : passed_) kept_[place] = value;
    passed_.clear();
    if (runs != none)
      for (auto r = runs; r < rows_.size(); r += layers_) rows_[r].seen_by = nobody;
    return count;
  }
  /// As it was set last.
  [[nodiscard]] float value(expert_key key) const noexcept {
    return values_[index_of(key.layer) * experts_ + index_of(key.expert)];
  }
  /// What orders an expert of a layer among all: its value, less for layers further ahead.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return worth_of(value, factors_after(running)[index_of(layer)]);
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

  void find_least(std::size_t r) noexcept {
    rows_[r].least = least_of(kept_row(r), r);
    rows_[r].seen_by = all;
  }
  void begin_running(std::size_t r, std::span<const float> values) noexcept {
    only_residents(r, values, running_row(r));
    rows_[r].untaken = least_of(running_row(r), r);
    rows_[r].seen_by = choice_;
  }
  /// Of what the choice has not passed over.
  [[nodiscard]] const resident& first(std::size_t r) const noexcept {
    return rows_[r].seen_by == choice_ ? rows_[r].untaken : rows_[r].least;
  }
  void pass_over(std::size_t r, std::span<float> row) noexcept {
    row[first(r).place - r * experts_] = absent;
    rows_[r].untaken = least_of(row, r);
  }
  void pass_over_kept(std::size_t r) noexcept {
    auto& state = rows_[r];
    passed_.push_back({first(r).place, first(r).value});
    pass_over(r, kept_row(r));
    if (state.seen_by != choice_) state.passed = 0;
    state.seen_by = choice_;
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
  /// A product of two floats is exact as a double.
  static double worth_of(float value, float factor) noexcept {
    return double{value} * double{factor};
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
  [[nodiscard]] std::span<const float> factors_after(layer_id running) const noexcept {
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
  std::vector<float> factors_;               ///< [distance - 1], twice
  per_pool<std::vector<pool_row>> rows_of_;  ///< [pool]
  std::vector<double> worths_;               ///< [row of the pool], of what is first, scratch
  std::vector<passed_over> passed_;          ///< of kept_, scratch
};

}  // namespace hotset::inline v0
