// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Orders residents by score in two stages: the least of each layer is kept until the layer changes, and the least of
/// these is the victim.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_values.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// Returns the score as a number that can be compared: infinities and NaN lie beyond all finite scores, in the order of
/// detail::ordered_bits.
[[nodiscard]] inline double as_number(double score) noexcept {
  constexpr double most = std::numeric_limits<double>::max();
  if (std::abs(score) < most) return score;
  return std::copysign(std::isnan(score) ? most : most / 2, score);
}

/// Residents of one layer at one precision: experts, and the slot of each.
struct layer_residents {
  layer_id layer{};
  std::span<const expert_id> experts;
  std::span<const slot_id> slots;
};

/// Scores residents: `write(residents, to)` writes one number for each.
template <class Scores>
concept layer_scorer = requires(Scores& scores, const layer_residents& of, std::span<double> to) {
  scores.write(of, to);
};
/// A scorer whose layers have weights that may differ between choices: a score counts times its layer's weight. Two
/// products with the same weight compare like their scores. Shape of weights(): [layers], above 0.
template <class Scores>
concept layer_weigher = layer_scorer<Scores> && requires(Scores& scores) {
  { scores.weights() } -> std::same_as<std::span<const double>>;
};
/// A scorer that writes estimates. An estimate is the written number times `factor(layer, written)`, which is called
/// after write() and after rescale(). If `least` is the least estimate, no estimate above `bound(least)` can belong
/// to the least score. bound() is finite. `exact(key)` is the score itself.
template <class Scores>
concept layer_estimator = layer_scorer<Scores> &&
    requires(Scores& scores, expert_key key, layer_id layer, std::span<const double> written) {
  { scores.bound(double{}) } -> std::same_as<double>;
  { scores.exact(key) } -> std::same_as<double>;
  { scores.factor(layer, written) } -> std::same_as<double>;
};

/// Order: score, then least recent first. A choice examines one resident per layer, and one layer's residents for
/// each victim. If exactly the victims of a choice are evicted, the resident found after them is the least. If
/// several estimates may be the least, their exact scores decide.
/// Threads: compatible. No allocation after construction. Memory: 16 bytes and one bit per key and precision (a
/// layer's experts padded to multiples of 64), and 24 bytes per slot.
class layer_tournament {
 public:
  explicit layer_tournament(const pool_layout& layout) : layer_tournament(layout, layout.slots()) {}
  /// Orders any numbers below `slots` instead of slots.
  layer_tournament(const pool_layout& layout, std::size_t slots)
      : layers_(layout.shape().layer_count()),
        words_(words_for(layout.shape().expert_count())),
        row_of_(layers_ * layout.precisions()),
        rows_(row_of_.size()),
        pools_(layout.pools()),
        leasts_(rows_.size() + 64, absent),
        scores_(rows_.size() * places(), absent),
        offered_(rows_.size() * words_, 0),
        experts_(scores_.size()),
        slots_in_(scores_.size()),
        slots_(slots) {
    place_rows(layout);
    others_.resize(words_for(rows_.size()));
    found_.resize(std::max(words_, others_.size()));
  }

  /// Call it when scores of the layer have changed.
  void rescore(layer_id layer) noexcept {
    each_row(layer, [this](std::size_t r) { rescore_row(r); });
  }
  void rescore_all() noexcept {
    for (std::size_t r = 0; r < rows_.size(); ++r) rescore_row(r);
  }
  /// Call it when the layer's factor has changed.
  void rescale(layer_id layer) noexcept {
    each_row(layer, [this](std::size_t r) {
      rows_[r].is_scaled = false;
      mark(rows_[r]);
    });
  }
  void use(slot_id slot) noexcept { use(std::span(&slot, 1)); }
  /// Uses several, in this order.
  void use(std::span<const slot_id> slots) noexcept {
    auto row = std::numeric_limits<std::uint32_t>::max();
    for (const auto slot : slots) {
      slots_[slot].used_at = ++clock_;
      if (slots_[slot].row == row) continue;  // most slots are of one row
      row = slots_[slot].row;
      forget(row);
    }
  }
  void fill(slot_id slot, expert_key key, precision_id precision) noexcept {
    const auto r = row_of_[index_of(precision) * layers_ + index_of(key.layer)];
    const auto place = r * places() + rows_[r].size++;
    experts_[place] = key.expert;
    slots_in_[place] = slot;
    rows_[r].is_scored = false;
    slots_[slot].row = static_cast<std::uint32_t>(r);
    slots_[slot].place = static_cast<std::uint32_t>(place);
    slots_[slot].chosen_by = no_choice;
    use(slot);
  }
  void vacate(slot_id slot) noexcept {
    const auto left = slots_[slot];
    auto& row = rows_[left.row];
    close_gap(left.place, left.row * places() + --row.size);
    if (row.choice != no_choice && left.chosen_by == row.choice) {
      row.is_known = false;
      if (--row.passed == 0) remember(left.row, row.untaken);
    } else if (row.choice != no_choice || row.least.slot == slot) {
      forget(left.row);
    }
  }
  /// Carries out fills in order: removes the victim, then adds the new expert.
  void bring(std::span<const hotset::fill> fills) noexcept {
    for (const auto& f : fills) {
      if (f.victim != no_key) vacate(f.slot);
      fill(f.slot, f.key, f.precision);
    }
  }
  void move(slot_id from, slot_id to) noexcept {
    const auto& moved = slots_[to] = slots_[from];
    slots_in_[moved.place] = to;
    forget(moved.row);
  }

