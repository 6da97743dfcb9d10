// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Estimates the value of keeping each expert: the probability that its layer uses it soon, nearer uses weighing
/// more.
///
/// Rule: for each running sequence of a visit of layer l, the rows with the most similar routing vote for the experts
///       that they used in layer l in later tokens: w = exp(sharpness * (similarity - 0.7)). The h-th later token,
///       h = 1..horizon, gives w g^(h-1) to each expert that the row has not voted for yet. `left` sums w g^h, h
///       being the number of later tokens that the row knows.
///       With tot the sum of w and p the rates of two_rates over the number of sequences, q(e) = (votes(e) + (left +
///       doubt) p(e)) / (tot + doubt). The value is 1 - product over sequences of (1 - q(e)), plus lately * fast(e).
///       Without history it is p(e) + lately * fast(e).
/// Source: ours.
/// Deviations: the visit itself counts before its victims are chosen; residency is judged as without values.
/// Cost: stage: that of routing_history and two_rates; values: O(rows + matches * experts) a sequence, only when
///       requested.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/first_uses.hpp"
#include "hotset/predict/history/routing_history.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/history/two_rates.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/kernels/vote_kernels.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction.
class next_use_values {
 public:
  static constexpr std::int32_t most_matches = 64;
  static constexpr std::int32_t most_horizon = std::int32_t{first_uses::most_horizon};
  static constexpr float doubt = 0.5F;  ///< weight of the rates relative to the votes

  struct config {
    std::optional<routing_history::config> history{};  ///< none: rates only
    history_source from{};                             ///< saved history to start from
    std::int32_t matches = 16;                         ///< rows that vote
    std::int32_t horizon = 7;                          ///< tokens ahead that rows vote for
    double sharpness = 10;                             ///< of similarity_weights
    double discount = 0.6;  ///< g: factor on a use for each step of distance
    double lately = 0.1;    ///< weight of the fast rate
    two_rates::config rates{};

