// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How similar every row of a ring is to what each running sequence does now.
///
/// A sequence's visits are logged. A request for its similarities first moves them on by the logged visits. If no
/// similarity is requested during a step, the next step starts from that step's visits only.
/// Memory: 2 bytes a row, and 8 * layers * (top_k + 1), for each sequence: 118 KiB for 16 of top-8 at 48 layers.

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
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/row_ring.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "hotset/predict/kernels/in_vectors.hpp"

namespace hotset {

namespace detail {

/// Visits of one sequence that its similarities do not show yet: which layers, and what its last token routed in each.
/// Nothing allocates after construction.
class visit_log {
 public:
  explicit visit_log(const geometry& shape) : top_k_(shape.ranks()) {
    layers_.reserve(shape.layer_count());
    ids_.reserve(shape.layer_count() * top_k_);
  }
  [[nodiscard]] bool is_empty() const noexcept { return layers_.empty(); }
  /// Shape of ids: [top_k]. Pre: the step has no more visits than the model has layers.
  void add(layer_id layer, id_view<expert_id> ids) noexcept {
    HOTSET_ASSERT(ids.size() == top_k_ && layers_.size() < layers_.capacity());
    layers_.push_back(layer);
    const auto at = ids_.size();
    ids_.resize(at + top_k_);
    ids.copy_to(ids_.data() + at);
  }
  /// Calls take(layer, ids) for each visit, the first one first.
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

/// Every call is given the same ring. Threads: compatible. Nothing allocates after construction.
class sequence_similarity {
 public:
  using row_id = row_ring::row_id;

  /// A row that routed like the running token.
  struct match {
    row_id row = row_ring::no_row;
    std::uint16_t similarity = 0;  ///< 0..32768, which is alike throughout
  };
  /// A condition on rows that may be found.
  enum class rows_with : std::uint8_t {
    layers,    ///< all that its token routed: its step has ended
    successor  ///< what came after it, too
  };
  /// A sequence's part of a visit.
  struct visit {
    sequence_id sequence = 0;
    layer_id layer{};
    id_view<expert_id> ids{};  ///< of its last token
    bool has_several = false;  ///< tokens: similarities begin anew
    bool opens_step = false;
    std::size_t rows_of_step = 0;  ///< that the ring will take when the visit takes place
  };

  /// `rooms`: sequences of a visit, at most: each has its similarities in a room of its own until the visit takes
  /// place. `share`: of its similarity that a row loses with a visit.
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
  /// The first room; the others follow.
  [[nodiscard]] std::size_t first_room() const noexcept { return live_.rows(); }

  // Sequences.

  [[nodiscard]] std::size_t most_sequences() const noexcept { return live_.rows(); }
  [[nodiscard]] bool follows(sequence_id sequence) const noexcept {
    return live_.find(sequence) != live_sequences::none;
  }
  /// The sequence has had its last token: its similarities are forgotten.
  void end(sequence_id sequence) noexcept {
    if (const auto r = live_.find(sequence); r != live_sequences::none) live_.leave(r);
  }
  /// The ring's oldest row becomes that of the sequence's next token; it is similar to no sequence yet.
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

  /// Writes a room: similarities after such a visit. Nothing else changes of a sequence that nobody has asked about in
  /// its step: the visit may not take place.
  void compare(row_ring& ring, const visit& now, std::size_t room) noexcept {
    const std::span to(similar_[room]);
    move_on(ring, now.layer, now.ids, similar_before(ring, now, to), to);
    if (!now.opens_step) clear_rows(ring.step_rows(), to);
  }
  /// A visit takes place. `compared`: the room is written; it is exchanged for another then.
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
  /// A step ends, and the sequence has a token in the next one, too. The rows which that will take are still what they
  /// were.
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
  /// The others pause.
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

  /// The rows that are most similar in a room, at most out.size(), most similar first, of equals the latest; returns
  /// how many. Rows without any similarity are left out.
  std::size_t find(const row_ring& ring, std::size_t room, rows_with need,
                   std::span<match> out) noexcept {
    return find(ring, std::span<const std::uint16_t>(similar_[room]), need, out);
  }
  /// find() for the visits of a sequence that took place; none for a sequence that is not known.
  std::size_t find_of(row_ring& ring, sequence_id sequence, rows_with need,
                      std::span<match> out) noexcept {
    const auto r = live_.find(sequence);
    if (r == live_sequences::none) return 0;
    asked_[r] = 1;
    return find(ring, catch_up(ring, r), need, out);
  }

 private:
  static constexpr std::size_t most_ranked = 64;  ///< more candidates than that are sorted

