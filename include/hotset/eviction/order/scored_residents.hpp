// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Residents of layers by scores that a policy is asked for where something of their layer has changed, and nowhere else.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_values.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// A score as a number that can be compared: infinities and what is no number stand behind, or before, all finite ones, as in
/// detail::ordered_bits.
[[nodiscard]] inline double as_number(double score) noexcept {
  constexpr double most = std::numeric_limits<double>::max();
  if (std::abs(score) < most) return score;
  return std::copysign(std::isnan(score) ? most : most / 2, score);
}

/// What tells the scores of a layer's experts: `write(layer, experts, to)` writes a number for each.
template <class Scores>
concept layer_scorer = requires(Scores& scores, layer_id layer, std::span<const expert_id> experts,
                                std::span<double> to) {
  scores.write(layer, experts, to);
};
/// Whose numbers are estimates: none above `bound(least)`, which is finite, can stand for the least score where `least` is the least
/// of them; `exact(key)` is the score itself. Where all scores of a layer have changed by one factor, `factor(layer, written)` tells
/// it, of what was written of those that are left.
template <class Scores>
concept layer_estimator = layer_scorer<Scores> &&
    requires(Scores& scores, expert_key key, layer_id layer, std::span<const double> written) {
  { scores.bound(double{}) } -> std::same_as<double>;
  { scores.exact(key) } -> std::same_as<double>;
  { scores.factor(layer, written) } -> std::same_as<double>;
};

/// Order: score, of equals the least recent first. Of each layer the least is known until something of that layer changes, so that
/// a choice looks at one resident a layer, and at one layer's residents a victim. Where just its victims leave, what it found
/// after them is the least. With estimates the exact score is asked for where more than one may be the least.
/// Threads: compatible. No allocation after construction. Memory: 16 bytes and a bit a key and precision, layers' experts filled up
/// to whole 64s, and 48 a slot.
class scored_residents {
 public:
  explicit scored_residents(const pool_layout& layout)
      : layers_(layout.shape().layer_count()),
        words_(words_for(layout.shape().expert_count())),
        places_(words_ * 64),
        row_of_(layers_ * layout.precisions()),
        rows_(row_of_.size()),
        pools_(layout.pools()),
        firsts_(rows_.size() + 64, absent),
        scores_(rows_.size() * places_, absent),
        left_(rows_.size() * words_, 0),
        keys_(scores_.size()),
        slots_in_(scores_.size()),
        slots_(layout.slots()),
        used_at_(layout.slots(), 0) {
    place_rows(layout);
    hidden_.resize(layout.slots());
    others_.resize(words_for(rows_.size()));
    found_.resize(std::max(words_, others_.size()));
  }

