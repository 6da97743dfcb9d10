// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the past tokens whose routing is most similar to that of a running token.
///
/// Rule: a row is the routing of one token in every layer; its successor is the row of the same sequence's next
///       token. For each running sequence every row has a similarity s. At a visit of the sequence, with U its last
///       token's experts, s -= floor(s * d); s += floor(d / |U|) * |U & row|, d = reach / layers: an average over the
///       last visits, with a time constant of a fraction of a step.
///       When the sequence moves to a new token, each row passes its similarity to its successor. If a visit has
///       several tokens of a sequence, similarities restart with the last one. If no similarity is requested during a
///       step, the next step starts from that step's visits only.
/// Source: ours.
/// Deviations: the rule was found with one ring in which all steps follow one another. Here successors record what
///       follows what: the rows of all sequences share the ring, each running sequence is compared with all of them,
///       and each prompt token is a row. A row does not vote before its successor's step has ended. If similarities
///       are not needed, because all experts are resident, a visit only records its routing.
///       docs/which-policy.md has the measured effect of each parameter.
/// Cost: stage and keep O(ids). find_similar O(rows), vectorised, for each visit since the last request, at most the
///       visits of two steps. uses_after O(horizon * ids) once a row and layer. A new step O(rows) for each sequence
///       whose similarities were requested.
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
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/row_ring.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/history/sequence_similarity.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"

namespace hotset {

/// A visit is staged before its victims are chosen, and kept when it takes place. Staging has no lasting effect: the
/// next stage replaces it. Threads: compatible.
class routing_history {
 public:
  using row_id = row_ring::row_id;
  using match = sequence_similarity::match;
  using rows_with = sequence_similarity::rows_with;
  static constexpr row_id no_row = row_ring::no_row;

  struct config {
    std::int32_t rows = 1024;  ///< remembered tokens; a multiple of 256
    /// Sequences running at the same time; further ones leave no rows.
    std::int32_t sequences = 16;
    /// Sets how fast similarities decay: the weight of a visit falls to 1/e after layers / reach further visits.
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

  /// `horizon`: number of later tokens that ring().uses_after() covers. Pre: both arguments' validate() return no
  /// error, horizon is at most first_uses::most_horizon.
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
  /// Memory in bytes without a horizon, and without some hundred bytes a sequence and layer. Pre: both arguments'
  /// validate() return no error.
  static std::uint64_t bytes_for(const geometry& shape, const config& options) noexcept {
    const auto sequences = static_cast<std::uint64_t>(options.sequences);
    const std::uint64_t layers = shape.layer_count(), experts = shape.expert_count();
    const auto of_row = 19 + layers * ((experts + 127) / 128 * 16 + experts / 8 + 1) +
                        2 * (sequences + most_streams(shape, options));
    return static_cast<std::uint64_t>(options.rows) * of_row +
           8 * sequences * layers * (shape.ranks() + 1) +
           most_rows_of_step(shape, options) * (32 + 4 * shape.ranks());
  }

  /// The remembered rows and their successors.
  [[nodiscard]] row_ring& ring() noexcept { return ring_; }
  [[nodiscard]] const row_ring& ring() const noexcept { return ring_; }

  /// Stages a visit that may take place. Stages nothing if the view opens a step, does not match this geometry, or
  /// repeats a layer that was kept in this step.
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
  /// Commits the staged visit: writes its rows. No effect if none is staged.
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

  /// Number of sequences of the staged visit that can be compared.
  [[nodiscard]] std::size_t streams() const noexcept { return stream_count_; }
  /// Writes the rows most similar to a stream's, at most out.size(), most similar first, ties to the latest; returns
  /// their number. Rows with similarity 0 are left out. Pre: of < streams().
  std::size_t find_similar(std::size_t of, rows_with need, std::span<match> out) noexcept {
    auto& asked = streams_[of];
    if (!asked.compared) similar_.compare(ring_, visit_of(asked), asked.room);
    asked.compared = true;
    return similar_.find(ring_, asked.room, need, out);
  }
  /// find_similar() for the visits of a sequence that took place; 0 for a sequence that is not followed.
  std::size_t find_similar_to(sequence_id sequence, rows_with need, std::span<match> out) noexcept {
    return similar_.find_of(ring_, sequence, need, out);
  }
  /// Whether the sequence is followed.
  [[nodiscard]] bool follows(sequence_id sequence) const noexcept {
    return similar_.follows(sequence);
  }
  [[nodiscard]] std::size_t most_sequences() const noexcept { return similar_.most_sequences(); }

  /// Writes the rows whose steps have ended; rows of the running step are incomplete. Pre: `to` has this geometry.
  void save(saved_history& to) const { ring_.save(to); }
  /// Replaces the rows by the newest saved ones that fit. Running sequences restart. Allocates nothing.
  /// Pre: saved.check() returns no error.
  void restore(const saved_history& saved) noexcept {
    drop_stage();
    ring_.restore(saved);
    similar_.forget_all();
  }
  /// Ends a sequence: its rows stay, its similarities are dropped.
  void end_sequence(sequence_id sequence) noexcept { similar_.end(sequence); }

 private:
  /// State of one sequence in the staged visit.
  struct stream {
    sequence_id sequence = 0;
    std::size_t tokens = 0;
    std::size_t remembered = 0;  ///< number of its last tokens that become rows
    std::size_t last = 0;        ///< index of its last token in pending_
    std::size_t room = 0;        ///< room of its similarities after the staged visit
    bool compared = false;       ///< whether that room was written
  };

  static std::size_t most_streams(const geometry& shape, const config& options) noexcept {
    return std::min(static_cast<std::size_t>(options.sequences), shape.tokens_per_visit());
  }
  static std::size_t most_rows_of_step(const geometry& shape, const config& options) noexcept {
    return std::min(shape.tokens_per_visit(), static_cast<std::size_t>(options.rows) / 2);
  }

  /// Collects the sequences in order of their last tokens, latest first; sequences beyond the limit are left out.
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
    // A long prompt must not evict all rows, nor those of other sequences.
    for (std::size_t s = 0; s < stream_count_; ++s) {
      auto& of = streams_[s];
      of.remembered =
          of.tokens == 1
              ? 1
              : std::min(of.tokens, std::max<std::size_t>(1, ring_.rows() / 2 / stream_count_));
    }
  }
  /// Returns stream_count_ if the sequence has no stream.
  [[nodiscard]] std::size_t stream_of(sequence_id sequence) const noexcept {
    std::size_t s = 0;
    while (s < stream_count_ && streams_[s].sequence != sequence) ++s;
    return s;
  }
  /// Copies the tokens that become rows: the view may end before the visit is kept.
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
  /// Writes the rows of the step: the tokens of its first visit. Tokens of later visits get no rows.
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
  std::vector<sequence_id> pending_;  ///< tokens that become rows
  std::size_t pending_count_ = 0;
  std::vector<expert_id> pending_ids_;  ///< [pending, top_k]
};

}  // namespace hotset
