// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads tokens and sequences from a routing view, checks its arrays, and detects new requests.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// For predictors that follow requests through steps, including views that open a step.
class view_tokens {
 public:
  /// Pre: shape.validate() returns no error.
  explicit view_tokens(const geometry& shape) noexcept
      : layers_(shape.layers),
        experts_(shape.experts),
        top_k_(shape.ranks()),
        most_tokens_(shape.tokens_per_visit()) {}

  /// Whether an id is an expert's.
  [[nodiscard]] bool is_expert(expert_id id) const noexcept { return id >= 0 && id < experts_; }

  /// Number of tokens of a view. A view that opens a step and names neither ids nor sequences has one token.
  [[nodiscard]] std::size_t tokens(const routing_view& view) const noexcept {
    // Most views have one token: a test is cheaper than a division.
    if (view.layer != before_layers)
      return view.experts.size() == top_k_ ? 1 : view.experts.size() / top_k_;
    if (!view.sequences.empty()) return view.sequences.size();
    return view.token_ids.empty() ? 1 : view.token_ids.size();
  }
  /// Errors: invalid_visit (no such layer, ids that are no whole number of tokens, not exactly one sequence or id per
  /// token), visit_too_large.
  [[nodiscard]] status check(const routing_view& view) const noexcept {
    if (view.layer < before_layers || view.layer >= layers_) return status::invalid_visit;
    const auto count = tokens(view);
    if (view.layer != before_layers && view.experts.size() != count * top_k_)
      return status::invalid_visit;
    if (count > most_tokens_) return status::visit_too_large;
    const auto fits = [count](std::size_t size) { return size == 0 || size == count; };
    return fits(view.sequences.size()) && fits(view.token_ids.size()) ? status::ok
                                                                      : status::invalid_visit;
  }
  /// The router's choice for one token. Pre: check(view) is ok, the view opens no step, token < tokens(view).
  [[nodiscard]] id_view<expert_id> ids_of(const routing_view& view,
                                          std::size_t token) const noexcept {
    return view.chosen().subspan(token * top_k_, top_k_);
  }

 private:
  std::int32_t layers_;
  std::int32_t experts_;
  std::size_t top_k_;
  std::size_t most_tokens_;
};

/// The sequence of a token; 0 if the view names no sequences.
[[nodiscard]] inline sequence_id sequence_of(const routing_view& view, std::size_t token) noexcept {
  return view.sequences.empty() ? 0 : view.sequences[token];
}

/// Detects when requests begin, for predictors of a single request. Nothing allocates after construction.
class request_starts {
 public:
  explicit request_starts(const geometry& shape) { running_.reserve(shape.tokens_per_visit()); }

  /// Returns true for a step's first view if none of its sequences ran in the previous step. Views that name no
  /// sequences all belong to one. Complexity: O(tokens^2) once per step, O(1) for its other views.
  [[nodiscard]] bool begins(const routing_view& view) noexcept {
    if (view.step == step_) return false;
    step_ = view.step;
    const auto named = view.sequences.first(std::min(view.sequences.size(), running_.capacity()));
    const auto runs = [&](sequence_id s) {
      return std::ranges::find(running_, s) != running_.end();
    };
    const bool first =
        named.empty() ? !running_.empty() || !seen_ : std::ranges::none_of(named, runs);
    running_.assign(named.begin(), named.end());
    seen_ = true;
    return first;
  }

 private:
  step_id step_ = std::numeric_limits<step_id>::max();
  bool seen_ = false;
  std::vector<sequence_id> running_;  // sequences of the last step, one per token
};

}  // namespace hotset
