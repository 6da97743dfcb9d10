// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by a value that changes for a whole layer at once, and falls with the distance to the layer's next visit.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
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
/// that a choice looks at one resident a layer, and at one layer's experts a victim.
/// Threads: compatible. No allocation after construction. Memory: 12 bytes a key and precision, 4 a key, 16 a slot.
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
        untaken_(kept_.size()),
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
  }

  /// From now on the layer's experts are worth this. Shape: [experts], 0 and more. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto l = index_of(layer);
    std::copy_n(values.data(), experts_, values_.data() + l * experts_);
    for (auto r = l; r < rows_.size(); r += layers_) {
      only_residents(r, values, row(kept_, r));
      rows_[r].known = false;
    }
  }
  void use(slot_id slot) noexcept {
    auto& used = slots_[slot];
    used.position = ++clock_;
    rows_[used.row].known = false;
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto row = index_of(precision) * layers_ + index_of(key.layer);
    const auto expert = index_of(key.expert);
    const auto place = row * experts_ + expert;
    slots_[slot] = {0, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(row)};
    slot_of_[place] = slot;
    kept_[place] = values_[index_of(key.layer) * experts_ + expert];
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto& left = slots_[slot];
    slot_of_[left.place] = no_slot;
    kept_[left.place] = absent;
    rows_[left.row].known = false;
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
    const std::span<const pool_row> rows(rows_of_[pool]);
    const auto factors = factors_after(running);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const auto [r, layer] = rows[n];
      if (layer == index_of(running) && !of_running.empty())
        begin_with(r, of_running);
      else
        begin_with_kept(r);
      worths_[n] = ordered_worth(rows_[r].first().value, factors[layer]);
    }
    std::size_t count = 0;
    while (count < out.size()) {
      const auto n = lowest(rows);
      if (n == none) break;
      const auto [r, layer] = rows[n];
      const auto slot = slot_of_[rows_[r].first().place];
      if (eligible.test(slot)) out[count++] = slot;
      pass_over(r);
      worths_[n] = ordered_worth(rows_[r].first().value, factors[layer]);
    }
    return count;
  }
  /// As it was set last.
  [[nodiscard]] float value(expert_key key) const noexcept {
    return values_[index_of(key.layer) * experts_ + index_of(key.expert)];
  }
  /// What orders an expert of a layer among all: its value, less for layers further ahead.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return double{value} * double{factors_after(running)[index_of(layer)]};
  }

 private:
  static constexpr float absent = absent_value;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  /// The worth of an absent value.
  static constexpr auto nothing_left =
      std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());

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
  struct resident {
    float value = absent;
    std::uint64_t position = 0;
    std::size_t place = 0;
  };
  /// A layer's experts at one precision.
  struct row_state {
    resident least;    ///< of kept_, while known
    resident untaken;  ///< the least of untaken_, while copied
    bool known = false;
    bool copied = false;  ///< untaken_ holds what a choice has not passed over

    [[nodiscard]] const resident& first() const noexcept { return copied ? untaken : least; }
  };
  [[nodiscard]] std::span<float> row(std::vector<float>& of, std::size_t r) const noexcept {
    return std::span(of).subspan(r * experts_, experts_);
  }
  void only_residents(std::size_t r, std::span<const float> values,
                      std::span<float> to) const noexcept {
    residents_only(values, std::span(slot_of_).subspan(r * experts_, experts_), to, level_);
  }

  void begin_with_kept(std::size_t r) noexcept {
    auto& state = rows_[r];
    state.copied = false;
    if (!state.known) state.least = least_of(row(kept_, r), r);
    state.known = true;
  }
  void begin_with(std::size_t r, std::span<const float> values) noexcept {
    auto& state = rows_[r];
    state.copied = true;
    only_residents(r, values, row(untaken_, r));
    state.untaken = least_of(row(untaken_, r), r);
  }
  void pass_over(std::size_t r) noexcept {
    auto& state = rows_[r];
    const auto left = row(untaken_, r);
    if (!state.copied) std::copy_n(kept_.data() + r * experts_, experts_, left.data());
    left[state.first().place - r * experts_] = absent;
    state.copied = true;
    state.untaken = least_of(left, r);
  }
  [[nodiscard]] resident least_of(std::span<const float> values, std::size_t r) const noexcept {
    resident out{.value = least_value(values, level_)};
    if (out.value == absent) return out;
    out.position = std::numeric_limits<std::uint64_t>::max();
    each_equal(values, out.value, level_, [&](std::size_t e) {
      const auto place = r * experts_ + e;
      const auto position = slots_[slot_of_[place]].position;
      if (position < out.position) out = {out.value, position, place};
    });
    return out;
  }
  /// A product of two floats is exact as a double, and the bits of what is not negative are in its order.
  static std::uint64_t ordered_worth(float value, float factor) noexcept {
    return std::bit_cast<std::uint64_t>(double{value} * double{factor});
  }
  /// Which of the pool's rows has the first resident that is worth least, or none.
  [[nodiscard]] std::size_t lowest(std::span<const pool_row> rows) const noexcept {
    const auto worths = std::span(worths_).first(rows.size());
    const auto least = least_of(worths);
    if (least == nothing_left) return none;
    std::size_t found = none;
    for (std::size_t n = 0; n < worths.size(); ++n) {
      if (worths[n] != least) continue;
      if (found == none ||
          rows_[rows[n].row].first().position < rows_[rows[found].row].first().position)
        found = n;
    }
    return found;
  }
  static std::uint64_t least_of(std::span<const std::uint64_t> worths) noexcept {
    std::array<std::uint64_t, 4> least;  // each waits for itself alone
    least.fill(nothing_left);
    std::size_t n = 0;
    for (; n + least.size() <= worths.size(); n += least.size())
      for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], worths[n + i]);
    for (; n < worths.size(); ++n) least[0] = std::min(least[0], worths[n]);
    return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  }
  /// What layers' values count by their distance. Shape: [layers]. Pre: running is a layer, or before_layers.
  [[nodiscard]] std::span<const float> factors_after(layer_id running) const noexcept {
    const auto after = layers_until(running);
    return std::span(factors_).subspan(layers_ - after, layers_);
  }

  std::size_t layers_;
  std::size_t experts_;
  vector_level level_ = best_vector_level();
  std::vector<float> values_;     ///< [key]
  std::vector<row_state> rows_;   ///< [precision, layer]
  std::vector<float> kept_;       ///< [precision, layer, expert] of residents, else absent
  std::vector<float> untaken_;    ///< likewise, scratch
  std::vector<slot_id> slot_of_;  ///< [precision, layer, expert]
  per_slot<slot_state> slots_;
  std::uint64_t clock_ = 0;
  std::vector<float> factors_;               ///< [distance - 1], twice
  per_pool<std::vector<pool_row>> rows_of_;  ///< [pool]
  std::vector<std::uint64_t> worths_;        ///< [row of the pool], of what is first, scratch
};

}  // namespace hotset::inline v0
