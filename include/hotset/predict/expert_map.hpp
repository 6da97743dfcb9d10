// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts later layers from the past token with the most similar router probabilities.
///
/// Rule: before a step's first layer, rows of layers 0..d-1 come from the oldest stored map with the token's id, or
///       else from the token whose embedding is nearest. After layer l, rows of layers l+1..l+d come from the map with
///       the best cosine over layers 0..l. The confidence is that cosine, clamped to 0..1. If nothing is stored, rows
///       are zeros.
///       After the last layer a token's own map is stored. Prefill visits store maps and forecast nothing.
/// Source: fMoE, expert map store and matcher.
/// Deviations: embeddings are looked up by token id. Rows made of gate weights are ours, for traces and engines
///       without all probabilities: most entries of such rows are 0.
/// Exact: yes (never changes what is computed).
/// Cost: expect O(tokens C E), see expert_map_matcher; for the last layer and for embeddings see expert_map_store.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/maps/expert_map_matcher.hpp"
#include "hotset/predict/maps/expert_map_store.hpp"
#include "hotset/predict/maps/probability_row.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Contents of a row: the router's scores, or the routed experts' gate weights.
enum class map_source : std::uint8_t { scores, weights };

/// Learns online. Steps come layer by layer with the same tokens. A view that does not continue the running step ends
/// the step, and none of its maps is stored. A repeated layer is answered again and counts once. Threads: compatible.
/// expect does not allocate.
class expert_map {
 public:
  struct config {
    std::uint32_t capacity = 1000;  ///< maps
    map_storage storage = map_storage::fp32;
    map_replacement replace = map_replacement::fifo;
    std::int32_t depth = 3;  ///< layers ahead: the prefetch distance d
    map_source source = map_source::scores;
    /// [vocabulary, embedding_width], the engine's input embeddings, or empty. The caller keeps them alive.
    std::span<const float> embeddings{};
    std::int32_t embedding_width = 0;

