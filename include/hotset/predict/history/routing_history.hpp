// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the past tokens that routed most like a token does now.
///
/// Rule: a row is what one token routed in every layer; the row of the same sequence's next token is its successor. For
///       each running sequence every row has a similarity. At a visit of the sequence, with U its last token's experts,
///       s -= floor(s * d); s += floor(d / |U|) * |U & row|, d = reach / layers: an average over the last visits, which
///       forgets within a fraction of a step. When the sequence goes on to a new token, each row's similarity passes on
///       to its successor. Where a visit brings several tokens of a sequence, similarities begin anew with the last
///       one. A step in which they are not requested passes on what its own visits say, and nothing of the steps
///       before.
/// Source: ours.
/// Deviations: the rule was found with one ring in which all steps follow one another. Here successors say what follows
///       what: the rows of all sequences share the ring, each running sequence is compared with all of them, and the
///       tokens of a prompt are rows of their own. A row says nothing before its successor's step has ended. If
///       similarities are not needed, because all experts are resident, a visit costs no more than writing it down.
///       docs/which-policy.md has what each brings.
/// Cost: stage and keep O(ids). find_similar O(rows), vectorised, a visit since it was asked last, at most those of two
///       steps. uses_after O(horizon * ids) once a row and layer. A new step O(rows) a sequence that was asked about.
///       Nothing allocates after construction.
/// Memory: that of row_ring and sequence_similarity.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/predict/history/row_ring.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/history/sequence_similarity.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// A visit is staged before its victims are chosen, and kept when it takes place. Staging leaves no trace: another
/// stage, or the same one again, takes its place. Threads: compatible.
class routing_history {
 public:
  using row_id = row_ring::row_id;
  using match = sequence_similarity::match;
  using rows_with = sequence_similarity::rows_with;
  static constexpr row_id no_row = row_ring::no_row;

  struct config {
    std::int32_t rows = 1024;     ///< tokens that are remembered; a multiple of 256
    std::int32_t sequences = 16;  ///< running at one time; those beyond leave no rows
    /// How fast similarities forget: a visit counts 1/e after layers / reach others.
    double reach = 4;

    [[nodiscard]] validation validate() const {
      constexpr auto most = row_ring::most_rows;
      return detail::first_of(
          {detail::refuse_unless(rows >= 256 && rows <= most && rows % 256 == 0, "history rows",
                                 rows, "a multiple of 256, 256..." + std::to_string(most)),
           detail::refuse_unless(sequences >= 1 && sequences <= rows / 2, "history sequences",
                                 sequences, "1..rows / 2 (" + std::to_string(rows / 2) + ")"),
           detail::refuse_unless(reach > 0 && reach <= 1024, "history reach", reach,
                                 "above 0, at most 1024")});
    }
  };

  /// `horizon`: tokens after each row that ring().uses_after() tells of. Pre: neither argument's validate() has a
  /// reason to refuse, horizon is at most first_uses::most_horizon.
  routing_history(const geometry& shape, const config& options, std::size_t horizon = 0)
      : top_k_(shape.ranks()),
        most_pending_(most_rows_of_step(shape, options)),
        tokens_(shape),
        ring_(shape, static_cast<std::size_t>(options.rows), most_pending_, horizon),
        similar_(shape, ring_.rows(), static_cast<std::size_t>(options.sequences),
                 most_streams(shape, options), options.reach / shape.layers),
        streams_(most_streams(shape, options)),
        pending_(most_pending_),
        pending_ids_(most_pending_ * top_k_) {
    for (std::size_t s = 0; s < streams_.size(); ++s) streams_[s].room = similar_.first_room() + s;
  }
  /// Bytes without a horizon, but for some hundred bytes a sequence and layer. Pre: neither argument's validate() has a
  /// reason to refuse.
  static std::uint64_t bytes_for(const geometry& shape, const config& options) noexcept {
    const auto sequences = static_cast<std::uint64_t>(options.sequences);
    const std::uint64_t layers = shape.layer_count(), experts = shape.expert_count();
    const auto of_row = 19 + layers * ((experts + 127) / 128 * 16 + experts / 8 + 1) +
                        2 * (sequences + most_streams(shape, options));
    return static_cast<std::uint64_t>(options.rows) * of_row +
           8 * sequences * layers * (shape.ranks() + 1) +
           most_rows_of_step(shape, options) * (32 + 4 * shape.ranks());
  }

