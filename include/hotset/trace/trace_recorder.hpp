// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Records what an engine routes, in three calls that are safe on the hot path.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset {

/// Arrays to record, and the number of tokens; all memory is allocated at once.
struct trace_recorder_config {
  geometry shape{};
  std::size_t capacity = 0;  ///< tokens
  bool weights = true;
  bool logits = false;
  bool probabilities = false;  ///< kept in half precision
  bool token_ids = false;
  std::int32_t hidden_width = 0;  ///< 0: hidden states are not recorded; kept in half precision
  std::string name{};
  std::string model{};
  std::string source = "hotset recorder";

  /// Refuses sizes that a trace file cannot hold, before anything is recorded.
  [[nodiscard]] validation validate() const {
    if (auto bad = shape.validate()) return bad;
    if (shape.experts > routing_trace::max_experts_in_file)
      return refusal("experts = ", shape.experts,
                     ", accepted: 1..65535 (a trace file keeps ids in 16 bits)");
    if (capacity < 1 || capacity > (std::size_t{1} << 31U))
      return refusal("capacity = ", capacity, " tokens, accepted: 1..2147483648");
    if (hidden_width < 0 || hidden_width > (1 << 24))
      return refusal("hidden_width = ", hidden_width, ", accepted: 0..16777216");
    const auto width = static_cast<std::size_t>(hidden_width);
    if (!detail::product({capacity, shape.layer_count(), width, sizeof(std::uint16_t)}))
      return refusal("capacity x layers x hidden_width = ", capacity, " x ", shape.layers, " x ",
                     hidden_width, ", accepted: fewer than 2^62");
    return std::nullopt;
  }
};

/// Call begin_step(), record() for each layer, end_step(). Between runs call take(), or closed() and clear().
///
/// A full recorder keeps its contents: a step that does not fit is refused whole and counted.
/// Threads: compatible. Memory: capacity * layers * (4 top_k + 4 top_k if weights + 4 experts if logits + 2 experts
/// if probabilities + 2 hidden_width) bytes.
class trace_recorder {
 public:
  using config = trace_recorder_config;

  static result<trace_recorder> create(const config& c) {
    if (auto bad = c.validate()) return *std::move(bad);
    return trace_recorder(c);
  }

  /// Opens a step with `tokens` rows. sequences: one per row, or empty for 0.
  /// Errors: invalid_argument if a step is open or step does not exceed the last one;
  /// exceeds_memory if the rows do not fit; invalid_visit if sequences has another length.
  status begin_step(step_id step, request_class kind, std::size_t tokens,
                    std::span<const std::uint32_t> sequences = {}) noexcept {
    if (open_ || step > std::numeric_limits<std::uint32_t>::max() || tokens == 0 ||
        (rows_ > 0 && step <= trace_.step[rows_ - 1]))
      return status::invalid_argument;
    if (!sequences.empty() && sequences.size() != tokens) return status::invalid_visit;
    if (tokens > capacity() - rows_) {
      lost_tokens_ += tokens;
      return status::exceeds_memory;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      trace_.step[rows_ + t] = static_cast<std::uint32_t>(step);
      trace_.sequence[rows_ + t] = sequences.empty() ? 0 : sequences[t];
      trace_.kind[rows_ + t] = kind;
      if (config_.token_ids) trace_.token_ids[rows_ + t] = 0;
    }
    // A layer that the engine does not record reads as no routed ids and scores of 0.
    clear(layer_rows(rows_), layer_rows(tokens));
    open_ = true;
    step_tokens_ = tokens;
    return status::ok;
  }

