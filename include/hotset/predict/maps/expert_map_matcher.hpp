// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which stored expert map each running token is most like, by the layers that it has gone through.
///
/// Rule: cosine of the token's layers 0..l and each map's, best over the store, ties to the lower place. Dot products are kept
///       running: a layer adds its own slice, which is read once for all tokens. A map that is put in, or takes another's
///       place, after a step began is skipped by the tokens of that step, which never saw its layers.
///       int8: running sums of rounded-up codes are upper bounds; a map whose bound reaches the best exact cosine has its
///       exact sum brought up to date, which is its bound from then on. So the best is the best of the probabilities.
/// Source: fMoE, trajectory similarity.
/// Deviations: none (the prefix is not computed again; sums differ from it by rounding).
/// Cost: C E per layer and token; int8 also E per map that is looked at and layer it missed. Memory per token: 4 bytes per
///       place; int8 16, 4 per piece of 64 KiB of maps, and 4 L E.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/status.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/maps/expert_map_store.hpp"
#include "hotset/predict/maps/map_rows.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Works with the store that it was created for, which may change at any time between calls. Nothing allocates after
/// construction. Threads: compatible.
class expert_map_matcher {
 public:
  /// A place in the store and its cosine; `place` is none while nothing matches.
  struct match {
    std::uint32_t place = expert_map_store::none;
    float score = 0.0F;
  };
  static constexpr std::uint64_t most_bytes = detail::most_predictor_bytes;

  /// For steps of at most `most_tokens` tokens. Errors: more bytes than there may be, no host memory.
  static result<expert_map_matcher> create(const expert_map_store& store, std::size_t most_tokens,
                                           vector_level level = best_vector_level()) {
    const auto bytes = bytes_for(store, most_tokens);
    if (most_tokens < 1 || most_tokens > std::size_t{1} << 24U || bytes > most_bytes)
      return error{"expert map matcher of " + std::to_string(most_tokens) + " tokens and " +
                   std::to_string(store.capacity()) + " maps needs " + std::to_string(bytes) +
                   " bytes, accepted: 1..16777216 tokens, at most " + std::to_string(most_bytes) +
                   " bytes"};
    return detail::or_no_memory([&] { return expert_map_matcher(store, most_tokens, level); });
  }

  /// Layers that the running tokens have gone through.
  [[nodiscard]] std::size_t layers() const noexcept { return layers_; }
  [[nodiscard]] std::size_t tokens() const noexcept { return count_; }

