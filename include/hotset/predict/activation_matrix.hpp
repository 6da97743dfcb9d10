// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts a request's routing from the most similar finished request: the activation matrices of MoE-Infinity.
///
/// Rule: a running request counts its routed ids in a matrix [layers, experts]; a finished request's matrix joins a
///       bounded collection. The match is the stored matrix with the greatest mean cosine per layer, over the layers
///       that the request has visited. At layer l, the forecast for layer i is the match's row, which sums to 1,
///       times 1 - (i - l) / layers.
///       If the collection is empty, the forecast uses the request's own rows. If the request has no counts yet, it
///       uses the mean of the collection.
///       Nothing stored: the request's own rows. Nothing of the request: the mean of the collection.
/// Source: MoE-Infinity, as the fMoE talk describes it. Every row is scaled to length 1, as in the system's code:
///       layers then weigh equally, regardless of their token counts and skew.
/// Deviations: the system's code compares the layers after l, and overwrites the least matched matrix when full. It
///       does not predict before a step's first layer; here l is -1 there, so the last layer's forecast has weight 0.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids capacity + tokens depth E) a visit; the end of a request O(capacity layers E).
///       Memory: 8 bytes x capacity x layers x E, and layers x (8 x capacity + 4 x E) for each request.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/maps/activation_collection.hpp"
#include "hotset/predict/refusals.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// Threads: compatible. expect and on_sequence_end allocate nothing. A visit that names no sequence belongs to
/// request 0.
class activation_matrix {
 public:
  struct config {
    std::int32_t depth = 1;       ///< layers ahead
    std::int32_t capacity = 120;  ///< finished requests that the collection keeps
    /// Running requests. If more run, the least recently used one is closed: its matrix joins the collection.
    std::int32_t requests = 32;
    /// Matrices to start with, in the format of save().
    std::shared_ptr<const std::vector<std::byte>> saved{};
    std::string file{};     ///< path that the matrices were read from; empty: none
    std::string trouble{};  ///< reason if the file could not be read

    /// Parameters by name, for example `activation-matrix:capacity=500` or `activation-matrix:from=FILE`. FILE holds
    /// the output of save(); it is read here, once.
    template <class From>
    static config read(From& from) {
      config out;
      out.capacity = from.number("capacity", out.capacity);
      out.requests = from.number("requests", out.requests);
      out.file = from.text("from", "");
      // A saved collection has less than 1 MiB beside its matrices.
      constexpr auto most = detail::most_predictor_bytes + (std::uint64_t{1} << 20U);
      if (!out.file.empty())
        out.saved = detail::shared_or_trouble(file_bytes(out.file, most), out.trouble);
      return out;
    }
    [[nodiscard]] activation_collection::config stored() const { return {capacity}; }
    [[nodiscard]] validation validate() const {
      if (!trouble.empty()) return error{trouble};
      return detail::first_of(
          {detail::refuse_unless(depth >= 1, "activation_matrix depth", depth, "1 or more"),
           detail::within("activation_matrix requests", requests, 1, live_sequences::most_rows),
           stored().validate()});
    }
  };
  static constexpr std::string_view name = "activation-matrix";
  static constexpr predictor_traits traits{.opens_steps = true, .wants_sequence_ends = true};

  static result<activation_matrix> create(const geometry& shape, const config& options) {
    if (auto bad = detail::refuse_predictor("activation_matrix", shape, options, bytes_of))
      return *std::move(bad);
    activation_matrix made(shape, options);
    if (options.saved)
      if (auto bad = made.load(*options.saved))
        return error{
            (options.file.empty() ? "activation_matrix from" : printable(options.file, 4096)) +
            ": " + bad->message};
    return made;
  }