  /// Writes the eligible residents of a pool in order; returns how many. Complexity: O(layers of the pool + residents
  /// of a layer) per victim, and O(residents) for each changed layer.
  template <layer_scorer Scores>
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out,
                     Scores&& scores) noexcept {
    if (out.empty()) return 0;
    ++choice_;
    see_all(pool, scores);
    std::size_t count = 0;
    for (auto r = lowest(pool, scores); r != none;) {
      const auto slot = first(r).slot;
      const bool is_eligible = eligible.test(slot);
      is_eligible ? take(r) : hide_others(r, eligible);
      if (is_eligible) out[count++] = slot;
      if (count == out.size()) {
        // Skips the search for the next resident: the row is searched again after the victims are evicted.
        ++rows_[r].passed;
        break;
      }
      // Finds the other rows' least first: it does not depend on this row's next resident.
      toggle(others_, r - pools_[pool].first);
      const auto other = lowest(pool, scores);
      toggle(others_, r - pools_[pool].first);
      rows_[r].untaken = least_of(r, scores);
      leasts_[r] = rows_[r].untaken.score * rows_[r].scale;
      r = lower(r, other, scores);
    }
    return count;
  }

 private:
  static constexpr double absent = std::numeric_limits<double>::infinity();
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr std::uint64_t no_choice = 0;

  struct slot_state {
    std::uint64_t used_at = 0;            ///< clock_ at the last use
    std::uint64_t chosen_by = no_choice;  ///< last choice that named it
    std::uint32_t row = 0;
    std::uint32_t place = 0;  ///< position in all rows
  };
  /// A candidate for the least of a row; its score is infinite if there is none.
  struct resident {
    double score = absent;
    slot_id slot = no_slot;
    bool is_alone = true;  ///< no other estimate is close enough for a factor to change their order
    std::uint64_t used_at = std::numeric_limits<std::uint64_t>::max();
  };
  /// The residents of a layer at one precision.
  struct row_state {
    resident least;
    resident untaken;  ///< least resident that `choice` has not taken
    /// Last choice that took or hid a resident of the row; none if anything except its victims has changed since.
    std::uint64_t choice = no_choice;
    std::uint32_t passed = 0;  ///< residents that `choice` took or hid and that are still here
    std::uint32_t size = 0;
    layer_id layer{};
    bool is_known = false;   ///< `least` is valid
    bool is_scored = false;  ///< scores_ are valid
    bool is_scaled = false;  ///< `scale` is valid
    double scale = 1.0;
    std::size_t bit = 0;  ///< position in changed_
  };
  /// A pool's rows are adjacent.
  struct row_range {
    std::size_t first = 0;
    std::size_t size = 0;
    std::size_t word = 0;  ///< position in changed_
  };
  struct finding {
    std::size_t at = none;
    bool is_alone = true;
  };

  [[nodiscard]] std::size_t places() const noexcept { return words_ * 64; }
  void place_rows(const pool_layout& layout) {
    std::size_t next = 0;
    for (const auto p : pools_.ids()) {
      auto& pool = pools_[p];
      pool.first = next;
      pool.word = changed_.size();
      for (std::size_t n = 0; n < row_of_.size(); ++n) {
        const auto layer = static_cast<layer_id>(n % layers_);
        if (layout.pool_of(layer, static_cast<precision_id>(n / layers_)) != p) continue;
        rows_[next].layer = layer;
        rows_[next].bit = pool.word * 64 + pool.size++;
        row_of_[n] = next++;
      }
      changed_.resize(changed_.size() + words_for(pool.size), 0);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) forget(r);
  }
  template <class Use>
  void each_row(layer_id layer, Use use) noexcept {
    for (auto n = index_of(layer); n < row_of_.size(); n += layers_) use(row_of_[n]);
  }

  void mark(const row_state& row) noexcept {
    changed_[row.bit / 64] |= std::uint64_t{1} << row.bit % 64;
  }
  void forget(std::size_t r) noexcept {
    rows_[r].choice = no_choice;
    rows_[r].is_known = false;
    mark(rows_[r]);
  }
  void rescore_row(std::size_t r) noexcept {
    if (!rows_[r].is_scored) return;  // its least is unknown too
    rows_[r].is_scored = false;
    forget(r);
  }
  void remember(std::size_t r, const resident& least) noexcept {
    auto& row = rows_[r];
    row.choice = no_choice;
    row.least = least;
    row.is_known = true;
    leasts_[r] = least.score * row.scale;
    if (row.is_scaled) changed_[row.bit / 64] &= ~(std::uint64_t{1} << row.bit % 64);
  }
  void close_gap(std::size_t place, std::size_t last) noexcept {
    if (place == last) return;
    scores_[place] = scores_[last];
    experts_[place] = experts_[last];
    slots_in_[place] = slots_in_[last];
    slots_[slots_in_[place]].place = static_cast<std::uint32_t>(place);
  }

  /// Finds the least of each changed row of the pool.
  template <class Scores>
  void see_all(pool_id pool, Scores& scores) noexcept {
    const auto& rows = pools_[pool];
    each_member(std::span(changed_).subspan(rows.word, words_for(rows.size)), [&](std::size_t n) {
      const auto r = rows.first + n;
      score(r, scores);
      fill_up(offered_in(r), rows_[r].size);
      remember(r, rows_[r].is_known ? rows_[r].least : least_of(r, scores));
    });
    if constexpr (layer_weigher<Scores>) weigh(rows, scores.weights());
    fill_up(std::span(others_).first(words_for(rows.size)), rows.size);
  }
  template <class Scores>
  void score(std::size_t r, Scores& scores) noexcept {
    auto& row = rows_[r];
    const auto first = r * places();
    const auto to = std::span(scores_).subspan(first, row.size);
    if (!row.is_scored)
      scores.write({row.layer, std::span(experts_).subspan(first, row.size),
                    std::span(slots_in_).subspan(first, row.size)},
                   to);
    if constexpr (layer_estimator<Scores>) {
      if (!row.is_scored || !row.is_scaled) row.scale = scores.factor(row.layer, to);
      row.is_known = row.is_known && (row.is_scaled || row.least.is_alone);
    }
    row.is_scored = row.is_scaled = true;
  }
  void weigh(const row_range& rows, std::span<const double> weights) noexcept {
    for (auto r = rows.first; r < rows.first + rows.size; ++r) {
      auto& row = rows_[r];
      row.scale = weights[index_of(row.layer)];
      leasts_[r] = row.least.score * row.scale;
    }
  }
  /// Least resident of the row that the choice has not taken.
  [[nodiscard]] const resident& first(std::size_t r) const noexcept {
    return rows_[r].choice == choice_ ? rows_[r].untaken : rows_[r].least;
  }
  [[nodiscard]] expert_key key(slot_id slot) const noexcept {
    return {rows_[slots_[slot].row].layer, experts_[slots_[slot].place]};
  }

  static void toggle(std::vector<std::uint64_t>& set, std::size_t member) noexcept {
    set[member / 64] ^= std::uint64_t{1} << member % 64;
  }
  [[nodiscard]] std::span<std::uint64_t> offered_in(std::size_t r) noexcept {
    return std::span(offered_).subspan(r * words_, words_for(rows_[r].size));
  }
  static void fill_up(std::span<std::uint64_t> set, std::size_t size) noexcept {
    for (auto& word : set) word = ~std::uint64_t{0};
    if (size % 64 != 0) set.back() >>= 64 - size % 64;
  }
  /// The choice takes or hides a resident of the row. The next choice searches the row again.
  void pass(std::size_t r) noexcept {
    auto& row = rows_[r];
    if (row.choice != choice_) {
      fill_up(offered_in(r), row.size);
      mark(row);
      row.choice = choice_;
      row.passed = 0;
    }
    ++row.passed;
  }
  void take(std::size_t r) noexcept {
    auto& taken = slots_[first(r).slot];
    taken.chosen_by = choice_;
    pass(r);
    toggle(offered_, taken.place);
  }
  /// Hides all ineligible residents at once: there may be many. They stay resident, so the row's least is searched
  /// again.
  void hide_others(std::size_t r, const slot_mask& eligible) noexcept {
    pass(r);
    each_member(offered_in(r), [&](std::size_t n) {
      const auto place = r * places() + n;
      if (!eligible.test(slots_in_[place])) toggle(offered_, place);
    });
  }
  template <class Scores>
  [[nodiscard]] resident least_of(std::size_t r, Scores& scores) noexcept {
    const auto first = r * places();
    const auto resident_at = [&](std::size_t n) -> resident {
      const auto slot = slots_in_[first + n];
      return {scores_[first + n], slot, true, slots_[slot].used_at};
    };
    const auto found = least_in(&scores_[first], offered_in(r), scores, resident_at);
    if (found.at == none) return {};
    auto out = resident_at(found.at);
    out.is_alone = found.is_alone;
    return out;
  }
  /// Finds the row with the least of all, among the pool's rows in others_; or none.
  template <class Scores>
  [[nodiscard]] std::size_t lowest(pool_id pool, Scores& scores) noexcept {
    const auto from = pools_[pool].first;
    const auto size = pools_[pool].size;
    if (size == 1) return others_[0] == 0 || leasts_[from] == absent ? none : from;
    const auto at = least_in(&leasts_[from], std::span(others_).first(words_for(size)), scores,
                             [&](std::size_t n) -> const resident& { return first(from + n); })
                        .at;
    return at == none ? none : from + at;
  }
  /// Returns the row whose least is lower. Pre: r is a row; other is a row or none.
  template <class Scores>
  [[nodiscard]] std::size_t lower(std::size_t r, std::size_t other, Scores& scores) const noexcept {
    const auto own = leasts_[r];
    if (other == none) return own == absent ? none : r;
    const auto others = leasts_[other];
    if constexpr (layer_estimator<Scores>) {
      if (own == absent || own > scores.bound(others)) return other;
      if (others > scores.bound(own)) return r;
    }
    return rank(own, first(r), scores) < rank(others, first(other), scores) ? r : other;
  }
  /// Finds the least score among the residents that `among` names; of equals the least recent one.
  template <class Scores, class ResidentAt>
  [[nodiscard]] finding least_in(const double* row, std::span<const std::uint64_t> among,
                                 Scores& scores, ResidentAt resident_at) noexcept {
    const auto bound_of = [&](double least) {
      if constexpr (layer_estimator<Scores>) return least == absent ? -absent : scores.bound(least);
      return least == absent ? -absent : least;
    };
    lowest_values(row, among, found_.data(), bound_of, level_);
    const auto rank_of = [&](std::size_t n) { return rank(row[n], resident_at(n), scores); };
    finding out;
    slot_rank best;
    each_member(std::span(found_).first(among.size()), [&](std::size_t n) {
      if (out.at == none) {
        out.at = n;
        return;
      }
      if (out.is_alone) best = rank_of(out.at);
      out.is_alone = false;
      const auto other = rank_of(n);
      const bool is_before = other < best;
      out.at = is_before ? n : out.at;
      best = is_before ? other : best;
    });
    return out;
  }
  template <class Scores>
  [[nodiscard]] slot_rank rank(double score, const resident& of, Scores& scores) const noexcept {
    if constexpr (layer_estimator<Scores>) score = scores.exact(key(of.slot));
    return {detail::ordered_bits(score), of.used_at};
  }

  std::size_t layers_;
  std::size_t words_;  ///< words of a set of a layer's experts
  vector_level level_ = best_vector_level();
  std::vector<std::size_t> row_of_;  ///< [precision, layer]
  std::vector<row_state> rows_;      ///< [row], pool by pool
  per_pool<row_range> pools_;
  std::vector<double> leasts_;  ///< [row, padded] scaled score of first()
  /// [row, place]; residents in any order, other entries are undefined.
  aligned_vector<double> scores_;
  /// [row, words] bit: a resident that the choice has not taken.
  std::vector<std::uint64_t> offered_;
  std::vector<expert_id> experts_;  ///< [row, place]
  std::vector<slot_id> slots_in_;   ///< [row, place]
  per_slot<slot_state> slots_;
  std::vector<std::uint64_t> changed_;  ///< [pool, row of the pool] bit: the row has changed
  std::vector<std::uint64_t> others_;   ///< scratch: one bit per row of the pool
  std::vector<std::uint64_t> found_;    ///< scratch: output of lowest_values
  std::uint64_t clock_ = 0;
  std::uint64_t choice_ = no_choice;
};

}  // namespace hotset
