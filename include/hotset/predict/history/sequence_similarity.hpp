// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Similarity of every row of a ring to each running sequence.
///
/// Visits of a sequence are logged. A request for its similarities first applies the logged visits. If no similarity
/// is requested during a step, the next step starts from that step's visits only.
/// Memory: 2 bytes a row, and 8 * layers * (top_k + 1), for each sequence: 118 KiB for 16 sequences of top-8 at 48
///       layers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/in_vectors.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/row_ring.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"

namespace hotset {

namespace detail {

/// Visits of one sequence that its similarities do not contain yet: the layers, and the last token's experts in each.
/// Nothing allocates after construction.
class visit_log {
 public:
  explicit visit_log(const geometry& shape) : top_k_(shape.ranks()) {
    layers_.reserve(shape.layer_count());
    ids_.reserve(shape.layer_count() * top_k_);
  }
  [[nodiscard]] bool is_empty() const noexcept { return layers_.empty(); }
  /// Shape of ids: [top_k]. Pre: the step has at most as many visits as the model has layers.
  void add(layer_id layer, id_view<expert_id> ids) noexcept {
    HOTSET_ASSERT(ids.size() == top_k_ && layers_.size() < layers_.capacity());
    layers_.push_back(layer);
    const auto at = ids_.size();
    ids_.resize(at + top_k_);
    ids.copy_to(ids_.data() + at);
  }
  /// Calls take(layer, ids) for each visit, earliest first.
  template <class Take>
  void each(Take take) const noexcept {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      take(layers_[i], std::span(ids_).subspan(i * top_k_, top_k_));
  }
  void clear() noexcept {
    layers_.clear();
    ids_.clear();
  }

 private:
  std::size_t top_k_;
  std::vector<layer_id> layers_;
  std::vector<expert_id> ids_;  // [visit, top_k]
};

}  // namespace detail

/// All calls must pass the same ring. Threads: compatible. Nothing allocates after construction.
class sequence_similarity {
 public:
  using row_id = row_ring::row_id;

  /// A row found by its similarity to the running token.
  struct match {
    row_id row = row_ring::no_row;
    std::uint16_t similarity = 0;  ///< 0..32768; 32768: equal routing throughout
  };
  /// Rows that a search may return.
  enum class rows_with : std::uint8_t {
    layers,    ///< rows whose step has ended: the routing of all layers is known
    successor  ///< rows whose successor's step has ended, too
  };
  /// Part of a visit that belongs to one sequence.
  struct visit {
    sequence_id sequence = 0;
    layer_id layer{};
    id_view<expert_id> ids{};  ///< experts of its last token
    bool has_several = false;  ///< it has several tokens: similarities restart
    bool opens_step = false;
    std::size_t rows_of_step = 0;  ///< rows that the ring appends when the visit takes place
  };

  /// `rooms`: maximum sequences of a visit. Each sequence has its similarities in its own room until the visit takes
  /// place. `share`: share of its similarity that a row loses at each visit.
  sequence_similarity(const geometry& shape, std::size_t rows, std::size_t sequences,
                      std::size_t rooms, double share)
      : rows_(rows),
        decay_(static_cast<std::uint16_t>(std::clamp(share * 65536, 1.0, 65535.0))),
        distinct_(shape.expert_count(), shape.ranks()),
        live_(sequences),
        last_(sequences, row_ring::no_row),
        asked_(sequences, 0),
        anew_(sequences, 1),
        goes_on_(sequences, 0),
        candidates_(rows_ + history_kernels::places_beyond),
        ranked_(rows_),
        planes_of_(shape.ranks()),
        similar_(sequences + rooms + 1, aligned_vector<std::uint16_t>(rows_, 0)) {
    for (std::size_t r = 0; r < sequences; ++r) {
      of_live_.push_back(r);
      log_.emplace_back(shape);
      earlier_.emplace_back(shape);
    }
  }
  /// First room; the others follow.
  [[nodiscard]] std::size_t first_room() const noexcept { return live_.rows(); }

  // Sequences.

