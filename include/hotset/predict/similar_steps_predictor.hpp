// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts that a token continues like the past tokens with the most similar routing so far.
///
/// Rule: the rows of routing_history most similar to a request's last token vote for the experts that they used in
///       each of the next layers, with w = exp(sharpness * (similarity - 0.7)). Before a step's first layer their
///       successors vote. A row of the forecast is votes(e) + doubt p(e), divided by its sum, p being the layer's
///       rates of two_rates divided by the view's tokens.
/// Source: ours.
/// Deviations: prompt tokens except the last, and requests without a place in the history, get the rates only. The
///       confidence is the highest similarity.
/// Exact: yes (never changes what is computed).
/// Cost: O(rows + matches depth K) a request and visit, vectorised. Memory: that of routing_history, and 8 bytes a
///       key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/history/routing_history.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/history/two_rates.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/kernels/vote_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Threads: compatible. expect and on_sequence_end allocate nothing.
class similar_steps_predictor {
 public:
  static constexpr std::int32_t most_matches = 64;

  struct config {
    std::int32_t depth = 1;     ///< layers ahead
    std::int32_t matches = 16;  ///< rows that vote
    double sharpness = 10;      ///< of similarity_weights
    double doubt = 0.1;         ///< weight of the rates relative to the votes
    /// More rows than eviction uses: a forecast delays nothing, and the oldest steps still predict the next layer.
    /// A greater reach than eviction's: near layers predict the next layer better than the time after the step.
    routing_history::config history{.rows = 4096, .reach = 8};
    history_source from{};  ///< saved history to start from; by default none

