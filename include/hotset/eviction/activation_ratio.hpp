// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert with the smallest share of its layer's activations in the running request.
///
/// Rule: order by ratio(e), then recency position. ratio(e) is e's share of the ids that a request was routed to in
///   e's layer, averaged over the requests in the visit. A request's counts begin at 0, and 0 / 0 is 0, so that
///   recency decides while nothing is known. A visit counts from its commit on.
/// Source: MoE-Infinity, the system as fMoE describes it; its public code evicts by LFU.
/// Deviations: counts are kept for `requests` requests; the least recently used request is forgotten and begins anew.
///   A policy is not notified when a request ends: if its number comes back, its counts go on. The mean is over
///   requests, not over tokens.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids) per visit, O(keys) if a request takes another's place. A choice costs O(R requests of the visit) for
///   each layer visited since the last choice, or for all layers if the visit is of other requests. A victim costs
///   O(R + L). R is the residents of a layer. Memory: 8 bytes x requests x keys.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/eviction/order/layer_tournament.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/view_tokens.hpp"

namespace hotset {

/// A visit without sequences belongs to request 0.
class activation_ratio {
 public:
  struct config {
    std::int32_t requests = 32;  ///< requests whose counts are kept

    /// Parameters by name, as in `activation_ratio:requests=64`.
    template <class From>
    static config read(From& from) {
      return {.requests = from.number("requests", config{}.requests)};
    }
    [[nodiscard]] validation validate() const {
      return detail::within("activation_ratio requests", requests, 1, live_sequences::most_rows);
    }
    /// Also refuses a shape whose counts exceed most_bytes.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      // No product wraps: keys are at most 2^28, layers at most as many, requests at most 2^12.
      const auto of_request =
          8 * (static_cast<std::uint64_t>(shape.keys()) + static_cast<std::uint64_t>(shape.layers));
      const auto bytes = static_cast<std::uint64_t>(requests) * of_request;
      if (bytes > most_bytes)
        return refusal("activation_ratio requests = ", requests, " of ", shape.layers, " layers x ",
                       shape.experts, " experts needs ", bytes, " bytes, accepted: at most ",
                       most_bytes);
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "activation_ratio";
  static constexpr eviction_traits traits{.wants_routes = true};
  /// Most bytes for the counts of all requests.
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34U;

  /// Pre: options.validate(layout.shape()) returns no error.
  activation_ratio(const pool_layout& layout, const config& options)
      : tokens_(layout.shape()),
        layers_(layout.shape().layer_count()),
        experts_(layout.shape().expert_count()),
        top_k_(layout.shape().ranks()),
        live_(static_cast<std::size_t>(options.requests)),
        counts_(live_.rows() * layers_ * experts_, 0),
        totals_(live_.rows() * layers_, 0),
        residents_(layout) {
    const auto most_tokens = layout.shape().tokens_per_visit();
    asking_.reserve(live_.rows());
    scored_for_.reserve(live_.rows());
    planned_ids_.reserve(most_tokens * top_k_);
    planned_of_.reserve(most_tokens);
  }

  /// Kept until the visit is committed, because its victims depend on earlier visits only. Its requests take effect
  /// at once.
  void on_routed(const routing_view& view) noexcept {
    planned_ids_.clear();
    planned_of_.clear();
    asking_.clear();
    if (tokens_.check(view) != status::ok || view.chosen().size() != view.experts.size()) return;
    for (std::size_t t = 0; t < tokens_.tokens(view); ++t)
      ask_for(live_.find(sequence_of(view, t)));
    if (view.layer == before_layers) return;
    planned_ids_.assign(view.chosen().begin(), view.chosen().end());
    for (std::size_t t = 0; t < tokens_.tokens(view); ++t)
      planned_of_.push_back(sequence_of(view, t));
  }
  void on_visit(const visit_event& e) noexcept {
    if (e.begins) count_planned(e.context.step, e.context.layer);
    residents_.bring(e.fills);
    residents_.use(e.used);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    residents_.fill(e.slot, e.key, e.precision);
  }
  void on_evict(slot_id slot, expert_key) noexcept { residents_.vacate(slot); }
  void on_move(slot_id from, slot_id to) noexcept { residents_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (asking_ != scored_for_) {
      scored_for_.assign(asking_.begin(), asking_.end());
      residents_.rescore_all();
    }
    return residents_.select(context.pool, eligible, out, scores{*this});
  }

 private:
  struct scores {
    const activation_ratio& of;

    /// Writes sums instead of means: the order is the same, because all have the same number of requests. Adds in the
    /// order of the requests.
    void write(const layer_residents& residents, std::span<double> to) const noexcept {
      std::ranges::fill(to, 0.0);
      for (const auto row : of.asking_) {
        const auto at = of.place(row, residents.layer);
        if (of.totals_[at] == 0) continue;
        const auto total = static_cast<double>(of.totals_[at]);
        const auto* const counts = &of.counts_[at * of.experts_];
        for (std::size_t i = 0; i < to.size(); ++i)
          to[i] += static_cast<double>(counts[index_of(residents.experts[i])]) / total;
      }
    }
  };

  [[nodiscard]] std::size_t place(std::size_t row, layer_id layer) const noexcept {
    return row * layers_ + index_of(layer);
  }
  /// Skips a request without a row: it has activated nothing.
  void ask_for(std::size_t row) noexcept {
    if (row != live_sequences::none && std::ranges::find(asking_, row) == asking_.end())
      asking_.push_back(row);
  }
  void count_planned(step_id step, layer_id layer) noexcept {
    if (planned_of_.empty()) return;
    asking_.clear();
    for (std::size_t t = 0; t < planned_of_.size(); ++t) {
      const auto row = live_.enter(
          planned_of_[t], step, [this](std::size_t old) { forget(old); }, [](std::size_t) {});
      if (row == live_sequences::none) continue;
      ask_for(row);
      count(row, layer, std::span(planned_ids_).subspan(t * top_k_, top_k_));
    }
    residents_.rescore(layer);
    planned_ids_.clear();
    planned_of_.clear();  // later groups of the visit add nothing
  }
  void count(std::size_t row, layer_id layer, id_view<expert_id> ids) noexcept {
    const auto at = place(row, layer);
    for (const auto id : ids) {
      if (id < 0 || index_of(id) >= experts_) continue;
      ++counts_[at * experts_ + index_of(id)];
      ++totals_[at];
    }
  }
  void forget(std::size_t row) noexcept {
    std::fill_n(&counts_[row * layers_ * experts_], layers_ * experts_, 0U);
    std::fill_n(&totals_[row * layers_], layers_, 0U);
    residents_.rescore_all();
  }

  view_tokens tokens_;
  std::size_t layers_;
  std::size_t experts_;
  std::size_t top_k_;
  live_sequences live_;
  std::vector<std::uint64_t> counts_;    // [requests, layers, experts]
  std::vector<std::uint64_t> totals_;    // [requests, layers] sums of counts_
  std::vector<std::size_t> asking_;      // rows of the last visit's requests, by first token
  std::vector<std::size_t> scored_for_;  // rows that the scores are computed from, in that order
  std::vector<expert_id> planned_ids_;   // [tokens, top_k] of the planned visit
  std::vector<sequence_id> planned_of_;  // [tokens]
  layer_tournament residents_;
};

static_assert(is_eviction_policy<activation_ratio>());

}  // namespace hotset
