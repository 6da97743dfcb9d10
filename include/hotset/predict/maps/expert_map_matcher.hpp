// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the stored expert map most similar to each running token over the layers visited so far.
///
/// Rule: cosine between the token's layers 0..l and each map's, maximum over the store, ties to the lower place. Dot
///       products accumulate: each layer adds its own slice, which is read once for all tokens. A map stored after a
///       step began is skipped for the tokens of that step, because its earlier layers are not in their sums.
/// Source: fMoE, trajectory similarity.
/// Deviations: none (accumulated sums differ from recomputed ones by rounding).
/// Cost: C E per layer and token. Memory per token: 4 bytes per place and expert.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/status.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"
#include "hotset/predict/maps/expert_map_store.hpp"
#include "hotset/predict/maps/probability_row.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Must always be called with the store that it was created for; the store may change between calls. Nothing
/// allocates after construction. Threads: compatible.
class expert_map_matcher {
 public:
  /// A place in the store and its cosine; `place` is none if nothing matches.
  struct match {
    std::uint32_t place = expert_map_store::none;
    float score = 0.0F;
  };

  /// For steps of at most `most_tokens` tokens. Errors: more than most_predictor_bytes, no host memory.
  static result<expert_map_matcher> create(const expert_map_store& store, std::size_t most_tokens,
                                           vector_level level = best_vector_level()) {
    constexpr auto most = detail::most_predictor_bytes;
    const auto bytes = bytes_for(store, most_tokens);
    if (most_tokens < 1 || most_tokens > std::size_t{1} << 24U || bytes > most)
      return refusal("expert map matcher of ", most_tokens, " tokens and ", store.capacity(),
                     " maps needs ", bytes, " bytes, accepted: 1..16777216 tokens, at most ", most,
                     " bytes");
    return detail::or_no_memory([&] { return expert_map_matcher(store, most_tokens, level); });
  }

  /// Starts a step with this many new tokens, matched against the maps that are stored now.
  /// Errors: visit_too_large; then there are no tokens.
  status begin(const expert_map_store& store, std::size_t tokens) noexcept {
    layers_ = 0;
    count_ = 0;
    if (tokens > states_.size()) return status::visit_too_large;
    count_ = tokens;
    blocks_ = store.blocks();
    began_ = seen_ = store.changes();
    std::fill_n(states_.begin(), tokens, state{});
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto of_token = sums(t).first(blocks_ * map_kernels::lanes);
      std::ranges::fill(of_token, 0.0F);
      std::ranges::fill(of_token.subspan(store.size()), skipped);
    }
    return status::ok;
  }

  /// Adds the next layer's probabilities. A token with an invalid row (see probability_row) matches nothing for the
  /// rest of the step.
  /// Shape: `rows` is [tokens, E]. Errors: invalid_visit for another layer than the next, or another length; nothing
  /// changed.
  status advance(const expert_map_store& store, std::size_t layer,
                 std::span<const float> rows) noexcept {
    if (layer != layers_ || layer >= store.layers() || rows.size() != count_ * experts_)
      return status::invalid_visit;
    for (std::size_t t = 0; t < count_; ++t) {
      states_[t].lost |= !probability_row::normalise(rows.subspan(t * experts_, experts_), row(t));
      for (const auto p : row(t)) states_[t].squares += double{p} * double{p};
    }
    ++layers_;
    skip_replaced(store);
    for_each_piece(store, [&](std::size_t t, std::size_t first, std::size_t count) {
      map_kernels::add_dots(level_, store.storage(), store.slice(layer, first, count), row(t),
                            &sums(t)[first * map_kernels::lanes]);
    });
    return status::ok;
  }

  /// Returns the best match over the layers added so far. Pre: token < tokens of the step.
  [[nodiscard]] match best(const expert_map_store& store, std::size_t token) noexcept {
    HOTSET_ASSERT(token < count_);
    if (layers_ == 0) return {};
    if (seen_ != store.changes()) {
      skip_replaced(store);
      for_each_piece(store, [](std::size_t, std::size_t, std::size_t) {});
    }
    const auto& of = states_[token];
    if (of.lost || of.best.place == expert_map_store::none) return {};
    return {of.best.place,
            static_cast<float>(static_cast<double>(of.best.score) / std::sqrt(of.squares))};
  }

 private:
  struct state {
    double squares = 0;  ///< sum of squares of the token's rows
    map_kernels::best_of best{};
    bool lost = false;
  };
  /// Sum of a map that must not match: adding to minus infinity does not change it.
  static constexpr float skipped = -std::numeric_limits<float>::infinity();
  /// Size of a piece of a slice: it stays in the nearest caches while further tokens read it.
  static constexpr std::size_t bytes_of_piece = std::size_t{1} << 16U;

  expert_map_matcher(const expert_map_store& store, std::size_t most_tokens, vector_level level)
      : experts_(store.experts()),
        padded_(store.padded()),
        level_(level),
        piece_(std::max<std::size_t>(1, bytes_of_piece / store.block_bytes())),
        states_(most_tokens),
        sums_(most_tokens * padded_),
        rows_(most_tokens * experts_) {}

  static std::uint64_t bytes_for(const expert_map_store& store, std::uint64_t tokens) noexcept {
    const auto each = sizeof(state) + 4 * std::uint64_t{store.padded() + store.experts()};
    return tokens > detail::most_predictor_bytes / each ? detail::most_predictor_bytes + 1
                                                        : tokens * each;
  }

  [[nodiscard]] std::span<float> sums(std::size_t token) noexcept {
    return std::span(sums_).subspan(token * padded_, padded_);
  }
  [[nodiscard]] std::span<float> row(std::size_t token) noexcept {
    return std::span(rows_).subspan(token * experts_, experts_);
  }
  /// Calls add(token, first block, blocks) for each piece of a layer, and updates each token's highest sum.
  template <class Add>
  void for_each_piece(const expert_map_store& store, Add add) noexcept {
    const auto norms = store.inverse_norms(layers_ - 1);
    for (std::size_t t = 0; t < count_; ++t) states_[t].best = {};
    for (std::size_t first = 0; first < blocks_; first += piece_) {
      const auto count = std::min(piece_, blocks_ - first);
      const auto at = first * map_kernels::lanes;
      for (std::size_t t = 0; t < count_; ++t) {
        add(t, first, count);
        map_kernels::take_best(level_, &sums(t)[at], &norms[at], at, count, states_[t].best);
      }
    }
  }
  void skip_replaced(const expert_map_store& store) noexcept {
    if (seen_ == store.changes()) return;
    seen_ = store.changes();
    for (std::size_t place = 0; place < blocks_ * map_kernels::lanes && place < store.capacity();
         ++place)
      if (store.generation(place) > began_)
        for (std::size_t t = 0; t < count_; ++t) sums(t)[place] = skipped;
  }

  std::size_t experts_;
  std::size_t padded_;
  vector_level level_;
  std::size_t piece_;       ///< blocks
  std::size_t layers_ = 0;  ///< layers added for the running tokens
  std::size_t blocks_ = 0;
  std::uint64_t began_ = 0;  ///< store.changes() when the step began
  std::uint64_t seen_ = 0;   ///< store.changes() when replaced places were last skipped
  std::vector<state> states_;
  std::size_t count_ = 0;       ///< tokens of the running step
  aligned_vector<float> sums_;  ///< [tokens, padded places]
  std::vector<float> rows_;     ///< [tokens, experts] of one layer
};

}  // namespace hotset
