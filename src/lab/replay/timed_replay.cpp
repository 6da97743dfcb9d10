// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/timed_replay.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/numbers/unique_ids.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/replay/infeasible_visit.hpp"
#include "lab/replay/visit_gather.hpp"

namespace hotset::lab {

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

/// The deepest forecast that anyone goes by, 0 where nobody does.
std::int32_t depth_wanted(const any_prefetch_policy* prefetcher, const replay_front& front) {
  std::int32_t depth = front.pre_eviction || front.tells_forecasts ? 1 : 0;
  if (prefetcher != nullptr && prefetcher->facts().needs == forecast_need::probabilities)
    depth = std::max(depth, prefetcher->depth());
  return depth;
}
bool has_scores(const routing_trace& trace) {
  return !trace.logits.empty() || !trace.probabilities.empty();
}
/// A predictor's config for this trace and so many layers ahead.
any_predictor::config asked_of(const routing_trace& trace, const any_predictor::config& chosen,
                               std::int32_t depth) {
  auto out = with_depth(chosen, depth);
  if (out.traits.needs_hidden) out.d_model = trace.hidden_width;
  return out;
}
/// Whether the trace has what the predictor goes by.
bool can_predict(const routing_trace& trace, const any_predictor::config& chosen,
                 std::int32_t depth) {
  if (chosen.traits.needs_scores && !has_scores(trace)) return false;
  if (chosen.traits.needs_hidden && trace.hidden.empty()) return false;
  return !chosen.traits.needs_recorded || trace.prediction_depth >= depth;
}

/// Tells of sequences whose last token has been routed.
class sequence_ends {
 public:
  explicit sequence_ends(const routing_trace& trace) : trace_(trace) {
    for (std::size_t row = 0; row < trace.tokens(); ++row) last_row_[trace.sequence[row]] = row;
  }
  template <class Ended>
  void step(std::size_t first_row, std::size_t rows, Ended ended) const {
    for (auto row = first_row; row < first_row + rows; ++row)
      if (last_row_.at(trace_.sequence[row]) == row) ended(trace_.sequence[row]);
  }

 private:
  const routing_trace& trace_;
  std::unordered_map<std::uint32_t, std::size_t> last_row_;
};

/// The step of visit i before its first layer.
routing_view opening_of(const visit_gather& gather, const visit_sequence& visits, std::size_t i) {
  routing_view view;
  view.layer = before_layers;
  view.step = visits.at(i).step;
  view.kind = visits.at(i).kind;
  view.sequences = visits[i].sequences;
  view.token_ids = gather.token_ids(i);
  return view;
}

class front_of_trace {
 public:
  front_of_trace(const routing_trace& trace, const visit_sequence& visits,
                 const replay_front& front)
      : trace_(trace),
        visits_(visits),
        gather_(trace, visits),
        score_(visits.shape()),
        unique_(visits.shape().expert_count(), visits.shape().ids_per_visit()) {
    const auto& shape = visits.shape();
    if (front.routing) {
      routing_.emplace(shape, *front.routing);
      const auto most = shape.ids_per_visit();
      selected_.resize(most);
      weights_.resize(most);
    }
    if (front.prefetch) {
      prefetcher_.emplace(shape, *front.prefetch);
      requests_.resize(prefetcher_->most_requests());
      if (prefetcher_->facts().needs == forecast_need::truth) truth_.resize(shape.expert_count());
    }
    if (front.pre_eviction) pre_evictor_.emplace(shape, *front.pre_eviction);
    predict_by(front);
    gathers_ = front.needs_scores || front.routing ||
               (predictor_ &&
                (front.predictor.traits.needs_scores || front.predictor.traits.needs_hidden));
  }