    /// Parameters by name, for example `expert-map:capacity=50000:storage=int8`.
    template <class From>
    static config read(From& from) {
      config out;
      out.capacity = from.number("capacity", out.capacity);
      out.storage = static_cast<map_storage>(from.choice("storage", {"fp32", "fp16", "int8"}, 0));
      out.replace = static_cast<map_replacement>(from.choice("replace", {"fifo", "redundancy"}, 0));
      out.source = static_cast<map_source>(from.choice("source", {"scores", "weights"}, 0));
      return out;
    }
    /// Inputs that the predictor needs with these options.
    [[nodiscard]] predictor_traits needs() const noexcept {
      auto out = traits;
      out.needs_scores = source == map_source::scores;
      return out;
    }
    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(depth >= 1, "expert_map depth", depth, "1 or more"),
           detail::one_of("expert_map source", source, {"scores", "weights"}),
           of_store().validate()});
    }
    [[nodiscard]] expert_map_store::config of_store() const {
      return {.capacity = capacity,
              .storage = storage,
              .replace = replace,
              .distance = depth,
              .embeddings = embeddings,
              .embedding_width = embedding_width};
    }
  };
  static constexpr std::string_view name = "expert-map";
  static constexpr predictor_traits traits{
      .needs_scores = true, .takes_embeddings = true, .opens_steps = true};

  /// Errors: those of expert_map_store and expert_map_matcher; a depth above L; more than most_predictor_bytes.
  static result<expert_map> create(const geometry& shape, const config& options) {
    if (auto bad = detail::refuse_predictor("expert_map", shape, options, bytes_for))
      return *std::move(bad);
    auto store = expert_map_store::create(shape, options.of_store());
    if (!store) return store.error();
    auto matcher = expert_map_matcher::create(*store, shape.tokens_per_visit());
    if (!matcher) return matcher.error();
    return detail::or_no_memory(
        [&] { return expert_map(shape, options, *std::move(store), *std::move(matcher)); });
  }

  /// Shape: [tokens, depth, E]; rows of layers past the last are zeros. Valid until the next call.
  /// Returns: an empty forecast in prefill. A view that lacks the contents of rows, has more tokens than
  /// max_tokens_per_visit, or does not continue the running step also gets an empty forecast, and ends the step.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/ = {},
                                std::int32_t /*ahead*/ = 0) noexcept {
    if (view.layer == before_layers) return open(view);
    if (!continues(view)) {
      end_step();
      return {};
    }
    const auto layer = index_of(view.layer);
    const bool is_new = layer == next_layer_;
    if (is_new) take_in(view, layer);
    const auto out = view.kind == request_class::prefill ? forecast{} : by_trajectory(view.layer);
    if (is_new && next_layer_ == layers_) learn();
    return out;
  }

  [[nodiscard]] const expert_map_store& store() const noexcept { return store_; }

 private:
  expert_map(const geometry& shape, const config& options, expert_map_store store,
             expert_map_matcher matcher)
      : source_(options.source),
        top_k_(shape.ranks()),
        layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        most_tokens_(shape.tokens_per_visit()),
        store_(std::move(store)),
        matcher_(std::move(matcher)),
        ids_(most_tokens_),
        whole_(most_tokens_),
        rows_(most_tokens_ * experts_),
        maps_(most_tokens_ * layers_ * experts_),
        expected_(shape, options.depth),
        confidence_(most_tokens_) {}

  /// Memory in bytes of visits, without store and matcher. Tokens are at most 2^24, layers x experts 2^28.
  static std::uint64_t bytes_for(const geometry& shape, const config& options) noexcept {
    return shape.tokens_per_visit() * (4 * (shape.expert_count() + shape.keys()) + 9) +
           detail::forecast_rows::bytes_for(shape, options.depth);
  }

  // Steps.

  void end_step() noexcept { running_ = false; }
  void begin_step(const routing_view& view, std::size_t tokens) noexcept {
    running_ = true;
    step_ = view.step;
    tokens_ = tokens;
    next_layer_ = 0;
    std::fill_n(whole_.begin(), tokens, std::uint8_t{1});
    if (view.token_ids.size() == tokens)
      std::ranges::copy(view.token_ids, ids_.begin());
    else
      std::fill_n(ids_.begin(), tokens, expert_map_store::no_token);
  }
  /// Tokens of the view; 0 if it lacks the contents of rows or has no whole number of tokens.
  [[nodiscard]] std::size_t tokens_in(const routing_view& view) const noexcept {
    const auto whole = [](std::size_t size, std::size_t width) {
      return size % width == 0 ? size / width : 0;
    };
    if (source_ == map_source::scores)
      return whole(view.probabilities.empty() ? view.logits.size() : view.probabilities.size(),
                   experts_);
    if (view.weights.size() != view.experts.size()) return 0;
    return whole(view.experts.size(), top_k_);
  }
  /// Whether the view is a layer of the running step that was seen, or its next one. A first layer begins a step.
  bool continues(const routing_view& view) noexcept {
    const auto tokens = tokens_in(view);
    if (view.layer < 0 || index_of(view.layer) >= layers_ || tokens == 0 || tokens > most_tokens_)
      return false;
    const bool same = running_ && view.step == step_ && tokens == tokens_;
    if (same && index_of(view.layer) <= next_layer_) return true;
    if (view.layer != 0) return false;
    begin_step(view, tokens);
    return true;
  }
  forecast open(const routing_view& view) noexcept {
    const auto tokens = view.token_ids.size();
    if (tokens == 0 || tokens > most_tokens_) {
      end_step();
      return {};
    }
    if (!running_ || view.step != step_ || tokens != tokens_) begin_step(view, tokens);
    if (view.kind == request_class::prefill) return {};
    return by_token_id(view.token_ids);
  }
  void take_in(const routing_view& view, std::size_t layer) noexcept {
    const bool matches = view.kind != request_class::prefill;
    if (layer == 0) {
      if (view.token_ids.size() == tokens_) std::ranges::copy(view.token_ids, ids_.begin());
      matching_ = matches && matcher_.begin(store_, tokens_) == status::ok;
    }
    for (std::size_t t = 0; t < tokens_; ++t) take_row(view, t, layer);
    matching_ =
        matching_ && matches &&
        matcher_.advance(store_, layer, std::span(rows_).first(tokens_ * experts_)) == status::ok;
    ++next_layer_;
  }
  void take_row(const routing_view& view, std::size_t t, std::size_t layer) noexcept {
    const auto row = std::span(rows_).subspan(t * experts_, experts_);
    if (!write_row(view, t, row)) whole_[t] = 0;
    std::ranges::copy(row, map(t).subspan(layer * experts_, experts_).begin());
  }

  /// Writes a token's row. Returns false, and writes zeros, if the row is no probability row.
  [[nodiscard]] bool write_row(const routing_view& view, std::size_t t,
                               std::span<float> row) const noexcept {
    if (source_ == map_source::weights) return write_weights(view, t, row);
    const auto first = t * experts_;
    return view.probabilities.empty()
               ? probability_row::softmax(view.logits.subspan(first, experts_), row)
               : probability_row::normalise(view.probabilities.subspan(first, experts_), row);
  }
  /// Writes a row from the routed experts only. Invalid ids and weights that are not positive are ignored.
  [[nodiscard]] bool write_weights(const routing_view& view, std::size_t t,
                                   std::span<float> row) const noexcept {
    const auto ids = view.experts;
    std::ranges::fill(row, 0.0F);
    double sum = 0;
    for (auto k = t * top_k_; k < (t + 1) * top_k_; ++k) {
      const auto share = view.weights[k];
      if (ids[k] < 0 || index_of(ids[k]) >= experts_ || !(share > 0.0F)) continue;
      row[index_of(ids[k])] += share;
      sum += double{share};
    }
    if (!(sum > 0) || !std::isfinite(sum)) {
      std::ranges::fill(row, 0.0F);
      return false;
    }
    for (auto& p : row) p = static_cast<float>(double{p} / sum);
    return true;
  }

  // Learning.

  [[nodiscard]] std::span<float> map(std::size_t token) noexcept {
    return std::span(maps_).subspan(token * layers_ * experts_, layers_ * experts_);
  }
  /// Stores complete maps.
  void learn() noexcept {
    std::size_t kept = 0;
    for (std::size_t t = 0; t < tokens_; ++t)
      if (whole_[t] != 0) keep(t, kept++);
    // Never refused: rows were divided by their sums.
    static_cast<void>(store_.insert(std::span<const float>(maps_).first(kept * layers_ * experts_),
                                    std::span<const std::int32_t>(ids_).first(kept)));
  }
  void keep(std::size_t token, std::size_t place) noexcept {
    if (token == place) return;
    std::ranges::copy(map(token), map(place).begin());
    ids_[place] = ids_[token];
  }

  // Forecasts.

  forecast by_token_id(std::span<const std::int32_t> ids) noexcept {
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const auto found = store_.semantic_match(ids[t]);
      write(t, before_layers, found.place, found.score);
    }
    return expected_.of(ids.size(), confidence_);
  }
  forecast by_trajectory(layer_id layer) noexcept {
    for (std::size_t t = 0; t < tokens_; ++t) {
      const auto found = matching_ ? matcher_.best(store_, t) : expert_map_matcher::match{};
      write(t, layer, found.place, found.score);
    }
    return expected_.of(tokens_, confidence_);
  }
  /// Writes the rows of the map at `place`; zeros if place is none.
  void write(std::size_t token, layer_id running, std::uint32_t place, float score) noexcept {
    confidence_[token] = std::clamp(score, 0.0F, 1.0F);
    expected_.write(token, running, [&](layer_id layer, std::size_t, std::span<float> out) {
      if (place == expert_map_store::none)
        std::ranges::fill(out, 0.0F);
      else
        store_.read_row(place, index_of(layer), out);
    });
  }

  map_source source_;
  std::size_t top_k_;
  std::size_t layers_;
  std::size_t experts_;
  std::size_t most_tokens_;
  expert_map_store store_;
  expert_map_matcher matcher_;
  // The running step.
  bool running_ = false;
  bool matching_ = false;
  step_id step_ = 0;
  std::size_t tokens_ = 0;
  std::size_t next_layer_ = 0;
  std::vector<std::int32_t> ids_;    ///< [tokens]
  std::vector<std::uint8_t> whole_;  ///< [tokens] 1: no row was refused
  std::vector<float> rows_;          ///< [tokens, experts] of the running layer
  std::vector<float> maps_;          ///< [tokens, layers, experts]
  // The forecast.
  detail::forecast_rows expected_;
  std::vector<float> confidence_;  ///< [tokens]
};

static_assert(predictor<expert_map>);

}  // namespace hotset
