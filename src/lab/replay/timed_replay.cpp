// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/timed_replay.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/numbers/unique_ids.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/replay/visit_gather.hpp"

namespace hotset::lab {

namespace {

/// Times to first token and per later token, over requests.
class request_clock {
 public:
  explicit request_clock(const routing_trace& trace) : trace_(trace) {}

  void step(std::uint32_t first_row, std::uint32_t rows, ticks begin, ticks end) {
    for (auto row = first_row; row < first_row + rows; ++row) {
      const auto [at, is_new] = requests_.try_emplace(trace_.sequence[row], request{begin, end});
      auto& one = at->second;
      if (trace_.kind[row] == request_class::prefill) {
        if (one.waits) one.first_token = end;
      } else {
        one.waits = false;
        ++decoded_;
        decoding_ += end - begin;
      }
    }
  }
  void add_to(replay_times& times) const {
    times.sequences = requests_.size();
    for (const auto& [sequence, one] : requests_) times.first_token += one.first_token - one.begin;
    times.decoded = decoded_;
    times.decoding = decoding_;
  }

 private:
  struct request {
    ticks begin = 0;
    ticks first_token = 0;
    bool waits = true;  ///< still before its first token
  };

  const routing_trace& trace_;
  std::unordered_map<std::uint32_t, request> requests_;
  std::uint64_t decoded_ = 0;
  ticks decoding_ = 0;
};

std::optional<any_prefetch_policy> prefetcher_of(const geometry& shape, const replay_front& front) {
  if (!front.prefetch) return std::nullopt;
  return std::optional<any_prefetch_policy>(std::in_place, shape, *front.prefetch);
}
/// Maximum forecast depth that a policy uses; 0: none does.
std::int32_t depth_wanted(const std::optional<any_prefetch_policy>& prefetcher,
                          const replay_front& front) {
  const std::int32_t depth = front.pre_eviction || front.tells_forecasts ? 1 : 0;
  const bool by_scores = prefetcher && prefetcher->facts().needs == forecast_need::probabilities;
  return by_scores ? std::max(depth, prefetcher->depth()) : depth;
}
bool has_scores(const routing_trace& trace) {
  return !trace.logits.empty() || !trace.probabilities.empty();
}
/// The predictor's config for this trace and depth.
any_predictor::config asked_of(const routing_trace& trace, const any_predictor::config& chosen,
                               std::int32_t depth) {
  auto out = with_depth(chosen, depth);
  if (out.traits.needs_hidden) out.d_model = trace.hidden_width;
  return out;
}
/// Error if the trace lacks data that the predictor needs, or nothing. `who` needs it; `more`: further accepted
/// choices.
validation lacks(const routing_trace& trace, const any_predictor::config& chosen,
                 std::int32_t depth, std::string_view who = {}, std::string_view more = {}) {
  if (chosen.traits.needs_scores && !has_scores(trace))
    return error{fmt::format(
        "{} by {} needs the router's scores, and the trace has none; "
        "accepted: a trace that recorded logits or probabilities, --predictor co-activation{}",
        who, chosen.name, more)};
  if (chosen.traits.needs_hidden && trace.hidden.empty())
    return error{
        fmt::format("{} by {} needs hidden states, and the trace has none; accepted: a trace "
                    "that recorded them, or --predictor co-activation",
                    who, chosen.name)};
  if (chosen.traits.needs_recorded && trace.prediction_depth < depth)
    return error{
        fmt::format("{} needs predictions {} layer(s) ahead, and the trace has {}; accepted: a "
                    "trace that recorded them, --predictor current-gate or co-activation{}",
                    who, depth, trace.prediction_depth, more)};
  return std::nullopt;
}

/// Finds sequences whose last token was routed.
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

/// The view that opens visit i's step, before its first layer.
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
        front_(front),
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
    if ((prefetcher_ = prefetcher_of(shape, front))) {
      requests_.resize(prefetcher_->most_requests());
      if (prefetcher_->facts().needs == forecast_need::truth) truth_.resize(shape.expert_count());
    }
    if (front.pre_eviction) pre_evictor_.emplace(shape, *front.pre_eviction);
    if (tells_of_forecasts(trace, front)) make_predictor();
    gathers_ = front.needs_scores || front.routing ||
               (predictor_ &&
                (front.predictor.traits.needs_scores || front.predictor.traits.needs_hidden));
  }