  /// The rows, and what came after them.
  [[nodiscard]] row_ring& ring() noexcept { return ring_; }
  [[nodiscard]] const row_ring& ring() const noexcept { return ring_; }

  /// Looks at a visit that may take place. A view that opens a step, that is none of this geometry, or whose layer was
  /// kept in this step already, stages nothing.
  void stage(const routing_view& view) noexcept {
    drop_stage();
    if (view.layer < 0 || tokens_.check(view) != status::ok || view.experts.empty()) return;
    const bool opens = ring_.opens(view.step);
    if (!opens && ring_.has_seen(view.layer)) return;
    staged_ = view.layer;
    staged_step_ = view.step;
    ring_.look_as_if_ended(opens);
    find_streams(view);
    remember_tokens(view);
  }
  /// The staged visit takes place: its rows are written. Nothing happens where none is staged.
  void keep() noexcept {
    if (staged_ < 0) return;
    if (ring_.opens(staged_step_)) begin_step();
    for (std::size_t s = 0; s < stream_count_; ++s) {
      auto& of = streams_[s];
      similar_.keep(visit_of(of), of.compared, of.room);
    }
    write_rows();
    ring_.see(staged_);
    drop_stage();
  }
  void drop_stage() noexcept {
    staged_ = before_layers;
    stream_count_ = 0;
  }

  /// Sequences of the staged visit that may be compared.
  [[nodiscard]] std::size_t streams() const noexcept { return stream_count_; }
  /// The rows that are most similar to a stream's, at most out.size(), most similar first, of equals the latest;
  /// returns how many. Rows without any similarity are left out. Pre: of < streams().
  std::size_t find_similar(std::size_t of, rows_with need, std::span<match> out) noexcept {
    auto& asked = streams_[of];
    if (!asked.compared) similar_.compare(ring_, visit_of(asked), asked.room);
    asked.compared = true;
    return similar_.find(ring_, asked.room, need, out);
  }
  /// find_similar() for the visits of a sequence that took place; none for a sequence that is not known.
  std::size_t find_similar_to(sequence_id sequence, rows_with need, std::span<match> out) noexcept {
    return similar_.find_of(ring_, sequence, need, out);
  }
  /// Whether the sequence is one of those that are followed.
  [[nodiscard]] bool follows(sequence_id sequence) const noexcept {
    return similar_.follows(sequence);
  }
  [[nodiscard]] std::size_t most_sequences() const noexcept { return similar_.most_sequences(); }

  /// Writes the rows whose steps have ended; those of the running step are not whole. Pre: `to` is of this geometry.
  void save(saved_history& to) const { ring_.save(to); }
  /// Its rows are the saved ones, the newest that there is room for. Running sequences begin anew. Allocates nothing.
  /// Pre: saved.check() has no reason to refuse.
  void restore(const saved_history& saved) noexcept {
    drop_stage();
    ring_.restore(saved);
    similar_.forget_all();
  }
  /// The sequence has had its last token: its rows stay, its similarities are forgotten.
  void end_sequence(sequence_id sequence) noexcept { similar_.end(sequence); }

 private:
  /// A sequence of the staged visit.
  struct stream {
    sequence_id sequence = 0;
    std::size_t tokens = 0;
    std::size_t remembered = 0;  ///< of its tokens, the last ones
    std::size_t last = 0;        ///< of its tokens the last one, in pending_
    std::size_t room = 0;        ///< where its similarities after the staged visit are
    bool compared = false;       ///< they are written
  };