  /// Stores one layer of the open step. If a layer is recorded twice, the later call counts.
  /// Ids that are no expert become -1; weights that are not finite and scores that are NaN become 0.
  /// Errors: invalid_argument if no step is open; invalid_visit if a length does not match.
  status record(const routing_view& view) noexcept {
    if (!open_) return status::invalid_argument;
    if (!lengths_agree(view, step_tokens_)) return status::invalid_visit;
    for (std::size_t t = 0; t < step_tokens_; ++t) {
      clear(at(view.layer, t), 1);
      store_row(view, t, t);
    }
    return status::ok;
  }
  /// Stores a layer that has rows for only some of the step's tokens, such as the last layer if an engine needs few
  /// tokens' output. `of`: [rows of the view] token of each row, ascending. The other tokens route nothing there.
  /// Errors: those of the other overload; invalid_visit if `of` is not ascending or names no token of the step.
  status record(const routing_view& view, std::span<const std::uint32_t> of) noexcept {
    if (!open_) return status::invalid_argument;
    const bool ascending = std::ranges::adjacent_find(of, std::greater_equal<>()) == of.end();
    if (!lengths_agree(view, of.size()) || !ascending || (!of.empty() && of.back() >= step_tokens_))
      return status::invalid_visit;
    for (std::size_t t = 0; t < step_tokens_; ++t) clear(at(view.layer, t), 1);
    for (std::size_t row = 0; row < of.size(); ++row) store_row(view, row, of[row]);
    return status::ok;
  }

  /// Closes the step and keeps it. Errors: invalid_argument if no step is open.
  status end_step() noexcept {
    if (!open_) return status::invalid_argument;
    open_ = false;
    rows_ += step_tokens_;
    return status::ok;
  }

  [[nodiscard]] std::size_t tokens() const noexcept { return rows_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return config_.capacity; }
  /// Tokens of steps that did not fit.
  [[nodiscard]] std::uint64_t lost_tokens() const noexcept { return lost_tokens_; }