  /// Inputs for the engine at the visit; forecasts are for `view`.
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
  /// Whether the predictor wants a call before a step's first visit.
  [[nodiscard]] bool opens_steps() const {
    return predictor_ && front_.predictor.traits.opens_steps;
  }
  /// Whether the predictor wants to be notified of ended sequences.
  [[nodiscard]] bool wants_ends() const {
    return predictor_ && predictor_->facts().wants_sequence_ends;
  }
  void ended(sequence_id sequence) { predictor_->on_sequence_end(sequence); }

  routing_view view(std::size_t i) {
    auto view = gathers_ ? gather_[i] : visits_[i];
    view.token_ids = gather_.token_ids(i);
    return view;
  }
  /// The view that opens visit i's step, before its first layer.
  [[nodiscard]] routing_view opening(std::size_t i) const {
    return opening_of(gather_, visits_, i);
  }
  /// Applies the routing policy to the selection.
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
    if (!truth_.empty()) add_truth(i, out);
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
  void make_predictor() {
    const auto depth = depth_wanted(prefetcher_, front_);
    std::optional<visit_sequence> lessons;
    auto widest = visits_.shape();
    if (front_.lessons != nullptr) {
      lessons = visit_sequence::create(*front_.lessons, {}).value();
      widest.max_tokens_per_visit =
          std::max(widest.max_tokens_per_visit, lessons->shape().max_tokens_per_visit);
    }
    predictor_.emplace(
        any_predictor::create(widest, asked_of(trace_, front_.predictor, depth)).value());
    if (lessons) learn(*front_.lessons, *lessons);
  }
  forecast predicted(std::size_t i, const routing_view& view) {
    if (!predictor_) return {};
    if (!front_.predictor.traits.needs_recorded || view.layer == before_layers)
      return predictor_->expect(view);
    return predictor_->expect(view, gather_.predictions(i), trace_.prediction_depth);
  }
  /// Gives the lessons' steps numbers that the replay does not use.
  static routing_view in_lessons(routing_view view) noexcept {
    view.step += step_id{1} << 32U;
    return view;
  }
  /// Shows the lessons' steps as the replay shows its own; forecasts are discarded.
  void learn(const routing_trace& from, const visit_sequence& visits) {
    visit_gather gather(from, visits);
    const sequence_ends ends(from);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const auto& v = visits.at(i);
      const bool first = i == 0 || visits.at(i - 1).step != v.step;
      if (first && opens_steps())
        (void)predictor_->expect(in_lessons(opening_of(gather, visits, i)));
      (void)predictor_->expect(in_lessons(gather[i]), gather.predictions(i), from.prediction_depth);
      const bool last = i + 1 == visits.size() || visits.at(i + 1).step != v.step;
      if (!last || !predictor_->facts().wants_sequence_ends) continue;
      ends.step(v.first_row, v.rows, [&](sequence_id s) { predictor_->on_sequence_end(s); });
    }
  }
  void add_truth(std::size_t i, forecast& out) {
    if (i + 1 == visits_.size()) return;
    const auto count = unique_.collect(visits_[i + 1].experts, truth_.data());
    out.truth = std::span(truth_).first(count);
    out.truth_layer = visits_.at(i + 1).layer;
    out.truth_step = visits_.at(i + 1).step;
  }

  const routing_trace& trace_;
  const visit_sequence& visits_;
  const replay_front& front_;
  visit_gather gather_;
  prediction_score score_;
  unique_ids unique_;
  std::optional<any_routing_policy> routing_;
  std::optional<any_prefetch_policy> prefetcher_;
  std::optional<active_evict> pre_evictor_;
  std::optional<any_predictor> predictor_;
  bool gathers_ = false;
  double confidence_ = 0;      // sum over the tokens of all forecasts
  std::size_t confident_ = 0;  // number of those tokens
  std::vector<expert_id> selected_, truth_;
  std::vector<float> weights_;
  std::span<const float> router_weights_;
  std::vector<prefetch_request> requests_;
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

}  // namespace