  [[nodiscard]] std::size_t most_sequences() const noexcept { return live_.rows(); }
  [[nodiscard]] bool follows(sequence_id sequence) const noexcept {
    return live_.find(sequence) != live_sequences::none;
  }
  /// Ends a sequence and drops its similarities.
  void end(sequence_id sequence) noexcept {
    if (const auto r = live_.find(sequence); r != live_sequences::none) live_.leave(r);
  }
  /// Makes the ring's oldest row that of the sequence's next token; the row's similarities become 0.
  void take_row(row_ring& ring, sequence_id sequence, step_id step) noexcept {
    const auto r = live_.enter(
        sequence, step, [](std::size_t) {},
        [this](std::size_t opened) {
          last_[opened] = row_ring::no_row;
          asked_[opened] = 0;
          begin_anew(opened);
        });
    if (r == live_sequences::none) return;
    const auto row = ring.oldest();
    std::ranges::replace(last_, row, row_ring::no_row);
    for (auto& all : similar_) all[history_kernels::place_of(row)] = 0;
    ring.append(sequence, std::exchange(last_[r], row));
  }
  void forget_all() noexcept {
    std::ranges::fill(last_, row_ring::no_row);
    for (std::size_t r = 0; r < live_.rows(); ++r) {
      if (live_.is_live(r)) live_.leave(r);
      asked_[r] = 0;
      begin_anew(r);
    }
  }

  // Visits that may take place.

  /// Writes the similarities after a visit that may not take place to a room. If the sequence's similarities were not
  /// requested in this step, nothing else of it changes.
  void compare(row_ring& ring, const visit& now, std::size_t room) noexcept {
    const std::span to(similar_[room]);
    move_on(ring, now.layer, now.ids, similar_before(ring, now, to), to);
    if (!now.opens_step) clear_rows(ring.step_rows(), to);
  }
  /// Commits a visit. If `compared`, the room was written; it is swapped with the sequence's own.
  void keep(const visit& now, bool compared, std::size_t& room) noexcept {
    const auto r = live_.find(now.sequence);
    if (r == live_sequences::none) return;
    if (!compared) {
      if (now.has_several) begin_anew(r);
      log_[r].add(now.layer, now.ids);
      return;
    }
    std::swap(of_live_[r], room);
    keep_up(r);
    asked_[r] = 1;
  }
  /// Ends the step for a sequence that has a token in the next step. Call it before that step's rows are taken.
  void go_on(row_ring& ring, sequence_id sequence, bool compared, std::size_t& room) noexcept {
    const auto r = live_.find(sequence);
    if (r == live_sequences::none) return;
    if (asked_[r] == 0) {
      std::swap(earlier_[r], log_[r]);
      log_[r].clear();
      anew_[r] = 1;
    } else if (!compared) {
      pass_on(ring, catch_up(ring, r), similar_[room]);
      std::swap(of_live_[r], room);
    }
    asked_[r] = 0;
    goes_on_[r] = 1;
  }
  /// Ends the step for the sequences without a token in the next step.
  void end_step(row_ring& ring) noexcept {
    for (std::size_t r = 0; r < live_.rows(); ++r) {
      if (goes_on_[r] == 0) {
        if (asked_[r] != 0)
          catch_up(ring, r);
        else
          begin_anew(r);
      }
      goes_on_[r] = 0;
    }
  }

  // Finding.

  /// Writes the rows most similar in a room, at most out.size(), most similar first, ties to the latest; returns
  /// their number. Rows with similarity 0 are left out.
  std::size_t find(const row_ring& ring, std::size_t room, rows_with need,
                   std::span<match> out) noexcept {
    return find(ring, std::span<const std::uint16_t>(similar_[room]), need, out);
  }
  /// find() for the visits of a sequence that took place; 0 for a sequence that is not followed.
  std::size_t find_of(row_ring& ring, sequence_id sequence, rows_with need,
                      std::span<match> out) noexcept {
    const auto r = live_.find(sequence);
    if (r == live_sequences::none) return 0;
    asked_[r] = 1;
    return find(ring, catch_up(ring, r), need, out);
  }

 private:
  static constexpr std::size_t most_ranked = 64;  ///< beyond this many candidates, they are sorted

