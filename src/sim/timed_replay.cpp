// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/timed_replay.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "hotset/residency/unique_ids.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/progress.hpp"
#include "hotset/trace/visit_gather.hpp"

namespace hotset::inline v0::sim {

namespace {

/// When each step of the trace began and ended.
struct step_span {
  ticks begin = 0, end = 0;
  std::uint32_t first_row = 0, rows = 0;
};

/// What waiting for a first token, and for each one after it, came to.
class request_clock {
 public:
  explicit request_clock(const routing_trace& trace) : trace_(trace) {}

  void step(const step_span& span) {
    for (std::uint32_t r = span.first_row; r < span.first_row + span.rows; ++r) {
      auto& one = of(trace_.sequence[r], span);
      if (trace_.kind[r] == request_class::prefill) {
        if (one.waits) one.first_token = span.end;
      } else {
        one.waits = false;
        ++decoded_;
        decoding_ += span.end - span.begin;
      }
    }
  }
  void add_to(replay_times& times) const {
    times.sequences = sequences_.size();
    for (const auto& one : sequences_) times.first_token += one.first_token - one.begin;
    times.decoded = decoded_;
    times.decoding = decoding_;
  }

 private:
  struct request {
    ticks begin = 0;
    ticks first_token = 0;
    bool waits = true;  ///< for its first token
  };
  request& of(std::uint32_t sequence, const step_span& span) {
    const auto [at, is_new] = index_.try_emplace(sequence, sequences_.size());
    if (is_new) sequences_.push_back({span.begin, span.end, true});
    return sequences_[at->second];
  }

  const routing_trace& trace_;
  std::unordered_map<std::uint32_t, std::size_t> index_;
  std::vector<request> sequences_;
  std::uint64_t decoded_ = 0;
  ticks decoding_ = 0;
};

class front_of_trace {
 public:
  front_of_trace(const routing_trace& trace, const visit_sequence& visits,
                 const replay_front& front)
      : trace_(trace),
        visits_(visits),
        gather_(trace, visits),
        score_(visits.shape()),
        unique_(static_cast<std::size_t>(visits.shape().experts),
                static_cast<std::size_t>(visits.shape().max_tokens_per_visit) *
                    static_cast<std::size_t>(visits.shape().top_k)) {
    const auto& shape = visits.shape();
    if (front.routing) {
      routing_.emplace(shape, *front.routing);
      const auto most = static_cast<std::size_t>(shape.max_tokens_per_visit) *
                        static_cast<std::size_t>(shape.top_k);
      selected_.resize(most);
      weights_.resize(most);
    }
    if (front.prefetch) {
      prefetcher_.emplace(shape, *front.prefetch);
      requests_.resize(prefetcher_->most_requests());
      if (prefetcher_->needs() == forecast_need::probabilities) predict_by(shape, front.predictor);
      if (prefetcher_->needs() == forecast_need::truth)
        truth_.resize(static_cast<std::size_t>(shape.experts));
    }
    scores_ =
        front.needs_scores || front.routing || (predictor_ && front.predictor.traits.needs_scores);
  }

  [[nodiscard]] any_prefetch_policy* prefetcher() { return prefetcher_ ? &*prefetcher_ : nullptr; }
  [[nodiscard]] std::span<prefetch_request> requests() { return requests_; }
  [[nodiscard]] const prediction_score::counts& predictions() const { return score_.so_far(); }

  routing_view view(std::size_t i) { return scores_ ? gather_[i] : visits_[i]; }
  /// Bends the selection as the routing policy wants it.
  status route(routing_view& view, const residency_view& residents) {
    if (!routing_) return status::ok;
    const auto selected = std::span(selected_).first(view.experts.size());
    const auto weights = std::span(weights_).first(view.experts.size());
    if (const auto bad = routing_->route(view, residents, selected, weights); bad != status::ok)
      return bad;
    view.experts = selected;
    view.weights = weights;
    return status::ok;
  }
  forecast expect(std::size_t i, const routing_view& view) {
    if (!truth_.empty()) return truth_after(i);
    if (!predictor_) return {};
    if (!recorded_) return predictor_->expect(view);
    return predictor_->expect(view, gather_.predictions(i), trace_.prediction_depth);
  }
  void routed(const routing_view& view) {
    if (!prefetcher_) return;
    score_.routed(view);
    prefetcher_->observe(view);
  }
  void requested(std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) score_.requested(requests_[n]);
  }

 private:
  /// A model of one layer has none ahead.
  void predict_by(const geometry& shape, const any_predictor::config& chosen) {
    const auto depth = prefetcher_->depth();
    if (depth < 1 || shape.layers == 1) return;
    predictor_.emplace(any_predictor::create(shape, with_depth(chosen, depth)).value());
    recorded_ = chosen.traits.needs_recorded;
  }
  forecast truth_after(std::size_t i) {
    forecast out;
    if (i + 1 == visits_.size()) return out;
    const auto count = unique_.collect(visits_[i + 1].experts, truth_.data());
    out.truth = std::span(truth_).first(count);
    out.truth_layer = visits_.at(i + 1).layer;
    out.truth_step = visits_.at(i + 1).step;
    return out;
  }

