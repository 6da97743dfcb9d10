// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes routing traces from a seed: skewed, sticky, with phases or diffusion steps; equal on every machine.
///
/// All randomness is integer arithmetic: splitmix64, cumulative tables in fixed point, rejection instead of rounding.
/// The popularity 1 / rank^s is computed bit by bit from integers, because pow and log differ between C libraries and
/// compilers may fuse a * b + c. Router scores are integers, too, until a last division or product.
/// Either the routing is drawn and scores are made to fit it, or (autoregression) logits are drawn and decide the
/// routing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/synthetic/autoregressive_logits.hpp"
#include "lab/traces/synthetic/integer_math.hpp"
#include "lab/traces/synthetic/noisy_predictions.hpp"
#include "lab/traces/synthetic/score_rows.hpp"
#include "lab/traces/synthetic/synthetic_config.hpp"
#include "lab/traces/synthetic/synthetic_scores.hpp"

namespace hotset {

/// Called with the numbers of tokens done and in total.
using synthetic_progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

namespace detail {

/// cumulative[r] = sum of the popularities of ranks 0..r. Pre: 0 <= exponent <= 8.
[[nodiscard]] inline std::vector<std::uint64_t> zipf_table(std::size_t ranks, double exponent) {
  const auto s = static_cast<std::uint64_t>(exponent * 65536.0);  // exact product, then truncated
  std::vector<std::uint64_t> cumulative(ranks);
  std::uint64_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    total += exp2_minus_q40((s * log2_q30(r + 1)) >> 16U);
    cumulative[r] = total;
  }
  return cumulative;
}

/// The current token's place for its router.
struct synthetic_place {
  std::size_t token = 0;
  layer_id layer{};
  bool follows = false;        ///< the previous token is of the same sequence
  bool again = false;          ///< the position was routed in the previous step
  id_view<expert_id> popular;  ///< all experts of the layer, most popular first
};

/// Draws experts by popularity and repeats some; scores are made to fit.
class popularity_router {
 public:
  explicit popularity_router(const synthetic_config& config)
      : config_(config),
        random_(config.seed),
        table_(zipf_table(static_cast<std::size_t>(config.experts), config.zipf)),
        threshold_(chance_q53(config.stickiness)),
        keep_random_(splitmix64(~config.seed).next() ^ 2U),
        keep_threshold_(chance_q53(config.position_stickiness)),
        row_of_(static_cast<std::size_t>(config.experts)),
        scores_(config) {}

  /// Appends the ids of a row, and its weights and scores if requested.
  void route(routing_trace& trace, const synthetic_place& place, score_rows& rows) {
    if (place.again && keeps())
      repeat(trace, place);
    else
      choose(trace, place);
    if (config_.weights) weigh(trace);
    if (config_.scores) score(trace, place, rows);
  }
  [[nodiscard]] static std::string logits() { return "logarithms of the probabilities"; }

 private:
  /// Uses its own random stream.
  bool keeps() { return keep_threshold_ > 0 && (keep_random_.next() >> 11U) < keep_threshold_; }

  void repeat(routing_trace& trace, const synthetic_place& place) const {
    const auto before = trace.index(place.token - config_.positions, place.layer);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(config_.top_k); ++rank)
      trace.ids.push_back(trace.ids[before + rank]);
  }