  /// What the engine may use at the visit; forecasts are of `view`.
  [[nodiscard]] look_ahead ahead(const routing_view& view, const forecast& expected) {
    look_ahead out;
    out.prefetcher = prefetcher_ ? &*prefetcher_ : nullptr;
    out.pre_evictor = pre_evictor_ ? &*pre_evictor_ : nullptr;
    out.expected = expected;
    out.requests = requests_;
    if (!view.router_choice.empty()) out.router_weights = router_weights_;
    return out;
  }
  [[nodiscard]] const prediction_score::counts& predictions() const { return score_.so_far(); }
  [[nodiscard]] std::optional<double> confidence() const {
    if (confident_ == 0) return std::nullopt;
    return confidence_ / static_cast<double>(confident_);
  }
  /// Whether someone wants to hear of a step before its first visit.
  [[nodiscard]] bool opens_steps() const { return opens_steps_; }
  /// Whether someone wants to hear of sequences that have ended.
  [[nodiscard]] bool hears_ends() const {
    return predictor_ && predictor_->facts().hears_sequence_ends;
  }
  void ended(sequence_id sequence) { predictor_->on_sequence_end(sequence); }

  routing_view view(std::size_t i) {
    auto view = gathers_ ? gather_[i] : visits_[i];
    view.token_ids = gather_.token_ids(i);
    return view;
  }
  /// The step of visit i before its first layer.
  [[nodiscard]] routing_view opening(std::size_t i) const {
    return opening_of(gather_, visits_, i);
  }
  /// Bends the selection as the routing policy wants it.
  status route(routing_view& view, const residency_view& residents) {
    if (!routing_) return status::ok;
    const auto selected = std::span(selected_).first(view.experts.size());
    const auto weights = std::span(weights_).first(view.experts.size());
    if (const auto bad = routing_->route(view, residents, selected, weights); bad != status::ok)
      return bad;
    view.router_choice = view.experts;
    router_weights_ = view.weights;
    view.experts = selected;
    view.weights = weights;
    return status::ok;
  }
  forecast expect(std::size_t i, const routing_view& view) {
    auto out = predicted(i, view);
    for (const auto sure : out.confidence) confidence_ += static_cast<double>(sure);
    confident_ += out.confidence.size();
    if (!truth_.empty()) tell_truth(i, out);
    return out;
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
  void predict_by(const replay_front& front) {
    const auto depth = depth_wanted(prefetcher_ ? &*prefetcher_ : nullptr, front);
    const auto& shape = visits_.shape();
    if (depth < 1 || shape.layers == 1 || !can_predict(trace_, front.predictor, depth)) return;
    std::optional<visit_sequence> lessons;
    auto widest = shape;
    if (front.lessons != nullptr) {
      lessons = visit_sequence::create(*front.lessons, {}).value();
      widest.max_tokens_per_visit =
          std::max(shape.max_tokens_per_visit, lessons->shape().max_tokens_per_visit);
    }
    predictor_.emplace(
        any_predictor::create(widest, asked_of(trace_, front.predictor, depth)).value());
    recorded_ = front.predictor.traits.needs_recorded;
    opens_steps_ = front.predictor.traits.opens_steps;
    if (lessons) learn(*front.lessons, *lessons);
  }
  forecast predicted(std::size_t i, const routing_view& view) {
    if (!predictor_) return {};
    if (!recorded_ || view.layer == before_layers) return predictor_->expect(view);
    return predictor_->expect(view, gather_.predictions(i), trace_.prediction_depth);
  }
  /// Its steps are none of the replay's.
  static routing_view in_lessons(routing_view view) noexcept {
    view.step += step_id{1} << 32U;
    return view;
  }
  /// Steps are told as the replay tells them, and nobody goes by the answers.
  void learn(const routing_trace& from, const visit_sequence& visits) {
    visit_gather gather(from, visits);
    const sequence_ends ends(from);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const auto& v = visits.at(i);
      const bool first = i == 0 || visits.at(i - 1).step != v.step;
      if (first && opens_steps_)
        (void)predictor_->expect(in_lessons(opening_of(gather, visits, i)));
      (void)predictor_->expect(in_lessons(gather[i]), gather.predictions(i), from.prediction_depth);
      const bool last = i + 1 == visits.size() || visits.at(i + 1).step != v.step;
      if (!last || !predictor_->facts().hears_sequence_ends) continue;
      ends.step(v.first_row, v.count / static_cast<std::uint32_t>(visits.shape().top_k),
                [&](sequence_id s) { predictor_->on_sequence_end(s); });
    }
  }
  void tell_truth(std::size_t i, forecast& out) {
    if (i + 1 == visits_.size()) return;
    const auto count = unique_.collect(visits_[i + 1].experts, truth_.data());
    out.truth = std::span(truth_).first(count);
    out.truth_layer = visits_.at(i + 1).layer;
    out.truth_step = visits_.at(i + 1).step;
  }