  const routing_trace& trace_;
  const visit_sequence& visits_;
  visit_gather gather_;
  prediction_score score_;
  unique_ids unique_;
  std::optional<any_routing_policy> routing_;
  std::optional<any_prefetch_policy> prefetcher_;
  std::optional<any_predictor> predictor_;
  bool recorded_ = false;
  bool scores_ = false;
  std::vector<expert_id> selected_, truth_;
  std::vector<float> weights_;
  std::vector<prefetch_request> requests_;
};

/// The steps of the trace as the visits name them.
class step_clock {
 public:
  step_clock(const visit_sequence& visits, const routing_trace& trace)
      : visits_(visits), requests_(trace) {}
  void before(std::size_t i, ticks now) {
    const auto& v = visits_.at(i);
    if (running_ && v.step == step_) return;
    end(now);
    running_ = true;
    step_ = v.step;
    span_ = {now, now, v.first_row, v.count / static_cast<std::uint32_t>(visits_.shape().top_k)};
  }
  void end(ticks now) {
    if (!running_) return;
    span_.end = now;
    requests_.step(span_);
    running_ = false;
  }
  [[nodiscard]] const request_clock& requests() const { return requests_; }

 private:
  const visit_sequence& visits_;
  request_clock requests_;
  step_span span_{};
  std::uint32_t step_ = 0;
  bool running_ = false;
};

}  // namespace

validation check_front(const routing_trace& trace, const replay_front& front) {
  const auto shape = trace.shape();
  const bool scored = !trace.logits.empty() || !trace.probabilities.empty();
  if (front.routing) {
    const any_routing_policy routing(shape, *front.routing);
    if (routing.facts().needs_logits && trace.logits.empty())
      return error{fmt::format(
          "routing policy {} needs the router's logits, and the trace has none; accepted: a trace "
          "that recorded them, or router_order",
          routing.held_name())};
  }
  if (front.needs_scores && !scored)
    return error{
        "the miss policy needs the router's logits, and the trace has none; accepted: a trace that "
        "recorded logits or probabilities, or another miss policy"};
  if (!front.prefetch) return std::nullopt;
  const any_prefetch_policy prefetcher(shape, *front.prefetch);
  if (prefetcher.needs() != forecast_need::probabilities) return std::nullopt;
  if (front.predictor.traits.needs_scores && !scored)
    return error{fmt::format(
        "prefetch policy {} by {} needs the router's scores, and the trace has none; "
        "accepted: a trace that recorded logits or probabilities, --predictor co-activation, or "
        "noisy_oracle",
        prefetcher.held_name(), front.predictor.name)};
  if (front.predictor.traits.needs_recorded && trace.prediction_depth < prefetcher.depth())
    return error{fmt::format(
        "prefetch policy {} needs predictions {} layer(s) ahead, and the trace has {}; accepted: a "
        "trace that recorded them, --predictor current-gate or co-activation, or noisy_oracle",
        prefetcher.held_name(), prefetcher.depth(), trace.prediction_depth)};
  if (shape.layers > 1 && prefetcher.depth() > shape.layers - 1)
    return error{fmt::format("prefetch depth {} of {} layers, accepted: 1..{}", prefetcher.depth(),
                             shape.layers, shape.layers - 1)};
  return with_depth(front.predictor, std::max(1, prefetcher.depth())).validate();
}

replay_outcome replay_timed(const routing_trace& trace, const visit_sequence& visits,
                            const event_order& events, simulated_engine& engine,
                            const replay_front& front) {
  if (const auto bad = check_front(trace, front)) throw usage_error(bad->message);
  front_of_trace ahead(trace, visits, front);
  step_clock steps(visits, trace);
  const bool renumbered = !events.first.empty();
  progress told(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    steps.before(i, engine.now());
    auto view = ahead.view(i);
    if (renumbered) view.ordinal = events.first[i];
    auto done = ahead.route(view, engine.residents(view.layer));
    ahead.routed(view);
    std::size_t proposed = 0;
    if (done == status::ok)
      done =
          engine.visit(view, ahead.prefetcher(), ahead.expect(i, view), ahead.requests(), proposed);
    ahead.requested(proposed);
    if (done != status::ok)
      throw infeasible_error(fmt::format("visit {} (step {}, layer {}): {}", i, view.step,
                                         view.layer, describe(done)));
  }
  steps.end(engine.now());
  replay_outcome out;
  out.times.total = engine.now();
  out.times.blocked = engine.blocked();
  out.times.link_busy = engine.link_busy();
  steps.requests().add_to(out.times);
  out.predictions = ahead.predictions();
  out.queue = engine.queue();
  return out;
}

}  // namespace hotset::inline v0::sim
