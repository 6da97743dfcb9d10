// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by a value that changes for a whole layer at once, and falls with the distance to the layer's next visit.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/vector_level.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/order/least_value.hpp"

namespace hotset::inline v0 {

/// Order: value * discount^(distance / layers), distance = (layer - running - 1) mod layers + 1, products compared exactly; of
/// equals the least recent first. Of each layer the least valuable resident is known until something of that layer changes, so
/// that a choice looks at one resident a layer, and at one layer's experts a victim.
/// Threads: compatible. No allocation after construction. Memory: 12 bytes a key and precision, 4 a key, 12 a slot.
class valued_residents {
 public:
  /// Pre: 0 < discount <= 1.
  valued_residents(const pool_layout& layout, double discount)
      : valued_residents(layout, discount, layout.slots()) {}
  /// As above, of any other numbers below `slots`.
  valued_residents(const pool_layout& layout, double discount, std::size_t slots)
      : layers_(static_cast<std::size_t>(layout.shape().layers)),
        experts_(static_cast<std::size_t>(layout.shape().experts)),
        values_(layout.shape().keys(), 0.0F),
        rows_(layers_ * layout.precisions()),
        kept_(rows_.size() * experts_, absent),
        untaken_(kept_.size()),
        slot_of_(kept_.size(), no_slot),
        place_of_(slots, 0),
        position_(slots, 0),
        rows_of_(layout.pools()) {
    for (std::size_t l = 0; l < layers_; ++l)
      factors_.push_back(static_cast<float>(
          std::pow(discount, static_cast<double>(l + 1) / static_cast<double>(layers_))));
    for (std::size_t p = 0; p < layout.precisions(); ++p)
      for (std::size_t l = 0; l < layers_; ++l) {
        const auto pool = layout.pool_of(static_cast<layer_id>(l), static_cast<precision_id>(p));
        rows_of_[static_cast<std::size_t>(pool)].push_back(p * layers_ + l);
      }
  }

  /// From now on the layer's experts are worth this. Shape: [experts], 0 and more. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto l = static_cast<std::size_t>(layer);
    std::copy_n(values.data(), experts_, values_.data() + l * experts_);
    for (auto r = l; r < rows_.size(); r += layers_) {
      only_residents(r, values, row(kept_, r));
      rows_[r].known = false;
    }
  }
  void use(slot_id slot) noexcept {
    position_[at(slot)] = ++clock_;
    changed(slot);
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto of_key =
        static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
    const auto place = precision * layers_ * experts_ + of_key;
    place_of_[at(slot)] = place;
    slot_of_[place] = slot;
    kept_[place] = values_[of_key];
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto place = place_of_[at(slot)];
    slot_of_[place] = no_slot;
    kept_[place] = absent;
    changed(slot);
  }
  void move(slot_id from, slot_id to) noexcept {
    place_of_[at(to)] = place_of_[at(from)];
    position_[at(to)] = position_[at(from)];
    slot_of_[place_of_[at(to)]] = to;
    changed(to);
  }

