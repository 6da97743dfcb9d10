// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The visits of a trace in execution order, laid out for replay: one flat array, read front to back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset {

/// One layer of one step: `count` routed ids from `offset` on, token-major in rank order.
struct visit {
  std::uint64_t offset = 0;
  std::uint32_t step = 0;  ///< renumbered: 0, 1, 2, ...
  layer_id layer{};
  std::uint32_t count = 0;      ///< tokens * top_k, absent ids included
  std::uint32_t first_row = 0;  ///< row of the trace where the visit's tokens begin
  request_class kind = request_class::decode;
  std::uint32_t rows = 0;  ///< the visit's tokens
};

/// How a trace is cut into visits.
struct visit_options {
  /// Makes each routed id a visit of its own (only for comparison with literature).
  bool per_access = false;
  std::uint32_t max_tokens = 0;  ///< a larger step becomes several steps; 0: no limit
};

/// Immutable. Threads: const use is safe. Memory: 4 bytes per routed id, 4 more with weights, 32 per visit.
///
/// Order: by step, then by layer. A visit without a valid id is left out. Steps are renumbered from 0 without gaps. A
/// step whose rows differ in kind is prefill if any row is, else verify if any is. With max_tokens, each part of a
/// step passes all layers before the next part and counts as a step of its own, as in chunked prefill.
class visit_sequence {
 public:
  visit_sequence() = default;
#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config if the trace is not valid.
  explicit visit_sequence(const routing_trace& trace, const visit_options& options = {})
      : visit_sequence(create(trace, options).value()) {}
#endif
  /// Returns the visits, or why the trace cannot be replayed. Complexity: O(T L K).
  static result<visit_sequence> create(const routing_trace& trace,
                                       const visit_options& options = {}) {
    if (auto bad = trace.validate()) return *std::move(bad);
    visit_sequence out;
    out.build(trace, options);
    if (out.visits_.empty())
      return error{"the trace routes no expert at all, accepted: 1 or more valid ids"};
    if (auto bad = out.shape_.validate()) return *std::move(bad);
    if (std::int64_t{out.shape_.max_tokens_per_visit} * out.shape_.top_k > std::int64_t{UINT32_MAX})
      return error{"a visit routes 2^32 ids or more, accepted: set max_tokens"};
    return out;
  }

  /// Number of visits.
  [[nodiscard]] std::size_t size() const noexcept { return visits_.size(); }
  [[nodiscard]] bool empty() const noexcept { return visits_.empty(); }
  /// Pre: i < size().
  [[nodiscard]] const visit& at(std::size_t i) const noexcept { return visits_[i]; }
  [[nodiscard]] std::span<const visit> visits() const noexcept { return visits_; }
  /// Visit i with ids and weights; ordinal = i. Pre: i < size().
  [[nodiscard]] routing_view operator[](std::size_t i) const noexcept {
    const visit& v = visits_[i];
    // Names every member: g++ would clear the rest with `rep stos`, which is slow.
    return {.layer = v.layer,
            .step = v.step,
            .kind = v.kind,
            .experts = std::span(ids_).subspan(v.offset, v.count),
            .weights = {weights_.data() + (weights_.empty() ? 0 : v.offset),
                        weights_.empty() ? 0 : std::size_t{v.count}},
            .logits = {},
            .probabilities = {},
            .hidden = {},
            .ordinal = i,
            .router_choice = {},
            .token_ids = {},
            .sequences = {sequences_.data() + v.first_row, v.rows}};
  }

  /// The model's shape. top_k is 1 if per_access(); max_tokens_per_visit is that of the largest visit.
  [[nodiscard]] const geometry& shape() const noexcept { return shape_; }
  [[nodiscard]] bool per_access() const noexcept { return per_access_; }
  [[nodiscard]] std::uint32_t steps() const noexcept { return steps_; }
  /// Tokens of the trace.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// Distinct experts, summed over the visits.
  [[nodiscard]] std::uint64_t accesses() const noexcept { return accesses_; }
  /// Valid routed ids, repetitions counted.
  [[nodiscard]] std::uint64_t routed() const noexcept { return routed_; }
  /// Most distinct experts of one visit.
  [[nodiscard]] std::uint32_t widest_union() const noexcept { return widest_union_; }