bool tells_of_forecasts(const routing_trace& trace, const replay_front& front) {
  const auto prefetcher = prefetcher_of(trace.shape(), front);
  const auto depth = depth_wanted(prefetcher, front);
  return depth > 0 && trace.layers > 1 && !lacks(trace, front.predictor, depth);
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
  const auto prefetcher = prefetcher_of(shape, front);
  const bool by_scores = prefetcher && prefetcher->facts().needs == forecast_need::probabilities;
  if (!by_scores && !front.pre_eviction) return std::nullopt;
  const auto who =
      by_scores ? fmt::format("prefetch policy {}", prefetcher->held_name()) : "pre-eviction";
  const auto depth = std::max(1, depth_wanted(prefetcher, front));
  if (auto bad = lacks(trace, front.predictor, depth, who, by_scores ? ", or noisy_oracle" : ""))
    return bad;
  if (shape.layers == 1) return std::nullopt;
  if (depth > shape.layers - 1)
    return error{fmt::format("prefetch depth {} of {} layers, accepted: 1..{}", depth, shape.layers,
                             shape.layers - 1)};
  if (auto bad = with_depth(front.predictor, depth).validate()) return bad;
  if (!front.predictor.traits.needs_hidden) return std::nullopt;
  const auto made = any_predictor::create(shape, asked_of(trace, front.predictor, depth));
  return made ? validation() : made.error();
}

replay_outcome replay_timed(const routing_trace& trace, const visit_sequence& visits,
                            const event_order& events, simulated_engine& engine,
                            const replay_front& front, part_counts* parts) {
  if (const auto bad = check_front(trace, front)) throw usage_error(bad->message);
  front_of_trace front_end(trace, visits, front);
  if (const auto done = engine.warm(front.start); done != status::ok)
    throw infeasible_error(fmt::format("warm start: {}", describe(done)));
  const auto start = engine.stream().now();
  engine.finish();
  const auto busy_before = engine.link().busy();
  request_clock requests(trace);
  std::optional<sequence_ends> ends;
  if (front_end.wants_ends()) ends.emplace(trace);
  ticks begin = 0;
  progress bar(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    bar.at(i);
    if (parts != nullptr) parts->begin(i, [&] { return engine.stats(); });
    const auto& v = visits.at(i);
    if (i == 0 || visits.at(i - 1).step != v.step) {
      begin = engine.stream().now();
      const auto view = front_end.opening(i);
      auto ahead =
          front_end.ahead(view, front_end.opens_steps() ? front_end.expect(i, view) : forecast{});
      engine.open_step(view, ahead);
      front_end.requested(ahead.proposed);
    }
    auto view = front_end.view(i);
    view.ordinal = events.ordinal(i);
    auto done = front_end.route(view, engine.residents(view.layer));
    front_end.routed(view);
    auto ahead = front_end.ahead(view, front_end.expect(i, view));
    if (done == status::ok) done = engine.visit(view, ahead);
    front_end.requested(ahead.proposed);
    if (done != status::ok) refuse_visit(visits, i, done);
    if (i + 1 != visits.size() && visits.at(i + 1).step == v.step) continue;
    if (ends) ends->step(v.first_row, v.rows, [&](sequence_id s) { front_end.ended(s); });
    requests.step(v.first_row, v.rows, begin, engine.stream().now());
  }
  if (parts != nullptr) parts->finish(engine.stats());
  replay_outcome out;
  out.times.total = engine.stream().now() - start;
  out.times.blocked = engine.stream().blocked();
  engine.finish();
  out.times.link_busy = engine.link().busy() - busy_before;
  if (const auto* back = engine.way_back()) {
    out.times.back_busy = back->busy_back();
    out.bytes_back = back->bytes_moved_back();
  }
  out.streamed = engine.streamed();
  out.mass = engine.mass();
  requests.add_to(out.times);
  out.predictions = front_end.predictions();
  out.confidence = front_end.confidence();
  out.queue = engine.queue();
  return out;
}

}  // namespace hotset::lab