  /// The layer's scores, or some of them, are others now.
  void rescore(layer_id layer) noexcept {
    for (auto l = index_of(layer); l < row_of_.size(); l += layers_) {
      const auto r = row_of_[l];
      if (!rows_[r].is_scored) continue;  // and so not known
      rows_[r].is_scored = false;
      forget(r);
    }
  }
  /// All layers' are.
  void rescore_all() noexcept {
    for (const auto layer : each<layer_id>(layers_)) rescore(layer);
  }
  /// The layer's scores are what they were times a factor, which the scorer will be asked for.
  void rescale(layer_id layer) noexcept {
    for (auto l = index_of(layer); l < row_of_.size(); l += layers_) {
      auto& row = rows_[row_of_[l]];
      row.is_scaled = false;
      mark(row);
    }
  }
  void use(slot_id slot) noexcept {
    used_at_[slot] = ++clock_;
    forget(slots_[slot].row);
  }
  /// The same for several, in this order.
  void use(std::span<const slot_id> slots) noexcept {
    auto row = std::numeric_limits<std::uint32_t>::max();
    for (const auto slot : slots) {
      used_at_[slot] = ++clock_;
      if (slots_[slot].row == row) continue;  // most are of one
      row = slots_[slot].row;
      forget(row);
    }
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto r = row_of(key.layer, precision);
    auto& row = rows_[r];
    const auto place = r * places_ + row.size++;
    keys_[place] = key.expert;
    slots_in_[place] = slot;
    row.is_scored = false;
    show(place);
    slots_[slot] = {none_yet, static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(place)};
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto left = slots_[slot];
    auto& row = rows_[left.row];
    close_gap(left.place, left.row * places_ + --row.size);
    if (row.choice != none_yet && left.chosen_by == row.choice) {
      row.is_known = false;
      mark(row);
      if (--row.passed == 0) remember(left.row, row.untaken);
    } else if (row.choice != none_yet || row.least.slot == slot) {
      forget(left.row);
    }
  }
  /// Victims of fills leave and what the fills bring comes, one after the other; calls came(fill) after each.
  template <class Came>
  void bring(std::span<const hotset::fill> fills, Came came) noexcept {
    for (const auto& f : fills) {
      if (f.victim != no_key) vacate(f.slot);
      fill(f.slot, f.key, f.precision);
      came(f);
    }
  }
  void bring(std::span<const hotset::fill> fills) noexcept {
    bring(fills, [](const hotset::fill&) {});
  }
  void move(slot_id from, slot_id to) noexcept {
    const auto& moved = slots_[to] = slots_[from];
    used_at_[to] = used_at_[from];
    slots_in_[moved.place] = to;
    forget(moved.row);
  }
  /// Uses and fills until now.
  [[nodiscard]] std::uint64_t now() const noexcept { return clock_; }
  /// now() as of the slot's last use. Pre, of this and the next: it holds something.
  [[nodiscard]] std::uint64_t used_at(slot_id slot) const noexcept { return used_at_[slot]; }
  [[nodiscard]] expert_key key(slot_id slot) const noexcept {
    return {rows_[slots_[slot].row].layer, keys_[slots_[slot].place]};
  }