 private:
  void build(const routing_trace& trace, const visit_options& options) {
    per_access_ = options.per_access;
    tokens_ = trace.tokens();
    sequences_.assign(trace.sequence.begin(), trace.sequence.end());
    shape_ = trace.shape();
    if (per_access_) shape_.top_k = 1;
    last_visit_.assign(static_cast<std::size_t>(trace.experts), 0);
    ids_.reserve(trace.ids.size());
    if (!trace.weights.empty()) weights_.reserve(trace.weights.size());
    if (!per_access_) visits_.reserve(passes(trace, options) * shape_.layer_count());
    for (std::size_t first = 0; first < trace.tokens(); first = pass_end(trace, options, first))
      add_pass(trace, first, pass_end(trace, options, first));
    last_visit_ = {};
  }

  static std::size_t pass_end(const routing_trace& trace, const visit_options& options,
                              std::size_t first) noexcept {
    std::size_t end = first + 1;
    while (end < trace.tokens() && trace.step[end] == trace.step[first] &&
           (options.max_tokens == 0 || end - first < options.max_tokens))
      ++end;
    return end;
  }

  static std::size_t passes(const routing_trace& trace, const visit_options& options) noexcept {
    std::size_t count = 0;
    for (std::size_t first = 0; first < trace.tokens(); first = pass_end(trace, options, first))
      ++count;
    return count;
  }

  static request_class kind_of(const routing_trace& trace, std::size_t first, std::size_t end) {
    auto kind = request_class::decode;
    for (std::size_t t = first; t < end; ++t) {
      if (trace.kind[t] == request_class::prefill) return request_class::prefill;
      if (trace.kind[t] == request_class::verify) kind = request_class::verify;
    }
    return kind;
  }

  void add_pass(const routing_trace& trace, std::size_t first, std::size_t end) {
    const auto kind = kind_of(trace, first, end);
    for (const auto layer : each<layer_id>(trace.layers)) {
      visit v{ids_.size(), steps_, layer, 0, static_cast<std::uint32_t>(first), kind};
      per_access_ ? add_accesses(trace, v, end) : add_visit(trace, v, end);
    }
    ++steps_;
  }

  void add_visit(const routing_trace& trace, visit v, std::size_t end) {
    for (std::size_t t = v.first_row; t < end; ++t) {
      const auto ids = trace.ids_of(t, v.layer);
      const auto weights = trace.weights_of(t, v.layer);
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      weights_.insert(weights_.end(), weights.begin(), weights.end());
    }
    if (count_union(v.offset) == 0) {
      ids_.resize(v.offset);
      weights_.resize(std::min<std::size_t>(weights_.size(), v.offset));
      return;
    }
    push(v, static_cast<std::int32_t>(end - v.first_row));
  }

  void add_accesses(const routing_trace& trace, visit v, std::size_t end) {
    for (std::size_t t = v.first_row; t < end; ++t) {
      const auto ids = trace.ids_of(t, v.layer);
      const auto weights = trace.weights_of(t, v.layer);
      v.first_row = static_cast<std::uint32_t>(t);
      for (std::size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] < 0) continue;
        v.offset = ids_.size();
        ids_.push_back(ids[k]);
        if (!weights.empty()) weights_.push_back(weights[k]);
        count_union(v.offset);
        push(v, 1);
      }
    }
  }

  /// Returns the number of distinct valid ids from offset to the end of ids_, and adds them to the totals.
  std::uint32_t count_union(std::uint64_t offset) {
    const auto stamp = ++stamp_;
    std::uint32_t distinct = 0;
    for (auto i = static_cast<std::size_t>(offset); i < ids_.size(); ++i) {
      if (ids_[i] < 0) continue;
      ++routed_;
      auto& last = last_visit_[ids_[i]];
      distinct += last != stamp ? 1U : 0U;
      last = stamp;
    }
    accesses_ += distinct;
    widest_union_ = std::max(widest_union_, distinct);
    return distinct;
  }

  void push(visit v, std::int32_t rows) {
    v.count = static_cast<std::uint32_t>(ids_.size() - v.offset);
    v.rows = static_cast<std::uint32_t>(rows);
    shape_.max_tokens_per_visit = std::max(shape_.max_tokens_per_visit, rows);
    visits_.push_back(v);
  }

  std::vector<visit> visits_;
  std::vector<expert_id> ids_;
  std::vector<float> weights_;
  std::vector<sequence_id> sequences_;  // [tokens]
  geometry shape_{};
  bool per_access_ = false;
  std::uint32_t steps_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t accesses_ = 0;
  std::uint64_t routed_ = 0;
  std::uint32_t widest_union_ = 0;
  per_expert<std::uint64_t> last_visit_;  ///< [expert] last visit that used it, while building
  std::uint64_t stamp_ = 0;
};

}  // namespace hotset