  /// Returns a copy of the closed steps. Not for the hot path.
  [[nodiscard]] routing_trace closed() const {
    const auto copy = [](const auto& values, std::size_t size) {
      using held = std::remove_cvref_t<decltype(values)>;
      const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), size));
      return held(values.begin(), end);
    };
    const auto rows = layer_rows(rows_);
    const auto ranked = rows * config_.shape.ranks();
    const auto scored = rows * config_.shape.expert_count();
    auto out = described();
    out.step = copy(trace_.step, rows_);
    out.sequence = copy(trace_.sequence, rows_);
    out.kind = copy(trace_.kind, rows_);
    out.token_ids = copy(trace_.token_ids, rows_);
    out.ids = copy(trace_.ids, ranked);
    out.weights = copy(trace_.weights, ranked);
    out.logits = copy(trace_.logits, scored);
    if (config_.probabilities) out.probabilities = half_array(copy(probabilities_, scored));
    if (config_.hidden_width > 0) out.hidden = half_array(copy(hidden_, rows * hidden_width()));
    return out;
  }
  /// Discards the closed steps and an open one.
  void clear() noexcept {
    rows_ = 0;
    open_ = false;
  }
  /// Returns the closed steps and starts empty; an open step is dropped. Not for the hot path.
  [[nodiscard]] routing_trace take() {
    auto out = closed();
    clear();
    return out;
  }

 private:
  explicit trace_recorder(const config& c) : config_(c), trace_(described()) { allocate(); }
  [[nodiscard]] std::size_t hidden_width() const noexcept {
    return static_cast<std::size_t>(config_.hidden_width);
  }
  [[nodiscard]] std::size_t layer_rows(std::size_t tokens) const noexcept {
    return tokens * config_.shape.layer_count();
  }

  /// Returns a trace without tokens that has the recorder's name, model, source and shape.
  [[nodiscard]] routing_trace described() const {
    const auto& shape = config_.shape;
    routing_trace out;
    out.name = config_.name;
    out.model = config_.model;
    out.source = config_.source;
    out.layers = shape.layers;
    out.experts = shape.experts;
    out.top_k = shape.top_k;
    out.expert_bytes = shape.expert_bytes;
    out.hidden_width = config_.hidden_width;
    return out;
  }
  void allocate() {
    const auto& shape = config_.shape;
    trace_.step.resize(capacity());
    trace_.sequence.resize(capacity());
    trace_.kind.resize(capacity());
    trace_.token_ids.resize(config_.token_ids ? capacity() : 0);
    const auto rows = layer_rows(capacity());
    trace_.ids.resize(rows * shape.ranks());
    trace_.weights.resize(config_.weights ? rows * shape.ranks() : 0);
    trace_.logits.resize(config_.logits ? rows * shape.expert_count() : 0);
    probabilities_.assign(config_.probabilities ? rows * shape.expert_count() : 0, 0);
    hidden_.assign(rows * hidden_width(), 0);
  }

  void clear(std::size_t first, std::size_t rows) noexcept {
    const auto clear = [&](auto& values, std::size_t columns, auto value) {
      if (!values.empty())
        std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(first * columns), rows * columns,
                    value);
    };
    clear(trace_.ids, config_.shape.ranks(), no_expert);
    clear(trace_.weights, config_.shape.ranks(), 0.0F);
    clear(trace_.logits, config_.shape.expert_count(), 0.0F);
    clear(probabilities_, config_.shape.expert_count(), std::uint16_t{0});
    clear(hidden_, hidden_width(), std::uint16_t{0});
  }

  [[nodiscard]] bool lengths_agree(const routing_view& view, std::size_t rows) const noexcept {
    const auto fits = [&](std::size_t size, std::size_t columns) {
      return size == 0 || size == rows * columns;
    };
    return is_within(view.layer, config_.shape.layers) &&
           view.experts.size() == rows * config_.shape.ranks() &&
           fits(view.weights.size(), config_.shape.ranks()) &&
           fits(view.logits.size(), config_.shape.expert_count()) &&
           fits(view.probabilities.size(), config_.shape.expert_count()) &&
           fits(view.token_ids.size(), 1) &&
           (hidden_width() == 0 || fits(view.hidden.size(), hidden_width()));
  }

  /// Copies a row of the view to a token of the step.
  void store_row(const routing_view& view, std::size_t row, std::size_t token) noexcept {
    if (config_.token_ids && !view.token_ids.empty())
      trace_.token_ids[rows_ + token] = view.token_ids[row];
    store_ids(view, row, token);
    const auto store = [&](std::span<const float> values, auto& target, std::size_t columns) {
      if (values.empty() || target.empty()) return;
      store_scores(values.subspan(row * columns, columns), target, at(view.layer, token) * columns);
    };
    store(view.weights, trace_.weights, config_.shape.ranks());
    store(view.logits, trace_.logits, config_.shape.expert_count());
    store(view.probabilities, probabilities_, config_.shape.expert_count());
    store(view.hidden, hidden_, hidden_width());
  }
  /// Position of a token of the open step among the rows of all layers.
  [[nodiscard]] std::size_t at(layer_id layer, std::size_t token) const noexcept {
    return layer_rows(rows_ + token) + index_of(layer);
  }
  void store_ids(const routing_view& view, std::size_t row, std::size_t token) noexcept {
    const auto k = config_.shape.ranks();
    auto* const out = trace_.ids.data() + at(view.layer, token) * k;
    for (std::size_t i = 0; i < k; ++i) {
      const auto id = view.experts[row * k + i];
      out[i] = is_within(id, trace_.experts) ? id : no_expert;
    }
  }
  template <class Stored>
  void store_scores(std::span<const float> values, std::vector<Stored>& target,
                    std::size_t to) noexcept {
    const bool infinity_is_meant = static_cast<const void*>(&target) != &trace_.weights;
    for (float value : values) {
      if (std::isnan(value) || (!infinity_is_meant && std::isinf(value))) value = 0;
      if constexpr (sizeof(Stored) == sizeof(float))
        target[to++] = value;
      else
        target[to++] = float_to_half(value);
    }
  }

  config config_;
  routing_trace trace_;
  std::vector<std::uint16_t> probabilities_;
  std::vector<std::uint16_t> hidden_;
  std::size_t rows_ = 0;         ///< rows of closed steps
  std::size_t step_tokens_ = 0;  ///< tokens of the open step
  bool open_ = false;
  std::uint64_t lost_tokens_ = 0;
};

}  // namespace hotset
