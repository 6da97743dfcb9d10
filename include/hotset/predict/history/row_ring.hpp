// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A ring of rows, one for each past token: the token's routing, and the row of the next token in its sequence.
///
/// A row is appended when its token's step begins and written layer by layer. It is whole when that step has ended.
/// It is followed, and may vote for what comes next, when its successor's step has ended. A new row replaces the
/// oldest one.
/// Memory: rows * layers * experts / 4 bytes: 1.5 MiB at 48 x 128, 1,024 rows. First uses take half a byte more for
///       each row, layer and expert: 3 MiB.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/predict/history/first_uses.hpp"
#include "hotset/predict/history/routed_rows.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction except save().
class row_ring {
 public:
  using row_id = routed_rows::row_id;
  static constexpr row_id no_row = std::numeric_limits<row_id>::max();
  static constexpr std::int32_t most_rows = 32768;

  /// A token of the running step.
  struct token {
    sequence_id sequence = 0;
    row_id row = no_row;
  };

  /// `most_tokens`: maximum tokens of a step. `horizon`: number of later tokens that uses_after() covers; 0: none.
  /// Pre: rows is a multiple of 256, at most most_rows; horizon is at most first_uses::most_horizon.
  row_ring(const geometry& shape, std::size_t rows, std::size_t most_tokens, std::size_t horizon)
      : layers_(shape.layer_count()),
        top_k_(shape.ranks()),
        rows_(rows),
        routed_(layers_, shape.expert_count(), rows_),
        first_uses_(layers_, rows_, shape.expert_count(), horizon),
        before_(rows_, no_row),
        after_(rows_, no_row),
        whole_(rows_, 0),
        followed_(rows_, 0),
        seen_(layers_, 1) {
    step_rows_.reserve(most_tokens);
    earlier_rows_.reserve(most_tokens);
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  /// Routing of all rows, by row and by expert.
  [[nodiscard]] routed_rows& routed() noexcept { return routed_; }
  /// Experts that a row routed in a layer, one bit each.
  [[nodiscard]] std::span<const std::uint64_t> set(layer_id layer, row_id row) const noexcept {
    return routed_.set(index_of(layer), row);
  }
  /// By place: 0xffff if the row's step has ended.
  [[nodiscard]] std::span<const std::uint16_t> whole() const noexcept { return whole_; }
  /// By place: 0xffff if the step of the row's successor has ended, too.
  [[nodiscard]] std::span<const std::uint16_t> followed() const noexcept { return followed_; }
  /// By place: the place of the previous row in its sequence, or no_row.
  [[nodiscard]] std::span<const row_id> before() const noexcept { return before_; }
  /// Returns the row of the same sequence's next token, or no_row if that token's step has not ended.
  [[nodiscard]] row_id successor(row_id row) const noexcept {
    return followed_[history_kernels::place_of(row)] == 0 ? no_row : after_[row];
  }
  /// The oldest row, which the next token replaces.
  [[nodiscard]] row_id oldest() const noexcept { return static_cast<row_id>(oldest_); }
  /// Returns the row after the n-th oldest one in its sequence, or no_row.
  [[nodiscard]] row_id after_oldest(std::size_t n) const noexcept {
    return after_[(oldest_ + n) % rows_];
  }

  // The running step.

  /// Whether a visit of this step is its first.
  [[nodiscard]] bool opens(step_id step) const noexcept { return step != step_; }
  [[nodiscard]] bool has_seen(layer_id layer) const noexcept { return seen_[layer] != 0; }
  [[nodiscard]] std::span<const token> step_rows() const noexcept { return step_rows_; }
  [[nodiscard]] std::span<const token> earlier_rows() const noexcept { return earlier_rows_; }
  /// Marks the running step's rows as whole, and their predecessors as followed, if `ended`; else takes that back.
  /// Calling it with the opposite value restores the state.
  void look_as_if_ended(bool ended) noexcept {
    let_speak(ended);
    if (ended) clear_unseen();
  }
  /// Starts a step: rows appended from now on belong to it.
  void begin_step(step_id step) noexcept {
    std::ranges::fill(seen_, std::uint8_t{0});
    step_ = step;
    std::swap(step_rows_, earlier_rows_);
    step_rows_.clear();
    step_rows_speak_ = false;
  }
  /// Makes oldest() the row of a sequence's token; `previous` is the sequence's last row, or no_row.
  void append(sequence_id sequence, row_id previous) noexcept {
    const auto row = oldest();
    oldest_ = oldest_ + 1 == rows_ ? 0 : oldest_ + 1;
    retire(row);
    if (previous != no_row) follow(previous, row);
    step_rows_.push_back({sequence, row});
  }
  /// Records that the step has visited the layer.
  void see(layer_id layer) noexcept { seen_[layer] = 1; }

  // Uses after a row.

  /// Numbers of first_uses for a row and layer; `tokens` later tokens are known.
  struct later_uses {
    const std::uint32_t* numbers = nullptr;
    std::size_t tokens = 0;
  };
  /// Experts that uses_after() has numbers of, rounded up to a multiple of 64.
  [[nodiscard]] std::size_t numbered_experts() const noexcept { return first_uses_.experts(); }
  /// Adds the rows that followed since the last call, then returns the numbers. Pre, here and below: the horizon is
  /// above 0.
  [[nodiscard]] later_uses uses_after(layer_id layer, row_id row) noexcept {
    const auto l = index_of(layer);
    auto known = first_uses_.known(l, row);
    if (known < first_uses_.horizon()) {
      auto last = row;
      for (std::size_t t = 0; t < known; ++t) last = after_[last];
      for (last = successor(last); known < first_uses_.horizon() && last != no_row; ++known) {
        first_uses_.add(l, row, routed_.set(l, last));
        last = successor(last);
      }
    }
    return {first_uses_.of(l, row), known};
  }
  /// Prefetches the data of uses_after() into the cache.
  void fetch_uses_after(layer_id layer, row_id row) const noexcept {
    first_uses_.fetch(index_of(layer), row);
  }

  /// Writes the rows whose steps have ended; rows of the running step are incomplete. Pre: `to` has this geometry.
  void save(saved_history& to) const {
    std::vector<std::uint32_t> place_of_row(rows_, saved_history::none);
    to.before.clear();
    to.ids.clear();
    for (std::size_t age = 0; age < rows_; ++age) {
      const auto row = static_cast<row_id>((oldest_ + age) % rows_);
      const auto place = history_kernels::place_of(row);
      if (whole_[place] == 0) continue;
      place_of_row[row] = static_cast<std::uint32_t>(to.before.size());
      to.before.push_back(before_[place] == no_row
                              ? saved_history::none
                              : place_of_row[history_kernels::row_at(before_[place])]);
      for (std::size_t l = 0; l < layers_; ++l) save_ids(l, row, to.ids);
    }
  }
  /// Replaces the rows by the newest saved ones that fit. No step is running afterwards. Pre: saved.check() returns
  /// no error.
  void restore(const saved_history& saved) noexcept {
    forget_all();
    const auto first = saved.rows() - std::min(saved.rows(), rows_);
    for (auto r = first; r < saved.rows(); ++r) {
      const auto row = static_cast<row_id>(r - first);
      const auto ids = std::span(saved.ids).subspan(r * layers_ * top_k_, layers_ * top_k_);
      if (saved.before[r] != saved_history::none && saved.before[r] >= first) {
        const auto previous = static_cast<row_id>(saved.before[r] - first);
        follow(previous, row);
        followed_[history_kernels::place_of(previous)] = 0xffff;
      }
      for (std::size_t l = 0; l < layers_; ++l)
        routed_.write(l, row, ids.subspan(l * top_k_, top_k_));
      whole_[history_kernels::place_of(row)] = 0xffff;
    }
    oldest_ = (saved.rows() - first) % rows_;
  }

 private:
  void let_speak(bool step_has_ended) noexcept {
    if (step_has_ended == step_rows_speak_) return;
    step_rows_speak_ = step_has_ended;
    const auto as = static_cast<std::uint16_t>(step_has_ended ? 0xffff : 0);
    for (const auto& one : step_rows_) {
      const auto place = history_kernels::place_of(one.row);
      whole_[place] = as;
      if (before_[place] != no_row) followed_[before_[place]] = as;
      if (!step_has_ended) forget_as_later(place);
    }
  }
  /// Clears the step's rows in layers that the step has not visited: they still hold the replaced rows' experts.
  /// Repeating it changes nothing; a later visit still writes its rows.
  void clear_unseen() noexcept {
    for (const auto l : seen_.ids())
      if (seen_[l] == 0)
        for (const auto& one : step_rows_) routed_.clear(index_of(l), one.row);
  }
  void follow(row_id previous, row_id row) noexcept {
    after_[previous] = row;
    before_[history_kernels::place_of(row)] =
        static_cast<row_id>(history_kernels::place_of(previous));
  }
  /// Pre: it is the oldest row, so its sequence has no earlier row.
  void retire(row_id row) noexcept {
    const auto place = history_kernels::place_of(row);
    HOTSET_ASSERT(before_[place] == no_row);
    if (after_[row] != no_row) before_[history_kernels::place_of(after_[row])] = no_row;
    after_[row] = no_row;
    whole_[place] = followed_[place] = 0;
    if (first_uses_.horizon() > 0) first_uses_.forget_beyond(row, 0);
  }
  /// Removes this row from the known later uses of the rows before it.
  void forget_as_later(std::size_t place) noexcept {
    for (std::size_t tokens = 0; tokens < first_uses_.horizon(); ++tokens) {
      place = before_[place];
      if (place == no_row) return;
      first_uses_.forget_beyond(history_kernels::row_at(place), tokens);
    }
  }

  void save_ids(std::size_t layer, row_id row, std::vector<expert_id>& to) const {
    const auto end = to.size() + top_k_;
    each_member(routed_.set(layer, row),
                [&](std::size_t e) { to.push_back(static_cast<expert_id>(e)); });
    to.resize(end, no_expert);
  }
  void forget_all() noexcept {
    routed_.clear_all();
    first_uses_.forget_all();
    for (auto* rows : {&before_, &after_}) std::ranges::fill(*rows, no_row);
    std::ranges::fill(whole_, std::uint16_t{0});
    std::ranges::fill(followed_, std::uint16_t{0});
    begin_step(std::numeric_limits<step_id>::max());
    earlier_rows_.clear();
    std::ranges::fill(seen_, std::uint8_t{1});
  }

  std::size_t layers_;
  std::size_t top_k_;
  std::size_t rows_;
  routed_rows routed_;
  first_uses first_uses_;
  std::vector<row_id> before_;  ///< [place] place of the previous row in the sequence
  std::vector<row_id> after_;   ///< [row] next row in the sequence
  aligned_vector<std::uint16_t> whole_;
  aligned_vector<std::uint16_t> followed_;
  std::size_t oldest_ = 0;
  // The running step.
  per_layer<std::uint8_t> seen_;  ///< [layer] 1: visited in this step
  step_id step_ = std::numeric_limits<step_id>::max();
  std::vector<token> step_rows_;
  std::vector<token> earlier_rows_;  ///< rows of the previous step
  bool step_rows_speak_ = false;     ///< whether look_as_if_ended(true) holds
};

}  // namespace hotset