    /// Parameters by name, for example `similar-steps:rows=1024:matches=32` or `similar-steps:from=FILE`.
    template <class From>
    static config read(From& from) {
      config out;
      out.matches = from.number("matches", out.matches);
      out.sharpness = from.real("sharpness", out.sharpness);
      out.doubt = from.real("doubt", out.doubt);
      out.history.rows = from.number("rows", out.history.rows);
      out.history.sequences = from.number("sequences", out.history.sequences);
      out.history.reach = from.real("reach", out.history.reach);
      out.from = history_source::read(from);
      return out;
    }
    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(depth >= 1, "similar_steps depth", depth, "1 or more"),
           detail::within("similar_steps matches", matches, 1, most_matches),
           similarity_weights::check(sharpness),
           detail::refuse_unless(doubt > 0 && doubt <= 1e6, "similar_steps doubt", doubt,
                                 "above 0, at most 1000000"),
           history.validate(), from.validate()});
    }
  };
  static constexpr std::string_view name = "similar-steps";
  static constexpr predictor_traits traits{.opens_steps = true, .wants_sequence_ends = true};

  static result<similar_steps_predictor> create(const geometry& shape, const config& options) {
    if (auto bad = detail::refuse_predictor("similar_steps", shape, options, bytes_of))
      return *std::move(bad);
    if (auto bad = options.from.validate(shape)) return *std::move(bad);
    return detail::or_no_memory([&] { return similar_steps_predictor(shape, options); });
  }

  /// Shape: [tokens, depth, experts]; rows sum to 1. Rows of layers past the last, and of layers never routed, are
  /// zeros. Valid until the next call. A visit repeated within its step is not learned again.
  /// Returns: an empty forecast, and no change, if the view's arrays do not belong together.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/,
                                std::int32_t /*ahead*/) noexcept {
    if (tokens_.check(view) != status::ok) return {};
    const auto tokens = tokens_.tokens(view);
    const bool opens = view.layer == before_layers;
    if (!opens) learn(view);
    of_each_ = 1.0F / static_cast<float>(std::max<std::size_t>(tokens, 1));
    answered_.clear();
    for (auto t = tokens; t-- > 0;) {
      const auto sequence = sequence_of(view, t);
      const auto voters = is_answered(sequence) ? 0 : find(sequence, opens);
      sure_[t] = voters == 0 ? 0.0F
                             : static_cast<float>(matches_[0].similarity) /
                                   static_cast<float>(history_kernels::alike);
      forecast_.write(t, view.layer, [&](layer_id target, std::size_t, std::span<float> out) {
        write(voters, target, out);
      });
    }
    return forecast_.of(tokens, sure_);
  }
  /// Returns the learned state. Tokens of the running step are incomplete and left out.
  [[nodiscard]] saved_history save(const geometry& shape, std::uint64_t model = 0) const {
    auto out = saved_history::of(shape, model);
    rates_.save(out);
    history_.save(out);
    return out;
  }
  /// Replaces the learned state by the saved one. Pre: saved.check() returns no error.
  void restore(const saved_history& saved) noexcept {
    rates_.restore(saved);
    history_.restore(saved);
  }
  /// Frees the request's place; its rows stay.
  void on_sequence_end(sequence_id sequence) noexcept { history_.end_sequence(sequence); }

 private:
  similar_steps_predictor(const geometry& shape, const config& options)
      : tokens_(shape),
        experts_(shape.expert_count()),
        doubt_(static_cast<float>(options.doubt)),
        history_(shape, options.history),
        rates_(shape, {}),
        distinct_(experts_, shape.ids_per_visit()),
        ids_(shape.distinct_per_visit()),
        weights_(options.sharpness),
        matches_(static_cast<std::size_t>(options.matches)),
        votes_(history_.ring().routed().words() * 64),
        forecast_(shape, options.depth),
        sure_(shape.tokens_per_visit()) {
    answered_.reserve(history_.most_sequences());
    if (options.from.saved) restore(*options.from.saved);
  }

  /// Pre: depth <= layers. No product wraps: keys are at most 2^28, rows 2^15, tokens 2^24.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    return routing_history::bytes_for(shape, options.history) + 8 * std::uint64_t{shape.keys()} +
           detail::forecast_rows::bytes_for(shape, options.depth);
  }

  void learn(const routing_view& view) noexcept {
    history_.stage(view);
    if (history_.streams() == 0) return;
    const auto count = distinct_.collect(view.chosen(), ids_.data());
    rates_.visit(view.layer, id_view<expert_id>(ids_).first(count));
    history_.keep();
  }
  /// Whether the sequence's last token was already compared: of a prompt, only the last token is.
  [[nodiscard]] bool is_answered(sequence_id sequence) noexcept {
    if (std::ranges::find(answered_, sequence) != answered_.end()) return true;
    if (history_.follows(sequence)) answered_.push_back(sequence);
    return false;
  }
  /// Finds the voting rows, the first of matches_; returns their number.
  [[nodiscard]] std::size_t find(sequence_id sequence, bool opens) noexcept {
    using need = routing_history::rows_with;
    const auto found =
        history_.find_similar_to(sequence, opens ? need::successor : need::layers, matches_);
    if (opens)
      for (auto& match : std::span(matches_).first(found))
        match.row = history_.ring().successor(match.row);
    return found;
  }
  void write(std::size_t voters, layer_id target, std::span<float> out) noexcept {
    std::fill_n(votes_.data(), votes_.size(), 0.0F);
    for (const auto& match : std::span(matches_).first(voters))
      each_member(history_.ring().set(target, match.row),
                  [&](std::size_t e) { votes_[e] += weights_[match.similarity]; });
    const auto fast = rates_.fast(target);
    const auto slow = rates_.slow(target);
    const auto doubt = doubt_ * of_each_;
    for (std::size_t e = 0; e < experts_; ++e)
      out[e] = votes_[e] + doubt * rates_.rate(fast[e], slow[e]);
    const auto total = detail::sum(out.data(), experts_);
    const auto scale = total > 0 ? 1.0F / total : 0.0F;
    for (auto& score : out) score *= scale;
  }

  view_tokens tokens_;
  std::size_t experts_;
  float doubt_;
  float of_each_ = 1;  ///< 1 / tokens of the running view
  routing_history history_;
  two_rates rates_;
  unique_ids distinct_;
  std::vector<expert_id> ids_;
  similarity_weights weights_;
  std::vector<routing_history::match> matches_;
  /// Sequences whose last tokens the running call has compared.
  std::vector<sequence_id> answered_;
  std::vector<float> votes_;  ///< [experts, rounded up to whole sets]
  detail::forecast_rows forecast_;
  std::vector<float> sure_;  ///< [tokens] confidence
};

static_assert(predictor<similar_steps_predictor>);

}  // namespace hotset