  using similarities = std::span<const std::uint16_t>;  ///< [place]

  void move_on(row_ring& ring, layer_id layer, id_view<expert_id> ids, similarities from,
               std::span<std::uint16_t> to) noexcept {
    const auto l = index_of(layer);
    const auto count = distinct_.collect(ids, [&](std::size_t at, expert_id id) {
      planes_of_[at] = ring.routed().plane(l, index_of(id));
    });
    const std::span<const std::uint64_t* const> planes(planes_of_.data(), count);
    // With this gain, a row that always matches converges to `alike`.
    const auto gain = count == 0 ? 0U : decay_ / 2U / static_cast<unsigned>(count);
    history_kernels::move_on({planes, decay_, static_cast<std::uint16_t>(gain)}, from, to, level_);
  }
  /// Zeroes the running step's rows: in layers not visited yet they still hold the replaced rows' experts.
  static void clear_rows(std::span<const row_ring::token> rows,
                         std::span<std::uint16_t> similar) noexcept {
    for (const auto& one : rows) similar[history_kernels::place_of(one.row)] = 0;
  }
  /// Returns the similarities before a visit; writes them to `room` if they are not stored yet.
  [[nodiscard]] similarities similar_before(row_ring& ring, const visit& now,
                                            std::span<std::uint16_t> room) noexcept {
    const auto r = live_.find(now.sequence);
    if (r == live_sequences::none || now.has_several) {
      std::fill_n(room.data(), rows_, std::uint16_t{0});
      return room;
    }
    if (!now.opens_step) {
      if (asked_[r] != 0 || is_up_to_date(r)) return catch_up(ring, r);
      make_up(ring, r, room);
      return room;
    }
    if (asked_[r] != 0) {
      pass_on(ring, catch_up(ring, r), room);
      return room;
    }
    pass_on_alone(ring, log_[r], ring.step_rows(), room);
    // Rows that the step will replace pass nothing on.
    for (std::size_t i = 0; i < now.rows_of_step; ++i)
      if (const auto after = ring.after_oldest(i); after != row_ring::no_row)
        room[history_kernels::place_of(after)] = 0;
    return room;
  }
  /// Copies each row's similarity to its successor.
  void pass_on(const row_ring& ring, similarities from,
               std::span<std::uint16_t> to) const noexcept {
    const auto before = ring.before();
    for (std::size_t place = 0; place < rows_; ++place)
      to[place] = before[place] == row_ring::no_row ? std::uint16_t{0} : from[before[place]];
  }
  /// Computes similarities from one step's visits alone, then passes them on.
  void pass_on_alone(row_ring& ring, const detail::visit_log& visits,
                     std::span<const row_ring::token> rows_of_step,
                     std::span<std::uint16_t> to) noexcept {
    const std::span alone(similar_.back());
    std::fill_n(alone.data(), rows_, std::uint16_t{0});
    take_in(ring, visits, rows_of_step, alone);
    pass_on(ring, alone, to);
  }
  void take_in(row_ring& ring, const detail::visit_log& visits,
               std::span<const row_ring::token> rows_of_step,
               std::span<std::uint16_t> similar) noexcept {
    visits.each([&](layer_id layer, id_view<expert_id> ids) {
      move_on(ring, layer, ids, similar, similar);
    });
    clear_rows(rows_of_step, similar);
  }
  [[nodiscard]] bool is_up_to_date(std::size_t r) const noexcept {
    return anew_[r] == 0 && log_[r].is_empty();
  }
  /// Writes a running sequence's similarities after all its visits to `out`.
  void make_up(row_ring& ring, std::size_t r, std::span<std::uint16_t> out) noexcept {
    const auto& own = similar_[of_live_[r]];
    if (anew_[r] != 0)
      pass_on_alone(ring, earlier_[r], ring.earlier_rows(), out);
    else if (out.data() != own.data())
      std::copy_n(own.data(), rows_, out.data());
    take_in(ring, log_[r], ring.step_rows(), out);
  }
  /// Applies the logged visits in place and returns the similarities.
  similarities catch_up(row_ring& ring, std::size_t r) noexcept {
    const std::span similar(similar_[of_live_[r]]);
    if (!is_up_to_date(r)) {
      make_up(ring, r, similar);
      keep_up(r);
    }
    return similar;
  }
  /// Marks the similarities as up to date.
  void keep_up(std::size_t r) noexcept {
    anew_[r] = 0;
    log_[r].clear();
    earlier_[r].clear();
  }
  void begin_anew(std::size_t r) noexcept {
    keep_up(r);
    anew_[r] = 1;
  }

