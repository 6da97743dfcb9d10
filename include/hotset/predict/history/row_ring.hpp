// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A ring of rows, one a past token: its routing, and the row that follows it in its sequence.
///
/// A row is appended when its token's step begins, and written layer by layer. When that step has ended the row is
/// whole; when its successor's step has ended it is followed, and may say what comes next. The oldest row makes room
/// for a new one.
/// Memory: rows * layers * experts / 4 bytes: 1.5 MiB at 48 x 128, 1,024 rows. Where first uses are kept, half a byte
///       more for each row, layer and expert: 3 MiB.

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

/// Threads: compatible. Nothing allocates after construction but save().
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

  /// `most_tokens`: of a step, at most. `horizon`: tokens after each row that uses_after() tells of; 0: none.
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
  /// The routing of all rows, in both orders.
  [[nodiscard]] routed_rows& routed() noexcept { return routed_; }
  /// The experts that a row routed in a layer, a bit an expert.
  [[nodiscard]] std::span<const std::uint64_t> set(layer_id layer, row_id row) const noexcept {
    return routed_.set(index_of(layer), row);
  }
  /// By place: 0xffff where the row's step has ended.
  [[nodiscard]] std::span<const std::uint16_t> whole() const noexcept { return whole_; }
  /// By place: 0xffff where the step of the row's successor has ended, too.
  [[nodiscard]] std::span<const std::uint16_t> followed() const noexcept { return followed_; }
  /// By place: the place of the row before it in its sequence, or no_row.
  [[nodiscard]] std::span<const row_id> before() const noexcept { return before_; }
  /// The row of the same sequence's next token, or no_row where its step has not ended.
  [[nodiscard]] row_id successor(row_id row) const noexcept {
    return followed_[history_kernels::place_of(row)] == 0 ? no_row : after_[row];
  }
  /// The oldest row, which the next token takes.
  [[nodiscard]] row_id oldest() const noexcept { return static_cast<row_id>(oldest_); }
  /// The row that follows the n-th oldest one, or no_row.
  [[nodiscard]] row_id after_oldest(std::size_t n) const noexcept {
    return after_[(oldest_ + n) % rows_];
  }

  // The running step.

  /// Whether a visit of this step begins it.
  [[nodiscard]] bool opens(step_id step) const noexcept { return step != step_; }
  [[nodiscard]] bool has_seen(layer_id layer) const noexcept { return seen_[layer] != 0; }
  [[nodiscard]] std::span<const token> step_rows() const noexcept { return step_rows_; }
  [[nodiscard]] std::span<const token> earlier_rows() const noexcept { return earlier_rows_; }
  /// Before a new step, the rows of the one that ends are whole, and rows whose successors they are may speak; within
  /// it they may not. It leaves no trace: the other way round brings back what was.
  void look_as_if_ended(bool ended) noexcept {
    let_speak(ended);
    if (ended) clear_unseen();
  }
  /// Rows that are appended from now on are of this step.
  void begin_step(step_id step) noexcept {
    std::ranges::fill(seen_, std::uint8_t{0});
    step_ = step;
    std::swap(step_rows_, earlier_rows_);
    step_rows_.clear();
    step_rows_speak_ = false;
  }
  /// oldest() becomes the row of a sequence's token, after the sequence's row before it, or no_row.
  void append(sequence_id sequence, row_id previous) noexcept {
    const auto row = oldest();
    oldest_ = oldest_ + 1 == rows_ ? 0 : oldest_ + 1;
    retire(row);
    if (previous != no_row) follow(previous, row);
    step_rows_.push_back({sequence, row});
  }
  /// A visit of the layer has taken place in the step.
  void see(layer_id layer) noexcept { seen_[layer] = 1; }

  // Uses after a row.

  /// How soon they first used a layer's experts, as first_uses has it; `tokens` of them are known.
  struct later_uses {
    const std::uint32_t* numbers = nullptr;
    std::size_t tokens = 0;
  };
  /// Experts that uses_after() has numbers of: these, filled up.
  [[nodiscard]] std::size_t numbered_experts() const noexcept { return first_uses_.experts(); }
  /// Takes in the rows that have followed since the last request. Pre, here and below: the horizon is above 0.
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
  /// uses_after() will be asked for soon.
  void fetch_uses_after(layer_id layer, row_id row) const noexcept {
    first_uses_.fetch(index_of(layer), row);
  }

  /// Writes the rows whose steps have ended; those of the running step are not whole. Pre: `to` is of this geometry.
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
  /// Its rows are the saved ones, the newest that there is room for. No step runs. Pre: saved.check() has no reason to
  /// refuse.
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
  /// In a layer that the step has left out its rows still hold what was there before them. Done again it changes
  /// nothing, and a visit that comes after all writes its rows as ever.
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
  /// Pre: it is the oldest row, so that none before it is left.
  void retire(row_id row) noexcept {
    const auto place = history_kernels::place_of(row);
    HOTSET_ASSERT(before_[place] == no_row);
    if (after_[row] != no_row) before_[history_kernels::place_of(after_[row])] = no_row;
    after_[row] = no_row;
    whole_[place] = followed_[place] = 0;
    if (first_uses_.horizon() > 0) first_uses_.forget_beyond(row, 0);
  }
  /// The rows before this one know nothing of it any more.
  void forget_as_later(std::size_t place) noexcept {
    for (std::size_t tokens = 0; tokens < first_uses_.horizon(); ++tokens) {
      place = before_[place];
      if (place == no_row) return;
      first_uses_.forget_beyond(history_kernels::row_at(place), tokens);
    }
  }

  void save_ids(std::size_t layer, row_id row, std::vector<expert_id>& to) const {
    const auto end = to.size() + top_k_;
    detail::for_each_bit(routed_.set(layer, row),
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
  std::vector<row_id> before_;  ///< [place] of the row before in the sequence, its place
  std::vector<row_id> after_;   ///< [row] the next one in the sequence
  aligned_vector<std::uint16_t> whole_;
  aligned_vector<std::uint16_t> followed_;
  std::size_t oldest_ = 0;
  // The running step.
  per_layer<std::uint8_t> seen_;  ///< [layer] 1: visited in this step
  step_id step_ = std::numeric_limits<step_id>::max();
  std::vector<token> step_rows_;
  std::vector<token> earlier_rows_;  ///< of the step before
  bool step_rows_speak_ = false;     ///< as if it had ended
};

}  // namespace hotset