  void choose(routing_trace& trace, const synthetic_place& place) {
    ++row_;
    unchecked_ = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(config_.top_k); ++rank) {
      expert_id chosen = no_expert;
      if ((random_.next() >> 11U) < threshold_ && place.follows)
        chosen = trace.ids[trace.index(place.token - 1, place.layer) + rank];
      if (chosen == no_expert || taken(chosen)) chosen = draw(place.popular);
      row_of_[chosen] = row_;
      trace.ids.push_back(chosen);
    }
  }

  [[nodiscard]] bool taken(expert_id id) const { return row_of_[id] == row_; }

  /// Draws by popularity without repetition; after 64 repetitions takes the most popular unused expert.
  expert_id draw(id_view<expert_id> popular) {
    for (int attempt = 0; attempt < 64; ++attempt) {
      const auto at = std::upper_bound(table_.begin(), table_.end(), random_.below(table_.back()));
      const auto id = popular[static_cast<std::size_t>(at - table_.begin())];
      if (!taken(id)) return id;
    }
    while (taken(popular[unchecked_])) ++unchecked_;
    return popular[unchecked_];
  }

  /// Draws one gate for each rank, descending. Returns their sum.
  std::uint64_t draw_gates(splitmix64& random) {
    draws_.resize(static_cast<std::size_t>(config_.top_k));
    std::uint64_t total = 0;
    for (auto& d : draws_) {
      d = (random.next() >> 32U) + 1;
      total += d;
    }
    std::sort(draws_.begin(), draws_.end(), [](auto a, auto b) { return a > b; });
    return total;
  }

  /// Gate weights of one token in one layer: descending, their sum 1 up to rounding.
  void weigh(routing_trace& trace) {
    const auto total = draw_gates(random_);
    for (const auto d : draws_) trace.weights.push_back(share_of(d, total));
  }

  /// Uses the trace's gate weights, if it has them.
  void score(const routing_trace& trace, const synthetic_place& place, score_rows& rows) {
    if (!config_.weights) draw_gates(scores_.random());
    scores_.add_layer(trace.ids_of(place.token, place.layer), draws_, place.popular, table_, rows);
  }

  synthetic_config config_;
  splitmix64 random_;
  std::vector<std::uint64_t> table_;
  std::uint64_t threshold_;
  splitmix64 keep_random_;
  std::uint64_t keep_threshold_;
  std::vector<std::uint64_t> draws_;
  std::uint64_t row_ = 0;             ///< counts rows: one token in one layer
  per_expert<std::uint64_t> row_of_;  ///< [E] last row that used the expert
  std::size_t unchecked_ = 0;         ///< all more popular experts are used in this row
  synthetic_scores scores_;
};

/// Routes to the greatest autoregressive logits, ties to the lower id. Gate weights are their softmax.
class logit_router {
 public:
  explicit logit_router(const synthetic_config& config)
      : config_(config),
        process_(config),
        order_(each<expert_id>(config.experts).begin(), each<expert_id>(config.experts).end()),
        routed_(static_cast<std::size_t>(config.top_k)),
        masses_(order_.size()) {}

  /// Appends a row, as popularity_router::route does.
  void route(routing_trace& trace, const synthetic_place& place, score_rows& rows) {
    const auto logits = process_.next(index_of(place.layer), place.popular, place.follows);
    const auto ids = choose(logits);
    trace.ids.insert(trace.ids.end(), ids.begin(), ids.end());
    if (config_.weights) weigh(trace, logits, ids);
    if (!config_.scores) return;
    const auto total = softmax_masses(logits, masses_);
    rows.add(ids, logits, masses_, total);
  }
  [[nodiscard]] std::string logits() const {
    return "autoregressive; correlation " + shortest(*config_.autoregression);
  }