  static std::size_t most_streams(const geometry& shape, const config& options) noexcept {
    return std::min(static_cast<std::size_t>(options.sequences), shape.tokens_per_visit());
  }
  static std::size_t most_rows_of_step(const geometry& shape, const config& options) noexcept {
    return std::min(shape.tokens_per_visit(), static_cast<std::size_t>(options.rows) / 2);
  }

  /// In the order of their last tokens, the last one first; those beyond what there is room for are left out.
  void find_streams(const routing_view& view) noexcept {
    for (auto t = tokens_.tokens(view); t-- > 0;) {
      const auto sequence = sequence_of(view, t);
      const auto s = stream_of(sequence);
      if (s == streams_.size()) continue;
      auto& found = streams_[s];
      if (s == stream_count_) {
        ++stream_count_;
        found.sequence = sequence;
        found.tokens = 0;
        found.compared = false;
      }
      ++found.tokens;
    }
    // A long prompt must not push out all rows, nor those of others.
    for (std::size_t s = 0; s < stream_count_; ++s) {
      auto& of = streams_[s];
      of.remembered =
          of.tokens == 1
              ? 1
              : std::min(of.tokens, std::max<std::size_t>(1, ring_.rows() / 2 / stream_count_));
    }
  }
  /// stream_count_ where there is none.
  [[nodiscard]] std::size_t stream_of(sequence_id sequence) const noexcept {
    std::size_t s = 0;
    while (s < stream_count_ && streams_[s].sequence != sequence) ++s;
    return s;
  }
  /// Copies what will be the rows: the view need not last until the visit is kept.
  void remember_tokens(const routing_view& view) noexcept {
    pending_count_ = 0;
    for (std::size_t t = 0; t < tokens_.tokens(view); ++t) {
      const auto sequence = sequence_of(view, t);
      const auto s = stream_of(sequence);
      if (s == stream_count_ || streams_[s].tokens-- > streams_[s].remembered) continue;
      const auto ids = tokens_.ids_of(view, t);
      ids.copy_to(pending_ids_.data() + pending_count_ * top_k_);
      streams_[s].last = pending_count_;
      pending_[pending_count_++] = sequence;
    }
  }
  [[nodiscard]] id_view<expert_id> pending_ids(std::size_t i) const noexcept {
    return std::span(pending_ids_).subspan(i * top_k_, top_k_);
  }
  [[nodiscard]] sequence_similarity::visit visit_of(const stream& of) const noexcept {
    return {.sequence = of.sequence,
            .layer = staged_,
            .ids = pending_ids(of.last),
            .has_several = of.remembered > 1,
            .opens_step = ring_.opens(staged_step_),
            .rows_of_step = pending_count_};
  }
  void begin_step() noexcept {
    for (std::size_t s = 0; s < stream_count_; ++s)
      similar_.go_on(ring_, streams_[s].sequence, streams_[s].compared, streams_[s].room);
    similar_.end_step(ring_);
    ring_.begin_step(staged_step_);
    for (std::size_t i = 0; i < pending_count_; ++i)
      similar_.take_row(ring_, pending_[i], staged_step_);
  }
  /// The step's rows are those of its first visit's tokens: others have none.
  void write_rows() noexcept {
    const auto rows = ring_.step_rows();
    std::size_t at = 0;
    for (std::size_t i = 0; i < pending_count_ && at < rows.size(); ++i)
      if (rows[at].sequence == pending_[i])
        ring_.routed().write(index_of(staged_), rows[at++].row, pending_ids(i));
  }

  std::size_t top_k_;
  std::size_t most_pending_;
  view_tokens tokens_;
  row_ring ring_;
  sequence_similarity similar_;
  // The staged visit.
  layer_id staged_ = before_layers;
  step_id staged_step_ = 0;
  std::vector<stream> streams_;
  std::size_t stream_count_ = 0;
  std::vector<sequence_id> pending_;  ///< the tokens that will be rows
  std::size_t pending_count_ = 0;
  std::vector<expert_id> pending_ids_;  ///< [pending, top_k]
};

}  // namespace hotset