  /// The eligible residents of a pool in order; returns how many. Complexity: O(layers of the pool + residents of a layer) a
  /// victim, and O(residents) for each layer that has changed.
  template <layer_scorer Scores>
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out,
                     Scores&& scores) noexcept {
    if (out.empty()) return 0;
    ++choice_;
    see_all(pool, scores);
    begin_others(pools_[pool].size);
    std::size_t count = 0;
    for (auto r = lowest(pool, scores); r != none;) {
      const auto slot = first(r).slot;
      if (eligible.test(slot)) {
        out[count++] = slot;
        take(r);
      } else {
        hide_others(r, eligible);
      }
      if (count == out.size()) {
        ++rows_[r].passed;  // what follows is not looked for, and so not known when it has left
        break;
      }
      // Which of the others is lowest does not wait for what comes next of this row.
      const auto other = lowest_but(pool, r, scores);
      rows_[r].untaken = least_of(r, scores);
      firsts_[r] = rows_[r].untaken.score * rows_[r].scale;
      r = lower(r, other, scores);
    }
    show_hidden();
    return count;
  }

 private:
  static constexpr double absent = std::numeric_limits<double>::infinity();
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr std::uint64_t none_yet = 0;

  struct slot_state {
    std::uint64_t chosen_by = none_yet;  ///< the last choice that named it
    std::uint32_t row = 0;
    std::uint32_t place = 0;  ///< among all rows'
  };
  /// None, unless it is one.
  struct resident {
    double score = absent;
    slot_id slot = no_slot;
    std::uint32_t place = 0;
    bool is_alone = true;  ///< no other estimate is so close that a factor could change their order
    std::uint64_t position = std::numeric_limits<std::uint64_t>::max();
  };
  /// The residents of a layer at one precision.
  struct row_state {
    resident least;
    resident untaken;  ///< the least that `choice` has not passed over
    /// The choice that passed something over last, if nothing has changed since but what left.
    std::uint64_t choice = none_yet;
    std::uint32_t passed = 0;  ///< by that choice, and not gone
    std::uint32_t size = 0;
    layer_id layer{};
    bool is_known = false;   ///< `least` is
    bool is_scored = false;  ///< scores_ are the layer's, but for `scale`
    bool is_scaled = false;
    double scale = 1.0;
    std::size_t bit = 0;  ///< in changed_
  };
  /// A pool's rows are side by side.
  struct row_range {
    std::size_t first = 0;
    std::size_t size = 0;
    std::size_t word = 0;  ///< in changed_
  };
  struct finding {
    std::size_t at = none;
    bool is_alone = true;
  };
  struct hidden_place {
    std::uint32_t row = 0;
    std::uint32_t place = 0;
  };

  void place_rows(const pool_layout& layout) {
    const auto pool_of = [&](std::size_t n) {
      return layout.pool_of(static_cast<layer_id>(n % layers_),
                            static_cast<precision_id>(n / layers_));
    };
    for (std::size_t n = 0; n < row_of_.size(); ++n) ++pools_[pool_of(n)].size;
    std::size_t rows = 0;
    for (auto& pool : pools_) {
      pool.first = rows;
      rows += std::exchange(pool.size, 0);
    }
    for (std::size_t n = 0; n < row_of_.size(); ++n) {
      auto& pool = pools_[pool_of(n)];
      row_of_[n] = pool.first + pool.size++;
      rows_[row_of_[n]].layer = static_cast<layer_id>(n % layers_);
    }
    for (auto& pool : pools_) {
      pool.word = changed_.size();
      for (std::size_t n = 0; n < pool.size; ++n) rows_[pool.first + n].bit = pool.word * 64 + n;
      changed_.resize(changed_.size() + (pool.size + 63) / 64, 0);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) forget(r);
  }

  [[nodiscard]] static std::uint64_t bit_of(const row_state& row) noexcept {
    return std::uint64_t{1} << row.bit % 64;
  }
  void mark(const row_state& row) noexcept { changed_[row.bit / 64] |= bit_of(row); }
  void forget(std::size_t r) noexcept {
    rows_[r].choice = none_yet;
    rows_[r].is_known = false;
    mark(rows_[r]);
  }
  void remember(std::size_t r, const resident& least) noexcept {
    auto& row = rows_[r];
    row.choice = none_yet;
    row.least = least;
    row.is_known = true;
    firsts_[r] = least.score * row.scale;
    if (row.is_scaled) changed_[row.bit / 64] &= ~bit_of(row);
  }
  void close_gap(std::size_t place, std::size_t last) noexcept {
    unshow(last);
    if (place == last) return;
    scores_[place] = scores_[last];
    keys_[place] = keys_[last];
    slots_in_[place] = slots_in_[last];
    const auto slot = slots_in_[place];
    slots_[slot].place = static_cast<std::uint32_t>(place);
    auto& row = rows_[slots_[slot].row];
    if (row.least.slot == slot) row.least.place = slots_[slot].place;
    if (row.untaken.slot == slot) row.untaken.place = slots_[slot].place;
  }

  /// Of each of a pool's rows the least is known.
  template <class Scores>
  void see_all(pool_id pool, Scores& scores) noexcept {
    const auto& rows = pools_[pool];
    for (std::size_t w = 0; w * 64 < rows.size; ++w)
      for (auto left = changed_[rows.word + w]; left != 0; left &= left - 1) {
        const auto r = rows.first + w * 64 + static_cast<std::size_t>(std::countr_zero(left));
        score(r, scores);
        remember(r, rows_[r].is_known ? rows_[r].least : least_of(r, scores));
      }
  }
  template <class Scores>
  void score(std::size_t r, Scores& scores) noexcept {
    auto& row = rows_[r];
    const auto to = std::span(scores_).subspan(r * places_, row.size);
    if (!row.is_scored) {
      scores.write(row.layer, std::span<const expert_id>(keys_).subspan(r * places_, row.size), to);
      row.scale = 1.0;
    } else if constexpr (layer_estimator<Scores>) {
      if (!row.is_scaled) row.scale = scores.factor(row.layer, to);
      row.is_known = row.is_known && (row.is_scaled || row.least.is_alone);
    }
    row.is_scored = true;
    row.is_scaled = true;
  }
  /// Of what the choice has not passed over.
  [[nodiscard]] const resident& first(std::size_t r) const noexcept {
    return rows_[r].choice == choice_ ? rows_[r].untaken : rows_[r].least;
  }
  [[nodiscard]] std::size_t row_of(layer_id layer, precision_id precision) const noexcept {
    return row_of_[index_of(precision) * layers_ + index_of(layer)];
  }
  void show(std::size_t place) noexcept { left_[place / 64] |= std::uint64_t{1} << place % 64; }
  void unshow(std::size_t place) noexcept {
    left_[place / 64] &= ~(std::uint64_t{1} << place % 64);
  }
  void hide(std::size_t r, std::size_t place) noexcept {
    unshow(place);
    hidden_[hidden_count_++] = {static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(place)};
  }
  void show_hidden() noexcept {
    for (const auto& [r, place] : std::span(hidden_).first(hidden_count_)) {
      show(place);
      firsts_[r] = rows_[r].least.score * rows_[r].scale;
    }
    hidden_count_ = 0;
  }
  /// Returns the row as one that the choice has passed something over in, once more.
  row_state& pass(std::size_t r) noexcept {
    auto& row = rows_[r];
    if (row.choice != choice_) row.passed = 0;
    row.choice = choice_;
    ++row.passed;
    return row;
  }
  void take(std::size_t r) noexcept {
    const auto& taken = first(r);
    slots_[taken.slot].chosen_by = choice_;
    hide(r, taken.place);
    pass(r);
  }
  /// What is not eligible: all at once, since there may be much of it. It does not leave, and so the row is looked at anew.
  void hide_others(std::size_t r, const slot_mask& eligible) noexcept {
    pass(r);
    each_member(left_in(r), [&](std::size_t i) {
      const auto place = r * places_ + i;
      if (!eligible.test(slots_in_[place])) hide(r, place);
    });
  }
  /// What of a row is not hidden.
  [[nodiscard]] std::span<const std::uint64_t> left_in(std::size_t r) const noexcept {
    return std::span(left_).subspan(r * words_, words_for(rows_[r].size));
  }

  template <class Scores>
  [[nodiscard]] resident least_of(std::size_t r, Scores& scores) noexcept {
    const auto from = r * places_;
    const auto [at, is_alone] = least_in(
        &scores_[from], left_in(r), scores,
        [&](std::size_t i) { return used_at_[slots_in_[from + i]]; },
        [&](std::size_t i) { return key(slots_in_[from + i]); });
    if (at == none) return {};
    const auto slot = slots_in_[from + at];
    return {scores_[from + at], slot, static_cast<std::uint32_t>(from + at), is_alone,
            used_at_[slot]};
  }
  void begin_others(std::size_t rows) noexcept {
    for (std::size_t w = 0; w < words_for(rows); ++w) others_[w] = ~std::uint64_t{0};
    others_[words_for(rows) - 1] >>= (64 - rows % 64) % 64;
  }
  /// Which of the pool's rows in others_ has the first resident of all, or none.
  template <class Scores>
  [[nodiscard]] std::size_t lowest(pool_id pool, Scores& scores) noexcept {
    const auto [from, size, word] = pools_[pool];
    if (size == 1) return firsts_[from] == absent ? none : from;
    const auto at = least_in(
                        &firsts_[from], std::span(others_).first(words_for(size)), scores,
                        [&, from = from](std::size_t n) { return first(from + n).position; },
                        [&, from = from](std::size_t n) { return key(first(from + n).slot); })
                        .at;
    return at == none ? none : from + at;
  }
  /// As if row r were none of them.
  template <class Scores>
  [[nodiscard]] std::size_t lowest_but(pool_id pool, std::size_t r, Scores& scores) noexcept {
    if (pools_[pool].size == 1) return none;
    const auto n = r - pools_[pool].first;
    auto& word = others_[n / 64];
    const auto bit = std::uint64_t{1} << n % 64;
    word &= ~bit;
    const auto out = lowest(pool, scores);
    word |= bit;
    return out;
  }
  /// Which of two rows of a pool has the first resident of both. Pre: r is a row; other is one, or none.
  template <class Scores>
  [[nodiscard]] std::size_t lower(std::size_t r, std::size_t other, Scores& scores) const noexcept {
    const auto own = firsts_[r];
    if (other == none) return own == absent ? none : r;
    const auto others = firsts_[other];
    if constexpr (layer_estimator<Scores>) {
      if (own == absent || own > scores.bound(others)) return other;
      if (others > scores.bound(own)) return r;
      const auto key_of = [&](std::size_t n) { return key(first(n).slot); };
      const auto rank_of = [&](std::size_t n) {
        return rank(scores, first(n).position, key_of, n);
      };
      return rank_of(r) < rank_of(other) ? r : other;
    } else {
      // Without a branch: the outcome cannot be predicted.
      const bool is_older = first(r).position < first(other).position;
      return (own < others) | ((own == others) & is_older) ? r : other;
    }
  }
  /// Where the least score of those that `among` names is, of equals that of the least position; none where it names none.
  template <class Scores, class PositionOf, class KeyOf>
  [[nodiscard]] finding least_in(const double* row, std::span<const std::uint64_t> among,
                                 Scores& scores, PositionOf position_of, KeyOf key_of) noexcept {
    const auto bound_of = [&](double least) {
      if (least == absent) return -absent;
      if constexpr (layer_estimator<Scores>) return scores.bound(least);
      return least;
    };
    const auto rank_of = [&](std::size_t i) { return rank(scores, position_of(i), key_of, i); };
    if (among.size() == 1) {
      const auto found = lowest_of_word(row, among[0], bound_of, level_);
      if (found == 0) return {};
      const auto first = static_cast<std::size_t>(std::countr_zero(found));
      if ((found & (found - 1)) == 0) return {first, true};
      return {first_in(std::span(&found, 1), rank_of), false};
    }
    if (lowest_values(row, among, found_.data(), bound_of, level_) == absent) return {};
    const auto found = std::span<const std::uint64_t>(found_).first(among.size());
    const few_members lowest(found);
    if (lowest.is_alone) return {lowest.first, true};
    return {first_in(found, rank_of), false};
  }
  template <class Scores, class KeyOf>
  [[nodiscard]] static slot_rank rank(Scores& scores, std::uint64_t position, KeyOf key_of,
                                      std::size_t i) noexcept {
    if constexpr (layer_estimator<Scores>)
      return {detail::ordered_bits(scores.exact(key_of(i))), position};
    else
      return {0, position};
  }
  template <class RankOf>
  [[nodiscard]] static std::size_t first_in(std::span<const std::uint64_t> found,
                                            RankOf rank_of) noexcept {
    std::size_t at = none;
    auto best = vacant_rank;
    each_member(found, [&](std::size_t i) {
      const auto rank = rank_of(i);
      const bool is_before = rank < best;
      at = is_before ? i : at;
      best = is_before ? rank : best;
    });
    return at;
  }

  std::size_t layers_;
  std::size_t words_;   ///< of a set of a layer's experts
  std::size_t places_;  ///< of a row: its experts, filled up
  vector_level level_ = best_vector_level();
  std::vector<std::size_t> row_of_;  ///< [precision, layer]
  std::vector<row_state> rows_;      ///< [row], of one pool after the other
  per_pool<row_range> pools_;        ///< [pool]
  std::vector<double> firsts_;       ///< [row, filled up], of first()
  /// [row, place]; residents in any order, the others mean nothing.
  aligned_vector<double> scores_;
  std::vector<std::uint64_t> left_;  ///< [row, words] a bit a resident that no choice hides
  std::vector<expert_id> keys_;      ///< [row, place]
  std::vector<slot_id> slots_in_;    ///< [row, place]
  per_slot<slot_state> slots_;
  per_slot<std::uint64_t> used_at_;     ///< [slot] clock_ at its last use
  std::vector<std::uint64_t> changed_;  ///< [pool, row of the pool] a bit: not all is known of it
  std::vector<hidden_place> hidden_;    ///< by the choice, scratch
  std::size_t hidden_count_ = 0;
  std::vector<std::uint64_t> others_;  ///< a bit a row of the pool, scratch
  std::vector<std::uint64_t> found_;   ///< as lowest_values gives it, scratch
  std::uint64_t clock_ = 0;
  std::uint64_t choice_ = none_yet;
};

}  // namespace hotset