  /// Learns a layer's routing, then forecasts the next layers.
  /// Shape: [tokens, depth, experts]; rows of layers past the last are zeros. Valid until the next call.
  /// Returns: an empty forecast, and no change, if the view's arrays do not belong together. The confidence is the
  /// match's cosine, or 0 without a match.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/,
                                std::int32_t /*ahead*/) noexcept {
    if (shape_.check(view) != status::ok) return {};
    if (view.layer == before_layers)
      look_up(view);
    else
      observe(view);
    for (const auto row : touched_rows()) find_match(row);
    const auto tokens = shape_.tokens(view);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = row_of_token_[t];
      confidence_[t] = row == live_sequences::none ? 0.0F : requests_[row].confidence;
      forecast_.write(t, view.layer, [&](layer_id target, std::size_t ahead, std::span<float> out) {
        write_row(row, index_of(target), priority(ahead + 1), out);
      });
    }
    return forecast_.of(tokens, confidence_);
  }
  /// Adds the request's matrix to the collection.
  void on_sequence_end(sequence_id sequence) noexcept {
    const auto row = live_.find(sequence);
    if (row == live_sequences::none) return;
    close(row);
    live_.leave(row);
  }

  /// Returns the `count` keys with the greatest mean share in the collection: candidates to fill before a request
  /// runs.
  [[nodiscard]] std::vector<expert_key> hottest(std::size_t count) const {
    return stored_.hottest(count);
  }
  [[nodiscard]] const activation_collection& collection() const noexcept { return stored_; }

  /// Merges the other's collection as activation_collection::merge does. Running requests are neither saved nor
  /// merged; they continue with the merged collection.
  validation merge(const activation_matrix& other) { return stored_.merge(other.stored_); }
  [[nodiscard]] std::vector<std::byte> save() const { return stored_.save(); }
  validation load(std::span<const std::byte> bytes) { return stored_.load(bytes); }

 private:
  /// State of a running request.
  struct request {
    std::uint64_t version = 0;  ///< version of the collection that dots_ was computed with
    std::uint64_t visit = 0;    ///< number of the visit that used it last
    std::size_t layers = 0;     ///< layers that it has visited
    std::size_t match = no_match;
    float confidence = 0;
  };
  static constexpr std::size_t no_match = std::numeric_limits<std::size_t>::max();

  activation_matrix(const geometry& shape, const config& options)
      : shape_(shape),
        layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        stored_(shape, options.stored()),
        live_(static_cast<std::size_t>(options.requests)),
        requests_(live_.rows()),
        counts_(live_.rows() * layers_ * experts_),
        dots_(live_.rows() * layers_ * stored_.places()),
        inverse_(live_.rows() * layers_),
        totals_(live_.rows() * stored_.places()),
        row_of_token_(shape.tokens_per_visit()),
        touched_(live_.rows()),
        confidence_(shape.tokens_per_visit()),
        forecast_(shape, options.depth) {}

  /// Memory in bytes of the largest of collection, running requests and forecasts: the limit applies to each part.
  /// Pre: depth <= layers. No product wraps: keys are at most 2^28, tokens 2^24, places 2^16, requests 2^12.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    const auto places = static_cast<std::uint64_t>(options.capacity) + 1;
    const auto of_request = shape.layer_count() * (8 * places + 4 * shape.expert_count());
    return std::max({activation_collection::bytes_of(shape, options.stored()),
                     static_cast<std::uint64_t>(options.requests) * of_request,
                     detail::forecast_rows::bytes_for(shape, options.depth)});
  }
  [[nodiscard]] std::span<float> counts_of(std::size_t row, std::size_t layer) noexcept {
    return std::span(counts_).subspan((row * layers_ + layer) * experts_, experts_);
  }
  /// Dot products of a request's row with each stored row, which has length 1. Shape: [places].
  [[nodiscard]] std::span<double> dots_of(std::size_t row, std::size_t layer) noexcept {
    return std::span(dots_).subspan((row * layers_ + layer) * stored_.places(), stored_.places());
  }
  /// Sums over the layers of the cosines with each stored matrix. Shape: [places].
  [[nodiscard]] std::span<double> totals_of(std::size_t row) noexcept {
    return std::span(totals_).subspan(row * stored_.places(), stored_.places());
  }
  [[nodiscard]] double& inverse_of(std::size_t row, std::size_t layer) noexcept {
    return inverse_[row * layers_ + layer];
  }
  [[nodiscard]] std::span<const std::uint32_t> touched_rows() const noexcept {
    return std::span(touched_).first(touched_count_);
  }

  /// Finds the requests of the tokens of the step that begins; starts no new request.
  void look_up(const routing_view& view) noexcept {
    ++visit_;
    touched_count_ = 0;
    for (std::size_t t = 0; t < shape_.tokens(view); ++t) {
      row_of_token_[t] = live_.find(sequence_of(view, t));
      touch(row_of_token_[t]);
    }
  }
  void observe(const routing_view& view) noexcept {
    ++visit_;
    touched_count_ = 0;
    const auto layer = index_of(view.layer);
    const auto tokens = shape_.tokens(view);
    for (std::size_t t = 0; t < tokens; ++t)
      row_of_token_[t] = live_.enter(
          sequence_of(view, t), view.step, [this](std::size_t row) { close(row); },
          [](std::size_t) {});
    // Only now: closing a request may have changed the collection.
    for (std::size_t t = 0; t < tokens; ++t) touch(row_of_token_[t]);
    for (const auto row : touched_rows()) take_out(row, layer);
    for (std::size_t t = 0; t < tokens; ++t)
      if (row_of_token_[t] != live_sequences::none)
        count(row_of_token_[t], layer, shape_.ids_of(view, t));
    for (const auto row : touched_rows()) put_in(row, layer);
  }
  void touch(std::size_t row) noexcept {
    if (row == live_sequences::none || requests_[row].visit == visit_) return;
    requests_[row].visit = visit_;
    touched_[touched_count_++] = static_cast<std::uint32_t>(row);
    refresh(row);
  }
  void count(std::size_t row, std::size_t layer, id_view<expert_id> ids) noexcept {
    const auto counts = counts_of(row, layer);
    const auto dots = dots_of(row, layer).first(stored_.size());
    for (const auto id : ids) {
      if (!shape_.is_expert(id)) continue;
      counts[index_of(id)] += 1;
      const auto* const units = stored_.units_of(layer, index_of(id)).data();
      for (std::size_t m = 0; m < dots.size(); ++m) dots[m] += double{units[m]};
    }
  }
  /// Subtracts a layer's cosines from the totals, before its counts change.
  void take_out(std::size_t row, std::size_t layer) noexcept {
    const auto inverse = inverse_of(row, layer);
    if (inverse == 0) return;
    --requests_[row].layers;
    const auto totals = totals_of(row);
    const auto dots = dots_of(row, layer);
    for (std::size_t m = 0; m < stored_.size(); ++m) totals[m] -= dots[m] * inverse;
  }
  void put_in(std::size_t row, std::size_t layer) noexcept {
    double square = 0;
    for (const auto n : counts_of(row, layer)) square += double{n} * double{n};
    const auto inverse = inverse_of(row, layer) = square > 0 ? 1 / std::sqrt(square) : 0.0;
    if (inverse == 0) return;
    ++requests_[row].layers;
    const auto totals = totals_of(row);
    const auto dots = dots_of(row, layer);
    for (std::size_t m = 0; m < stored_.size(); ++m) totals[m] += dots[m] * inverse;
  }
  /// Recomputes the dot products with matrices that changed since the request's last visit.
  void refresh(std::size_t row) noexcept {
    auto& of = requests_[row];
    if (of.version == stored_.version()) return;
    const auto totals = totals_of(row);
    for (std::size_t m = 0; m < stored_.size(); ++m) {
      if (stored_.changed_at(m) <= of.version) continue;
      totals[m] = 0;
      for (std::size_t l = 0; l < layers_; ++l) {
        if (inverse_of(row, l) == 0) continue;
        const auto* const shares = stored_.shares(m).data() + l * experts_;
        const auto counts = counts_of(row, l);
        double dot = 0;
        for (std::size_t e = 0; e < experts_; ++e) dot += double{counts[e]} * double{shares[e]};
        dots_of(row, l)[m] = dot * double{stored_.inverse_length(m, l)};
        totals[m] += dots_of(row, l)[m] * inverse_of(row, l);
      }
    }
    of.version = stored_.version();
  }

  /// Finds the most similar stored matrix; ties go to the lower place.
  void find_match(std::size_t row) noexcept {
    auto& of = requests_[row];
    of.match = no_match;
    of.confidence = 0;
    if (of.layers == 0 || stored_.size() == 0) return;
    const auto scores = totals_of(row).first(stored_.size());
    const auto best = std::ranges::max_element(scores);
    of.match = static_cast<std::size_t>(best - scores.begin());
    of.confidence =
        static_cast<float>(std::clamp(*best / static_cast<double>(of.layers), 0.0, 1.0));
  }
  [[nodiscard]] float priority(std::size_t ahead) const noexcept {
    return 1.0F - static_cast<float>(ahead) / static_cast<float>(layers_);
  }
  void write_row(std::size_t row, std::size_t target, float factor, std::span<float> out) noexcept {
    if (row != live_sequences::none && stored_.size() == 0) {
      const auto counts = counts_of(row, target);
      double sum = 0;
      for (const auto n : counts) sum += double{n};
      if (sum > 0) factor /= static_cast<float>(sum);
      return scale(counts, factor, out);
    }
    const bool matched = row != live_sequences::none && requests_[row].match != no_match;
    const auto from = matched ? stored_.shares(requests_[row].match) : stored_.mean();
    scale(from.subspan(target * experts_, experts_), factor, out);
  }
  static void scale(std::span<const float> from, float factor, std::span<float> out) noexcept {
    for (std::size_t e = 0; e < out.size(); ++e) out[e] = factor * from[e];
  }

  /// Adds the request's counts to the collection and resets its row.
  void close(std::size_t row) noexcept {
    stored_.add(std::span(counts_).subspan(row * layers_ * experts_, layers_ * experts_));
    std::fill_n(&counts_[row * layers_ * experts_], layers_ * experts_, 0.0F);
    std::fill_n(&dots_[row * layers_ * stored_.places()], layers_ * stored_.places(), 0.0);
    std::fill_n(&inverse_[row * layers_], layers_, 0.0);
    std::ranges::fill(totals_of(row), 0.0);
    requests_[row] = {};
  }

  view_tokens shape_;
  std::size_t layers_;
  std::size_t experts_;
  activation_collection stored_;
  live_sequences live_;
  std::uint64_t visit_ = 0;
  std::vector<request> requests_;
  std::vector<float> counts_;              ///< [requests, layers, experts]
  std::vector<double> dots_;               ///< [requests, layers, places]
  std::vector<double> inverse_;            ///< [requests, layers]: 1 / length of the row of counts
  std::vector<double> totals_;             ///< [requests, places]
  std::vector<std::size_t> row_of_token_;  ///< [tokens]
  /// Requests of the running visit, the first touched_count_.
  std::vector<std::uint32_t> touched_;
  std::size_t touched_count_ = 0;
  std::vector<float> confidence_;  ///< [tokens]
  detail::forecast_rows forecast_;
};

static_assert(predictor<activation_matrix>);

}  // namespace hotset