  /// The eligible residents of a pool in order; returns how many. `of_running`: what the running layer's experts are worth in
  /// place of the values that were set; empty: those. Complexity: O(layers of the pool) a victim, and O(experts) for each
  /// resident that is looked at.
  std::size_t select(pool_id pool, layer_id running, std::span<const float> of_running,
                     const slot_mask& eligible, std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    const auto& rows = rows_of_[static_cast<std::size_t>(pool)];
    for (const auto r : rows) {
      if (r % layers_ == static_cast<std::size_t>(running) && !of_running.empty())
        rows_[r].first = of_values(r, of_running);
      else
        rows_[r].first = of_kept(r);
    }
    std::size_t count = 0;
    while (count < out.size()) {
      const auto r = lowest(rows, running);
      if (r == none) break;
      const auto slot = slot_of_[rows_[r].first.place];
      if (eligible.test(slot)) out[count++] = slot;
      pass_over(r);
    }
    return count;
  }
  /// As it was set last.
  [[nodiscard]] float value(expert_key key) const noexcept {
    return values_[static_cast<std::size_t>(key.layer) * experts_ +
                   static_cast<std::size_t>(key.expert)];
  }
  /// What orders an expert of a layer among all: its value, less for layers further ahead.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return double{value} * double{factor(static_cast<std::size_t>(layer), running)};
  }

 private:
  static constexpr float absent = absent_value;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  struct resident {
    float value = absent;
    std::uint64_t position = 0;
    std::size_t place = 0;
  };
  /// A layer's experts at one precision.
  struct row_state {
    resident least;  ///< of kept_, while known
    resident first;  ///< of what a choice has not passed over
    bool known = false;
    bool copied = false;  ///< untaken_ holds what a choice has not passed over
  };

  static std::size_t at(slot_id slot) noexcept { return static_cast<std::size_t>(slot); }
  [[nodiscard]] std::span<float> row(std::vector<float>& of, std::size_t r) const noexcept {
    return std::span(of).subspan(r * experts_, experts_);
  }
  void changed(slot_id slot) noexcept { rows_[place_of_[at(slot)] / experts_].known = false; }
  void only_residents(std::size_t r, std::span<const float> values,
                      std::span<float> to) const noexcept {
    residents_only(values, std::span(slot_of_).subspan(r * experts_, experts_), to, level_);
  }

  [[nodiscard]] resident of_kept(std::size_t r) noexcept {
    auto& state = rows_[r];
    state.copied = false;
    if (!state.known) state.least = least_of(row(kept_, r), r);
    state.known = true;
    return state.least;
  }
  [[nodiscard]] resident of_values(std::size_t r, std::span<const float> values) noexcept {
    rows_[r].copied = true;
    only_residents(r, values, row(untaken_, r));
    return least_of(row(untaken_, r), r);
  }
  void pass_over(std::size_t r) noexcept {
    auto& state = rows_[r];
    const auto left = row(untaken_, r);
    if (!state.copied) std::copy_n(kept_.data() + r * experts_, experts_, left.data());
    state.copied = true;
    left[state.first.place - r * experts_] = absent;
    state.first = least_of(left, r);
  }
  [[nodiscard]] resident least_of(std::span<const float> values, std::size_t r) const noexcept {
    resident out{.value = least_value(values, level_)};
    if (out.value == absent) return out;
    out.position = std::numeric_limits<std::uint64_t>::max();
    each_equal(values, out.value, level_, [&](std::size_t e) {
      const auto place = r * experts_ + e;
      const auto position = position_[at(slot_of_[place])];
      if (position < out.position) out = {out.value, position, place};
    });
    return out;
  }
  /// The row whose first resident is worth least, or none. A product of two floats is exact as a double.
  [[nodiscard]] std::size_t lowest(std::span<const std::size_t> rows,
                                   layer_id running) const noexcept {
    std::size_t found = none;
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t position = 0;
    for (const auto r : rows) {
      const auto& first = rows_[r].first;
      if (first.value == absent) continue;
      const auto now = worth(static_cast<layer_id>(r % layers_), first.value, running);
      if (now > least || (now == least && first.position > position)) continue;
      found = r;
      least = now;
      position = first.position;
    }
    return found;
  }
  /// Pre: running is a layer, or before_layers.
  [[nodiscard]] float factor(std::size_t layer, layer_id running) const noexcept {
    const auto after = static_cast<std::size_t>(running) + 1;  // 0 behind before_layers
    return factors_[layer >= after ? layer - after : layer + layers_ - after];
  }

  std::size_t layers_;
  std::size_t experts_;
  vector_level level_ = best_vector_level();
  std::vector<float> values_;            ///< [key]
  std::vector<row_state> rows_;          ///< [precision, layer]
  std::vector<float> kept_;              ///< [precision, layer, expert] of residents, else absent
  std::vector<float> untaken_;           ///< likewise, scratch
  std::vector<slot_id> slot_of_;         ///< [precision, layer, expert]
  std::vector<std::size_t> place_of_;    ///< [slot] in kept_
  std::vector<std::uint64_t> position_;  ///< [slot]
  std::uint64_t clock_ = 0;
  std::vector<float> factors_;                     ///< [distance - 1]
  std::vector<std::vector<std::size_t>> rows_of_;  ///< [pool]
};

}  // namespace hotset::inline v0