  using similarities = std::span<const std::uint16_t>;  ///< [place]

  void move_on(row_ring& ring, layer_id layer, id_view<expert_id> ids, similarities from,
               std::span<std::uint16_t> to) noexcept {
    const auto l = index_of(layer);
    const auto count = distinct_.collect(ids, [&](std::size_t at, expert_id id) {
      planes_of_[at] = ring.routed().plane(l, index_of(id));
    });
    const std::span<const std::uint64_t* const> planes(planes_of_.data(), count);
    // A row that matches for ever comes to `alike`.
    const auto gain = count == 0 ? 0U : decay_ / 2U / static_cast<unsigned>(count);
    history_kernels::move_on({planes, decay_, static_cast<std::uint16_t>(gain)}, from, to, level_);
  }
  /// A running step's rows still hold what was there before them in layers that it has not visited.
  static void clear_rows(std::span<const row_ring::token> rows,
                         std::span<std::uint16_t> similar) noexcept {
    for (const auto& one : rows) similar[history_kernels::place_of(one.row)] = 0;
  }
  /// The similarities before a visit; `room` is written if they stand nowhere yet.
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
    // The rows that the step will take pass nothing on: once it has begun they are others.
    for (std::size_t i = 0; i < now.rows_of_step; ++i)
      if (const auto after = ring.after_oldest(i); after != row_ring::no_row)
        room[history_kernels::place_of(after)] = 0;
    return room;
  }
  /// Each row's similarity passes on to its successor.
  void pass_on(const row_ring& ring, similarities from,
               std::span<std::uint16_t> to) const noexcept {
    const auto before = ring.before();
    for (std::size_t place = 0; place < rows_; ++place)
      to[place] = before[place] == row_ring::no_row ? std::uint16_t{0} : from[before[place]];
  }
  /// The similarities by one step's visits alone, passed on.
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
  /// A running sequence's similarities after all of its visits that took place, written to `out`.
  void make_up(row_ring& ring, std::size_t r, std::span<std::uint16_t> out) noexcept {
    const auto& own = similar_[of_live_[r]];
    if (anew_[r] != 0)
      pass_on_alone(ring, earlier_[r], ring.earlier_rows(), out);
    else if (out.data() != own.data())
      std::copy_n(own.data(), rows_, out.data());
    take_in(ring, log_[r], ring.step_rows(), out);
  }
  /// The similarities after all visits that took place, in their own place.
  similarities catch_up(row_ring& ring, std::size_t r) noexcept {
    const std::span similar(similar_[of_live_[r]]);
    if (!is_up_to_date(r)) {
      make_up(ring, r, similar);
      keep_up(r);
    }
    return similar;
  }
  /// They show all visits.
  void keep_up(std::size_t r) noexcept {
    anew_[r] = 0;
    log_[r].clear();
    earlier_[r].clear();
  }
  void begin_anew(std::size_t r) noexcept {
    keep_up(r);
    anew_[r] = 1;
  }

  /// Candidates are sorted as one number each: the similarity, then the age, so that of equals the latest comes first.
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
      // An unpredictable order: a sort would mispredict most of its branches.
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
  /// Without a branch: which half of the ring a row is in is unpredictable.
  [[nodiscard]] std::uint32_t in_ring(std::int32_t n) const noexcept {
    return static_cast<std::uint32_t>(n + ((n >> 31) & static_cast<std::int32_t>(rows_)));
  }

  std::size_t rows_;
  std::uint16_t decay_;  ///< of a similarity with each visit, in 65536ths
  vector_level level_ = best_vector_level();
  unique_ids distinct_;
  live_sequences live_;
  std::vector<row_id> last_;                ///< [running sequence] its last row
  std::vector<detail::visit_log> log_;      ///< [running sequence] of the running step
  std::vector<detail::visit_log> earlier_;  ///< [running sequence] of the step before, while anew_
  std::vector<std::uint8_t> asked_;         ///< [running sequence] 1: about, since its step began
  std::vector<std::uint8_t> anew_;          ///< [running sequence] 1: before the logs all are 0
  std::vector<std::uint8_t> goes_on_;       ///< [running sequence] 1: into the next step, scratch
  std::vector<std::uint16_t> candidates_;
  std::vector<std::uint32_t> ranked_;
  std::vector<const std::uint64_t*> planes_of_;
  /// [running sequences, rooms, one to pass on from][place]
  std::vector<aligned_vector<std::uint16_t>> similar_;
  std::vector<std::size_t> of_live_;  ///< [running sequence] in similar_
};

}  // namespace hotset