  const routing_trace& trace_;
  const visit_sequence& visits_;
  visit_gather gather_;
  prediction_score score_;
  unique_ids unique_;
  std::optional<any_routing_policy> routing_;
  std::optional<any_prefetch_policy> prefetcher_;
  std::optional<active_evict> pre_evictor_;
  std::optional<any_predictor> predictor_;
  bool recorded_ = false;
  bool gathers_ = false;
  bool opens_steps_ = false;
  double confidence_ = 0;      // summed over the tokens of the answers
  std::size_t confident_ = 0;  // those tokens
  std::vector<expert_id> selected_, truth_;
  std::vector<float> weights_;
  std::span<const float> router_weights_;
  std::vector<prefetch_request> requests_;
};

/// The steps of the trace as the visits name them.
class step_clock {
 public:
  step_clock(const visit_sequence& visits, const routing_trace& trace)
      : visits_(visits), requests_(trace) {}
  /// True if visit i is its step's first.
  [[nodiscard]] bool begins(std::size_t i) const {
    return !running_ || visits_.at(i).step != step_;
  }
  void begin(std::size_t i, ticks now) {
    const auto& v = visits_.at(i);
    running_ = true;
    step_ = v.step;
    span_ = {now, now, v.first_row, v.count / static_cast<std::uint32_t>(visits_.shape().top_k)};
  }
  [[nodiscard]] const step_span* running() const { return running_ ? &span_ : nullptr; }
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

validation check_lessons(const routing_trace& trace, const replay_front& front) {
  if (front.lessons == nullptr) return std::nullopt;
  const auto& from = *front.lessons;
  if (from.layers != trace.layers || from.experts != trace.experts || from.top_k != trace.top_k)
    return error{fmt::format("{} has {} layers of {} experts, top-{}, accepted: {} of {}, top-{}",
                             from.name, from.layers, from.experts, from.top_k, trace.layers,
                             trace.experts, trace.top_k)};
  if (front.predictor.traits.needs_scores && !has_scores(from))
    return error{
        fmt::format("{} has no scores for predictor {} to learn from, accepted: a trace "
                    "that recorded logits or probabilities",
                    from.name, front.predictor.name)};
  if (front.predictor.traits.needs_hidden && from.hidden_width != trace.hidden_width)
    return error{
        fmt::format("{} has hidden states of {} for predictor {} to learn from, accepted: of {}",
                    from.name, from.hidden_width, front.predictor.name, trace.hidden_width)};
  return std::nullopt;
}

/// Whether a predictor that goes by hidden states fits those of the trace.
validation check_hidden(const routing_trace& trace, const any_predictor::config& predictor,
                        std::int32_t depth, std::string_view who) {
  if (trace.hidden.empty())
    return error{
        fmt::format("{} by {} needs hidden states, and the trace has none; accepted: a trace "
                    "that recorded them, or --predictor co-activation",
                    who, predictor.name)};
  if (trace.layers == 1) return std::nullopt;
  const auto made = any_predictor::create(trace.shape(), asked_of(trace, predictor, depth));
  return made ? validation() : made.error();
}

}  // namespace

bool tells_of_forecasts(const routing_trace& trace, const replay_front& front) {
  std::optional<any_prefetch_policy> prefetcher;
  if (front.prefetch) prefetcher.emplace(trace.shape(), *front.prefetch);
  const auto depth = depth_wanted(prefetcher ? &*prefetcher : nullptr, front);
  return depth > 0 && trace.layers > 1 && can_predict(trace, front.predictor, depth);
}

validation check_front(const routing_trace& trace, const replay_front& front) {
  const auto shape = trace.shape();
  const bool scored = has_scores(trace);
  if (auto bad = check_lessons(trace, front)) return bad;
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
  std::optional<any_prefetch_policy> prefetcher;
  if (front.prefetch) prefetcher.emplace(shape, *front.prefetch);
  const bool by_scores = prefetcher && prefetcher->facts().needs == forecast_need::probabilities;
  if (!by_scores && !front.pre_eviction) return std::nullopt;
  const auto who =
      by_scores ? fmt::format("prefetch policy {}", prefetcher->held_name()) : "pre-eviction";
  const auto depth = std::max(1, depth_wanted(prefetcher ? &*prefetcher : nullptr, front));
  if (front.predictor.traits.needs_scores && !has_scores(trace))
    return error{fmt::format(
        "{} by {} needs the router's scores, and the trace has none; "
        "accepted: a trace that recorded logits or probabilities, --predictor co-activation{}",
        who, front.predictor.name, by_scores ? ", or noisy_oracle" : "")};
  if (front.predictor.traits.needs_recorded && trace.prediction_depth < depth)
    return error{
        fmt::format("{} needs predictions {} layer(s) ahead, and the trace has {}; accepted: a "
                    "trace that recorded them, --predictor current-gate or co-activation{}",
                    who, depth, trace.prediction_depth, by_scores ? ", or noisy_oracle" : "")};
  if (shape.layers > 1 && depth > shape.layers - 1)
    return error{fmt::format("prefetch depth {} of {} layers, accepted: 1..{}", depth, shape.layers,
                             shape.layers - 1)};
  if (auto bad = with_depth(front.predictor, depth).validate()) return bad;
  if (!front.predictor.traits.needs_hidden) return std::nullopt;
  return check_hidden(trace, front.predictor, depth, who);
}

namespace {

/// What a warm start took.
replay_times warmed(simulated_engine& engine, std::span<const expert_key> keys) {
  replay_times out;
  if (keys.empty()) return out;
  if (const auto done = engine.warm(keys); done != status::ok)
    throw infeasible_error(fmt::format("warm start: {}", describe(done)));
  out.total = engine.now();
  out.link_busy = engine.link_busy();
  return out;
}

}  // namespace

replay_outcome replay_timed(const routing_trace& trace, const visit_sequence& visits,
                            const event_order& events, simulated_engine& engine,
                            const replay_front& front) {
  if (const auto bad = check_front(trace, front)) throw usage_error(bad->message);
  front_of_trace front_end(trace, visits, front);
  const auto before = warmed(engine, front.start);
  step_clock steps(visits, trace);
  std::optional<sequence_ends> ends;
  if (front_end.hears_ends()) ends.emplace(trace);
  const auto end_step = [&] {
    if (const auto* span = steps.running(); ends && span != nullptr)
      ends->step(span->first_row, span->rows, [&](sequence_id s) { front_end.ended(s); });
    steps.end(engine.now());
  };
  const bool renumbered = !events.first.empty();
  progress told(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    if (steps.begins(i)) {
      end_step();
      steps.begin(i, engine.now());
      const auto view = front_end.opening(i);
      auto ahead =
          front_end.ahead(view, front_end.opens_steps() ? front_end.expect(i, view) : forecast{});
      engine.open_step(view, ahead);
      front_end.requested(ahead.proposed);
    }
    auto view = front_end.view(i);
    if (renumbered) view.ordinal = events.first[i];
    auto done = front_end.route(view, engine.residents(view.layer));
    front_end.routed(view);
    auto ahead = front_end.ahead(view, front_end.expect(i, view));
    if (done == status::ok) done = engine.visit(view, ahead);
    front_end.requested(ahead.proposed);
    if (done != status::ok) refuse_visit(visits, i, done);
  }
  end_step();
  replay_outcome out;
  out.times.total = engine.now() - before.total;
  out.times.blocked = engine.blocked();
  out.times.link_busy = engine.link_busy() - before.link_busy;
  out.times.back_busy = engine.back_busy();
  out.bytes_back = engine.bytes_back();
  out.streamed = engine.streamed();
  out.mass = engine.mass();
  steps.requests().add_to(out.times);
  out.predictions = front_end.predictions();
  out.confidence = front_end.confidence();
  out.queue = engine.queue();
  return out;
}

}  // namespace hotset::lab