 private:
  id_view<expert_id> choose(std::span<const std::int64_t> logits) {
    const auto before = [&](expert_id a, expert_id b) {
      const auto of_a = logits[index_of(a)];
      const auto of_b = logits[index_of(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    };
    std::partial_sort(order_.begin(), order_.begin() + config_.top_k, order_.end(), before);
    return std::span(order_).first(routed_.size());
  }

  void weigh(routing_trace& trace, std::span<const std::int64_t> logits, id_view<expert_id> ids) {
    for (std::size_t rank = 0; rank < ids.size(); ++rank)
      routed_[rank] = logits[index_of(ids[rank])];
    const auto masses = std::span(masses_).first(ids.size());
    const auto total = softmax_masses(routed_, masses);
    for (const auto mass : masses) trace.weights.push_back(share_of(mass, total));
  }

  synthetic_config config_;
  autoregressive_logits process_;
  std::vector<expert_id> order_;       // [E], routed experts first
  std::vector<std::int64_t> routed_;   // [K] logits
  std::vector<std::uint64_t> masses_;  // [E]
};

/// State of one generation; a token passes all layers before the next token.
template <class Router>
class synthetic_generator {
 public:
  explicit synthetic_generator(const synthetic_config& config)
      : config_(config),
        popular_(static_cast<std::size_t>(config.layers)),
        router_(config),
        rows_(config) {}

  [[nodiscard]] routing_trace run(const synthetic_progress& progress) {
    const auto total = std::uint64_t{config_.sequences} *
                       (config_.prefill + std::uint64_t{config_.tokens} * config_.positions);
    trace_.name = "synthetic";
    trace_.source = "hotset synthetic, seed " + std::to_string(config_.seed);
    trace_.layers = config_.layers;
    trace_.experts = config_.experts;
    trace_.top_k = config_.top_k;
    trace_.expert_bytes = {config_.expert_bytes};
    for (std::uint32_t s = 0; s < config_.sequences; ++s) {
      for (std::uint32_t t = 0; t < config_.prefill; ++t) {
        if (progress) progress(trace_.tokens(), total);
        add_token(s, request_class::prefill, false);
      }
      if (config_.prefill > 0) ++step_;
      for (std::uint32_t t = 0; t < config_.tokens; ++t, ++step_)
        for (std::uint32_t p = 0; p < config_.positions; ++p) {
          if (progress) progress(trace_.tokens(), total);
          add_token(s, request_class::decode, t > 0);
        }
    }
    if (config_.scores) rows_.move_into(trace_, router_.logits());
    return std::move(trace_);
  }

 private:
  /// `again`: the position was routed in the previous step.
  void add_token(std::uint32_t sequence, request_class kind, bool again) {
    const auto token = trace_.tokens();
    const bool shift = config_.phase_length > 0 && token % config_.phase_length == 0;
    if (token == 0 || shift) shuffle(config_.phase_length > 0 ? token / config_.phase_length : 0);
    const bool follows = token > 0 && trace_.sequence[token - 1] == sequence;
    trace_.step.push_back(step_);
    trace_.sequence.push_back(sequence);
    trace_.kind.push_back(kind);
    for (const auto layer : each<layer_id>(config_.layers))
      router_.route(trace_, {token, layer, follows, again, popular_[layer]}, rows_);
    if (config_.scores) rows_.end_token();
  }

  /// Shuffles the popularity of every layer; depends only on seed, layer and phase.
  void shuffle(std::uint64_t phase) {
    for (const auto layer : popular_.ids()) {
      splitmix64 random(splitmix64(config_.seed ^ (phase << 32U)).next() ^ index_of(layer));
      auto& order = popular_[layer];
      const auto all = each<expert_id>(config_.experts);
      order.assign(all.begin(), all.end());
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random.below(i)]);
    }
  }

  synthetic_config config_;
  per_layer<std::vector<expert_id>> popular_;  ///< [L][E], most popular first
  Router router_;
  score_rows rows_;
  routing_trace trace_;
  std::uint32_t step_ = 0;
};

}  // namespace detail

/// Returns the trace, or the reason why the configuration is refused. Complexity: O(T L K log E + L E), and with
/// scores O(T L E log E); with autoregression O(T L E log K). `progress` is called before every token.
[[nodiscard]] inline result<routing_trace> synthetic_trace(
    const synthetic_config& config, const synthetic_progress& progress = {}) {
  if (auto bad = config.validate()) return *std::move(bad);
  if (config.autoregression)
    return detail::synthetic_generator<detail::logit_router>(config).run(progress);
  return detail::synthetic_generator<detail::popularity_router>(config).run(progress);
}

}  // namespace hotset