  /// Sorts each candidate as one number: the similarity, then the row's age, so that the latest comes first among
  /// equals.
  std::size_t find(const row_ring& ring, similarities similar, rows_with need,
                   std::span<match> out) noexcept {
    const auto usable = need == rows_with::successor ? ring.followed() : ring.whole();
    const auto oldest = std::int32_t{ring.oldest()};
    const auto count =
        history_kernels::candidates(similar, usable, out.size(), candidates_, level_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = history_kernels::row_at(candidates_[i]);
      ranked_[i] = std::uint32_t{similar[candidates_[i]]} << 16U |
                   in_ring(static_cast<std::int32_t>(row) - oldest);
    }
    const auto found = std::min(count, out.size());
    const auto keys = std::span(ranked_).first(count);
    const auto match_of = [&](std::uint32_t key) {
      const auto past_end =
          static_cast<std::int32_t>(key & 0xffffU) + oldest - static_cast<std::int32_t>(rows_);
      return match{static_cast<row_id>(in_ring(past_end)), static_cast<std::uint16_t>(key >> 16U)};
    };
    if (count <= most_ranked) {
      std::array<std::uint32_t, most_ranked> places{};
      std::array<std::uint32_t, most_ranked> sorted;
      // Counts ranks instead of sorting: the order is unpredictable, so a sort would mispredict most of its branches.
      detail::in_vectors(level_, [keys, out = places.data()] {
        for (const auto key : keys)
          for (std::size_t i = 0; i < keys.size(); ++i) out[i] += key > keys[i] ? 1U : 0U;
      });
      for (std::size_t i = 0; i < count; ++i) sorted[places[i]] = keys[i];
      for (std::size_t i = 0; i < found; ++i) out[i] = match_of(sorted[i]);
      return found;
    }
    std::ranges::partial_sort(keys, keys.begin() + static_cast<std::ptrdiff_t>(found),
                              std::greater<>());
    for (std::size_t i = 0; i < found; ++i) out[i] = match_of(keys[i]);
    return found;
  }
  /// Wraps a row number into the ring without a branch: the half of the ring is unpredictable.
  [[nodiscard]] std::uint32_t in_ring(std::int32_t n) const noexcept {
    return static_cast<std::uint32_t>(n + ((n >> 31) & static_cast<std::int32_t>(rows_)));
  }

  std::size_t rows_;
  std::uint16_t decay_;  ///< share of a similarity lost at each visit, in 65536ths
  vector_level level_ = best_vector_level();
  unique_ids distinct_;
  live_sequences live_;
  std::vector<row_id> last_;            ///< [running sequence] its last row
  std::vector<detail::visit_log> log_;  ///< [running sequence] visits of the running step
  /// [running sequence] visits of the previous step, while anew_.
  std::vector<detail::visit_log> earlier_;
  /// [running sequence] 1: similarities were requested in its step.
  std::vector<std::uint8_t> asked_;
  std::vector<std::uint8_t> anew_;  ///< [running sequence] 1: all were 0 before the logs
  /// [running sequence] 1: continues in the next step, scratch.
  std::vector<std::uint8_t> goes_on_;
  std::vector<std::uint16_t> candidates_;
  std::vector<std::uint32_t> ranked_;
  std::vector<const std::uint64_t*> planes_of_;
  /// [running sequences, rooms, one as source of pass_on_alone][place]
  std::vector<aligned_vector<std::uint16_t>> similar_;
  std::vector<std::size_t> of_live_;  ///< [running sequence] its index in similar_
};

}  // namespace hotset