  /// Forgets the tokens before and starts with as many new ones, against the maps that are stored now.
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
      if (!is_bound_) continue;
      std::fill_n(&exact_[t * padded_], of_token.size(), 0.0);
      std::fill_n(&exact_layers_[t * padded_], of_token.size(), 0U);
    }
    return status::ok;
  }

  /// The next layer's probabilities. A token whose row is none (see probability_row) matches nothing any more.
  /// Shape: `rows` is [tokens, E]. Errors: invalid_visit for another layer than the next, or another length; nothing changed.
  status advance(const expert_map_store& store, std::size_t layer,
                 std::span<const float> rows) noexcept {
    if (layer != layers_ || layer >= store.layers() || rows.size() != count_ * experts_)
      return status::invalid_visit;
    for (std::size_t t = 0; t < count_; ++t) take(t, layer, rows.subspan(t * experts_, experts_));
    ++layers_;
    skip_replaced(store);
    for (std::size_t t = 0; t < count_; ++t) states_[t].guess = {};
    const auto norms = store.inverse_norms(layer);
    for (std::size_t first = 0; first < blocks_; first += chunk_) {
      const auto count = std::min(chunk_, blocks_ - first);
      const auto at = first * map_kernels::lanes;
      fetch_soon(store, layer, first + count);
      map_kernels::add_dots(level_, storage_, store.slice(layer, first, count), rows_.first(count_),
                            sums_.data() + at, padded_);
      // Sums that were just written are still near.
      for (std::size_t t = 0; t < count_; ++t) take_piece(t, norms, first, count);
    }
    for (std::size_t t = 0; t < count_; ++t) settle(store, t);
    return status::ok;
  }

  /// What the token is most like after the layers that were taken in. Pre: token < tokens().
  [[nodiscard]] match best(const expert_map_store& store, std::size_t token) noexcept {
    HOTSET_ASSERT(token < count_);
    if (layers_ == 0) return {};
    if (seen_ != store.changes()) search_again(store);
    const auto& of = states_[token];
    if (of.lost || of.best.place == expert_map_store::none) return {};
    return {of.best.place,
            static_cast<float>(static_cast<double>(of.best.score) / std::sqrt(of.squares))};
  }

 private:
  struct state {
    double squares = 0;  ///< of the token's own rows
    map_kernels::best_of best{};
    map_kernels::best_of guess{};  ///< of int8: the highest bound
    bool lost = false;
  };
  /// What a sum is where the map is not to be matched; nothing that is added changes it.
  static constexpr float skipped = -std::numeric_limits<float>::infinity();
  /// Slices are gone through in pieces that stay in the nearest caches while further tokens read them.
  static constexpr std::size_t chunk_bytes = std::size_t{1} << 16U;

  expert_map_matcher(const expert_map_store& store, std::size_t most_tokens, vector_level level)
      : experts_(store.experts()),
        padded_(store.padded()),
        storage_(store.storage()),
        is_bound_(storage_ == map_storage::int8),
        level_(level),
        chunk_(chunk_of(store)),
        pieces_(pieces_of(store)),
        slack_(1.0F - static_cast<float>(store.layers() + 16) * 0x1p-22F),
        states_(most_tokens),
        sums_(most_tokens * padded_),
        exact_(is_bound_ ? most_tokens * padded_ : 0),
        exact_layers_(exact_.size()),
        piece_bounds_(is_bound_ ? most_tokens * pieces_ : 0),
        rows_(most_tokens, experts_, is_bound_),
        past_layers_(store.layers()),
        past_(is_bound_ ? most_tokens * past_layers_ * experts_ : 0) {}

  static std::size_t chunk_of(const expert_map_store& store) noexcept {
    return std::max<std::size_t>(1, chunk_bytes / store.block_bytes());
  }
  static std::size_t pieces_of(const expert_map_store& store) noexcept {
    return store.padded() / map_kernels::lanes / chunk_of(store) + 1;
  }
  static std::uint64_t bytes_for(const expert_map_store& store, std::uint64_t tokens) noexcept {
    const bool bound = store.storage() == map_storage::int8;
    const std::uint64_t places = store.padded();
    const std::uint64_t map = std::uint64_t{store.layers()} * store.experts();
    // Places are below 2^25 and a map's values at most 2^28, so that one token's bytes do not wrap.
    const auto each = sizeof(state) + places * (bound ? 16 : 4) +
                      (bound ? 4 * (map + pieces_of(store)) : 0) +
                      map_rows::bytes_for(store.experts(), bound);
    return tokens > most_bytes / each ? most_bytes + 1 : tokens * each;
  }

  [[nodiscard]] std::span<float> sums(std::size_t token) noexcept {
    return std::span(sums_).subspan(token * padded_, padded_);
  }
  [[nodiscard]] std::span<float> past(std::size_t token, std::size_t layer) noexcept {
    return std::span(past_).subspan((token * past_layers_ + layer) * experts_, experts_);
  }
  void take(std::size_t t, std::size_t layer, std::span<const float> row) noexcept {
    const auto own = rows_.row(t);
    states_[t].lost |= !probability_row::normalise(row, own);
    rows_.code(t);
    for (const auto p : own) states_[t].squares += static_cast<double>(p) * static_cast<double>(p);
    if (is_bound_) std::ranges::copy(own, past(t, layer).begin());
  }
  /// What is small beside the maps, of the piece that begins with a block.
  void fetch_soon(const expert_map_store& store, std::size_t layer, std::size_t first) noexcept {
    if (first >= blocks_) return;
    const auto at = first * map_kernels::lanes;
    const auto count = std::min(chunk_, blocks_ - first) * map_kernels::lanes;
    hotset::fetch_soon(&store.inverse_norms(layer)[at], count);
    if (is_bound_) hotset::fetch_soon(store.slice(layer, first, 1).steps, count);
    for (std::size_t t = 0; t < count_; ++t) hotset::fetch_soon(&sums(t)[at], count);
  }
  void skip_replaced(const expert_map_store& store) noexcept {
    if (seen_ == store.changes()) return;
    seen_ = store.changes();
    for (std::size_t place = 0; place < blocks_ * map_kernels::lanes && place < store.capacity();
         ++place) {
      if (store.generation(place) <= began_) continue;
      for (std::size_t t = 0; t < count_; ++t) {
        sums(t)[place] = skipped;
        if (states_[t].best.place == place) states_[t].best = {};
      }
    }
  }
  void search_again(const expert_map_store& store) noexcept {
    skip_replaced(store);
    const auto norms = store.inverse_norms(layers_ - 1);
    for (std::size_t t = 0; t < count_; ++t) {
      states_[t].guess = {};
      for (std::size_t first = 0; first < blocks_; first += chunk_)
        take_piece(t, norms, first, std::min(chunk_, blocks_ - first));
      settle(store, t);
    }
  }
  /// The highest sum of a piece, `count` blocks from `first` on.
  void take_piece(std::size_t t, std::span<const float> norms, std::size_t first,
                  std::size_t count) noexcept {
    const auto at = first * map_kernels::lanes;
    map_kernels::best_of of_piece;
    map_kernels::take_best(level_, sums(t).data() + at, norms.data() + at, at, count, of_piece);
    if (is_bound_) piece_bounds_[t * pieces_ + first / chunk_] = of_piece.score;
    if (of_piece.score > states_[t].guess.score) states_[t].guess = of_piece;
  }
  /// Makes the best of the highest sum.
  void settle(const expert_map_store& store, std::size_t t) noexcept {
    auto& of = states_[t];
    if (is_bound_ && !of.lost)
      search(store, t);
    else
      of.best = of.guess;
  }

  // Of int8: sums are upper bounds.

  /// The best by exact sums: the last best and the highest bound first, then all whose bounds reach the best of them.
  void search(const expert_map_store& store, std::size_t t) noexcept {
    auto& of = states_[t];
    const auto last = of.best.place;
    of.best = {};
    exact_score_ = -std::numeric_limits<double>::infinity();
    if (of.guess.place == expert_map_store::none) return;
    consider(store, t, of.guess.place);
    if (last != expert_map_store::none) consider(store, t, last);
    const auto norms = store.inverse_norms(layers_ - 1);
    for (std::size_t first = 0; first < blocks_; first += chunk_)
      if (piece_bounds_[t * pieces_ + first / chunk_] >= of.best.score * slack_)
        search_piece(store, t, norms, first, std::min(blocks_, first + chunk_));
  }
  void search_piece(const expert_map_store& store, std::size_t t, std::span<const float> norms,
                    std::size_t first, std::size_t end) noexcept {
    const auto& best = states_[t].best;
    const float* const bounds = sums(t).data();
    for (std::size_t b = first;; ++b) {
      b = map_kernels::find_block(level_, bounds, norms.data(), b, end, best.score * slack_);
      if (b == end) return;
      for (std::size_t i = b * map_kernels::lanes; i < (b + 1) * map_kernels::lanes; ++i)
        if (bounds[i] * norms[i] >= best.score * slack_)
          consider(store, t, static_cast<std::uint32_t>(i));
    }
  }
  void consider(const expert_map_store& store, std::size_t t, std::uint32_t place) noexcept {
    auto& of = states_[t];
    const double score =
        exact_sum(store, t, place) * static_cast<double>(store.inverse_norms(layers_ - 1)[place]);
    if (score < exact_score_ || (score == exact_score_ && place >= of.best.place)) return;
    exact_score_ = score;
    of.best = {static_cast<float>(score), place};
  }
  /// Adds the layers that are missing, each in the same way whenever that is, so that equal maps have equal sums.
  double exact_sum(const expert_map_store& store, std::size_t t, std::uint32_t place) noexcept {
    const auto at = t * padded_ + place;
    auto& done = exact_layers_[at];
    if (done == layers_) return exact_[at];
    for (; done < layers_; ++done) exact_[at] += dot(past(t, done), store.exact_row(place, done));
    sums_[at] = static_cast<float>(exact_[at] * (1.0 + 0x1p-22));
    return exact_[at];
  }
  static double dot(std::span<const float> a, std::span<const float> b) noexcept {
    return detail::sum_of<double>(a.size(),
                                  [&](std::size_t i) { return double{a[i]} * double{b[i]}; });
  }

  std::size_t experts_;
  std::size_t padded_;
  map_storage storage_;
  bool is_bound_;
  vector_level level_;
  std::size_t chunk_;  ///< blocks
  std::size_t pieces_;
  float slack_;  ///< below 1 by more than the rounding of a sum of all layers
  std::size_t layers_ = 0;
  std::size_t blocks_ = 0;
  std::uint64_t began_ = 0;  ///< the store's changes when the step began
  std::uint64_t seen_ = 0;   ///< and when its replaced places were last skipped
  double exact_score_ = 0;
  std::vector<state> states_;
  std::size_t count_ = 0;                    ///< of the running step's tokens
  aligned_vector<float> sums_;               ///< [tokens, padded places]
  std::vector<double> exact_;                ///< of int8: [tokens, padded places]
  std::vector<std::uint32_t> exact_layers_;  ///< of int8: layers that an exact sum holds
  /// Of int8: [tokens, pieces], nothing in a piece has a higher one.
  std::vector<float> piece_bounds_;
  map_rows rows_;  ///< one layer's
  std::size_t past_layers_;
  std::vector<float> past_;  ///< of int8: [tokens, layers, experts]
};

}  // namespace hotset