    [[nodiscard]] validation validate() const {
      using detail::refuse_unless, detail::within;
      return detail::first_of(
          {history ? history->validate() : validation(),
           within("next use matches", matches, 1, most_matches),
           within("next use horizon", horizon, 1, most_horizon), from.validate(),
           similarity_weights::check(sharpness),
           refuse_unless(discount > 0 && discount <= 1, "next use discount", discount,
                         "above 0, at most 1"),
           refuse_unless(lately >= 0 && lately <= 1e3, "next use lately", lately, "0..1000"),
           rates.validate()});
    }
    /// Checks validate() and that the saved history matches this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      return from.validate(shape);
    }
  };

  /// Pre: both arguments' validate() return no error.
  next_use_values(const geometry& shape, const config& options)
      : experts_(shape.expert_count()),
        most_ids_(shape.ids_per_visit()),
        horizon_(static_cast<std::size_t>(options.horizon)),
        lately_(static_cast<float>(options.lately)),
        rates_(shape, options.rates),
        kept_step_(shape.layer_count(), never),
        distinct_(experts_, most_ids_),
        ids_(shape.distinct_per_visit()),
        matches_(static_cast<std::size_t>(options.matches)),
        ballots_(matches_.size()),
        counts_(horizon_ + 1),
        weights_(options.sharpness),
        votes_(experts_),
        unused_(experts_),
        values_(experts_) {
    if (options.history) prepare_history(shape, options);
    if (options.from.saved) restore(*options.from.saved);
  }

  /// Returns the learned state; without history, the rates. Tokens of the running step are incomplete and left out.
  [[nodiscard]] saved_history save(const geometry& shape, std::uint64_t model = 0) const {
    auto out = saved_history::of(shape, model);
    rates_.save(out);
    if (history_) history_->save(out);
    return out;
  }
  /// Replaces the learned state by the saved one; if it has more rows than fit, the newest are kept. Allocates
  /// nothing.
  /// Pre: saved.check() returns no error.
  void restore(const saved_history& saved) noexcept {
    drop_stage();
    rates_.restore(saved);
    if (history_) history_->restore(saved);
    std::ranges::fill(kept_step_, never);
  }

  /// Stages a visit that may take place. Staging has no lasting effect. If this layer's visit was already kept in
  /// this step, nothing is staged.
  void stage(const routing_view& view) noexcept {
    drop_stage();
    if (view.layer < 0 || index_of(view.layer) >= kept_step_.size()) return;
    const auto routed = view.chosen();
    if (routed.size() > most_ids_ || kept_step_[view.layer] == view.step) return;
    staged_ = view.layer;
    staged_step_ = view.step;
    id_count_ = distinct_.collect(routed, ids_.data());
    if (history_) history_->stage(view);
  }
  /// Commits the staged visit; no effect if none is staged.
  void keep() noexcept {
    if (staged_ < 0) return;
    kept_step_[staged_] = staged_step_;
    if (!valued_) (void)rates_.after(staged_, staged_experts());
    rates_.keep(staged_);
    if (history_) history_->keep();
    staged_ = before_layers;
    valued_ = false;
  }
  void drop_stage() noexcept {
    staged_ = before_layers;
    valued_ = false;
    if (history_) history_->drop_stage();
  }
  /// Whether values() was called since the visit was staged.
  [[nodiscard]] bool are_known() const noexcept { return valued_; }
  [[nodiscard]] bool is_staged(layer_id layer, step_id step) const noexcept {
    return staged_ == layer && staged_step_ == step && staged_ >= 0;
  }

  /// The distinct experts of the staged visit.
  [[nodiscard]] id_view<expert_id> staged_experts() const noexcept {
    return std::span(ids_).first(id_count_);
  }
  /// Returns the values of the staged layer's experts after the visit. Shape: [experts]; valid until the next stage.
  /// Pre: a visit is staged.
  [[nodiscard]] std::span<const float> values() noexcept {
    if (!valued_) evaluate();
    valued_ = true;
    return values_;
  }

 private:
  static constexpr step_id never = std::numeric_limits<step_id>::max();

  void prepare_history(const geometry& shape, const config& options) {
    history_.emplace(shape, *options.history, horizon_);
    votes_.resize(history_->ring().numbered_experts());
    for (std::size_t h = 0; h <= horizon_; ++h)
      powers_.push_back(static_cast<float>(std::pow(options.discount, static_cast<double>(h))));
    for (std::size_t reach = 0; reach <= horizon_; ++reach)
      std::copy_n(powers_.data(), reach, counts_[reach].data() + 1);
  }

  void evaluate() noexcept {
    const auto streams = history_ ? history_->streams() : 0;
    const auto [fast, slow] = rates_.after(staged_, staged_experts());
    const float of_each = 1.0F / static_cast<float>(std::max<std::size_t>(streams, 1));
    const value_kernels::blend rates{rates_.blend() * of_each, (1.0F - rates_.blend()) * of_each};
    if (streams < 2)
      return value_kernels::share(votes_, fast, slow, rates, vote(0), lately_, values_, level_);
    std::ranges::fill(unused_, 1.0F);
    for (std::size_t s = 0; s < streams; ++s) {
      value_kernels::share(votes_, fast, slow, rates, vote(s), 0.0F, values_, level_);
      for (std::size_t e = 0; e < experts_; ++e) unused_[e] *= 1.0F - std::min(values_[e], 1.0F);
    }
    for (std::size_t e = 0; e < experts_; ++e) values_[e] = 1.0F - unused_[e];
    value_kernels::add(fast, lately_, values_, level_);
  }
  /// Counts the votes for one sequence; returns how votes and rates are combined.
  [[nodiscard]] value_kernels::shares vote(std::size_t stream) noexcept {
    if (!history_ || stream >= history_->streams()) {
      if (history_) std::ranges::fill(votes_, 0.0F);  // without history they are always 0
      return {};
    }
    const auto found =
        history_->find_similar(stream, routing_history::rows_with::successor, matches_);
    auto& ring = history_->ring();
    for (std::size_t m = 0; m < found; ++m) ring.fetch_uses_after(staged_, matches_[m].row);
    float total = 0;
    float left = 0;
    for (std::size_t m = 0; m < found; ++m) {
      const auto weight = weights_[matches_[m].similarity];
      const auto later = ring.uses_after(staged_, matches_[m].row);
      ballots_[m] = {later.numbers, &counts_[later.tokens], weight};
      total += weight;
      left += weight * powers_[later.tokens];
    }
    if (const auto next = staged_ + 1; index_of(next) < kept_step_.size())
      for (std::size_t m = 0; m < found; ++m) ring.fetch_uses_after(next, matches_[m].row);
    vote_kernels::count(std::span(ballots_).first(found), horizon_ > 7, votes_, level_);
    return {left + doubt, 1.0F / (total + doubt)};
  }

  std::size_t experts_;
  std::size_t most_ids_;
  std::size_t horizon_;
  float lately_;
  vector_level level_ = best_vector_level();
  two_rates rates_;
  std::optional<routing_history> history_;
  per_layer<step_id> kept_step_;  ///< [layer] step of its last kept visit
  unique_ids distinct_;
  std::vector<expert_id> ids_;  ///< distinct experts of the staged visit
  std::size_t id_count_ = 0;
  std::vector<routing_history::match> matches_;
  std::vector<vote_kernels::ballot> ballots_;  ///< one for each match
  std::vector<vote_kernels::counts> counts_;   ///< [known tokens] worth of each number
  similarity_weights weights_;
  aligned_vector<float> votes_;   ///< [expert]
  aligned_vector<float> unused_;  ///< [expert]
  aligned_vector<float> values_;  ///< [expert]
  std::vector<float> powers_;     ///< powers of the discount
  layer_id staged_ = layer_id{-1};
  step_id staged_step_ = 0;
  bool valued_ = false;
};

}  // namespace hotset
