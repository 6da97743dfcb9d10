// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/clock_check.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/timed_replay.hpp"
#include "tiny_moe/experts/tracing_experts.hpp"
#include "tiny_moe/model/engine.hpp"

namespace tiny_moe {
namespace {

namespace lab = hotset::lab;
using clock = std::chrono::steady_clock;

/// Records when each visit begins and how long the provider had been blocked by then.
class timed_visits final : public expert_provider {
 public:
  explicit timed_visits(paged_provider& inner) : inner_(inner) {}

  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    begins_.push_back({clock::now(), inner_.blocked(), static_cast<double>(visit.tokens)});
    inner_.run(visit, compute);
  }
  /// Begins a new sequence: the time until its first visit is not counted as arithmetic.
  void pause() { ends_.push_back(begins_.size()); }

  /// Least-squares fit of visit + token * tokens to the times between beginnings of consecutive visits, without
  /// waiting. Units: seconds.
  void fit(double& visit, double& token) const {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (std::size_t i = 0; i + 1 < begins_.size(); ++i) {
      if (std::ranges::binary_search(ends_, i + 1)) continue;
      const auto waited = static_cast<double>(begins_[i + 1].blocked - begins_[i].blocked) * 1e-9;
      const std::chrono::duration<double> passed = begins_[i + 1].at - begins_[i].at;
      const auto work = std::max(0.0, passed.count() - waited);
      const auto tokens = begins_[i].tokens;
      n += 1;
      x += tokens;
      y += work;
      xx += tokens * tokens;
      xy += tokens * work;
    }
    const auto spread = n * xx - x * x;
    token = spread > 0 ? std::max(0.0, (n * xy - x * y) / spread) : 0;
    visit = n > 0 ? std::max(0.0, (y - token * x) / n) : 0;
  }

 private:
  struct mark {
    clock::time_point at;
    hotset::ticks blocked = 0;
    double tokens = 0;
  };
  paged_provider& inner_;
  std::vector<mark> begins_;
  std::vector<std::size_t> ends_;
};

hotset::ticks nanoseconds(double seconds) {
  return static_cast<hotset::ticks>(std::llround(seconds * 1e9));
}

/// Predictors that work the same from a trace as in the engine, which has no embeddings.
std::vector<std::string> replayed_predictors() {
  std::vector<std::string> names;
  for (const auto& row : lab::known_policies().predictors.rows()) {
    const auto& traits = row.traits;
    if (!traits.needs_routers && !traits.needs_recorded && !traits.takes_embeddings)
      names.push_back(row.name);
  }
  return names;
}

/// The trace recorded as predictions the scores that the engine computed with the next routers.
lab::chosen_policies replayed_of(const paging_choice& choice) {
  auto names = choice.policies;
  if (names.predictor == "next-router") names.predictor = "recorded";
  auto accepted = replayed_predictors();
  accepted.emplace_back("recorded");
  return lab::read_policies(names, accepted);
}

lab::replay_front front_of(const lab::chosen_policies& chosen) {
  lab::replay_front front;
  front.predictor = chosen.predictor;
  front.pre_eviction = chosen.pre_eviction;
  front.tells_forecasts = chosen.eviction->traits.wants_forecasts;
  front.needs_scores = chosen.miss.needs_logits;
  front.routing = chosen.routing;
  front.prefetch = chosen.prefetcher;
  return front;
}

}  // namespace

clock_comparison compare_with_clock(const model& weights, const paging_choice& choice,
                                    std::span<const named_text> texts, std::size_t continuation) {
  std::vector<std::string> words;
  std::size_t tokens = 0;
  for (const auto& one : texts) {
    words.push_back(one.text);
    tokens += one.text.size() + continuation;
  }
  const routing_profile profile(weights, words);
  const auto paging = make_paging(weights, choice, profile);
  const auto chosen = replayed_of(choice);
  const auto front = front_of(chosen);
  timed_visits timed(*paging.experts);
  tracing_experts tracing(weights, timed,
                          {.capacity = tokens,
                           .logits = true,
                           .hidden = front.predictor.traits.needs_hidden,
                           .predictions = true});
  engine decoder(weights, tracing, {.max_tokens = choice.max_tokens});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    tracing.begin_sequence(static_cast<std::uint32_t>(i));
    timed.pause();
    decoder.reset();
    const std::vector<std::uint8_t> prompt(words[i].begin(), words[i].end());
    std::span<const float> logits;
    for (std::size_t t = 0; t < prompt.size(); t += decoder.max_tokens())
      logits = decoder.forward(
          std::span(prompt).subspan(t, std::min(decoder.max_tokens(), prompt.size() - t)),
          request_kind::prefill);
    for (std::size_t t = 0; t + 1 < continuation; ++t) {
      const auto token = static_cast<std::uint8_t>(largest(logits.last(model_config::vocabulary)));
      logits = decoder.forward({&token, 1}, request_kind::decode);
    }
  }
  paging.experts->drain();

  clock_comparison out;
  timed.fit(out.visit, out.token);
  out.engine_blocked = static_cast<double>(paging.experts->blocked()) * 1e-9;
  out.engine_io = static_cast<double>(paging.experts->link_busy()) * 1e-9;
  out.engine_misses = paging.experts->stats().misses;
  out.engine_predictions = paging.experts->predictions();

  const auto trace = tracing.take();
  const hotset::visit_sequence visits(trace);
  hotset::pager_request wanted;
  wanted.eviction = choice.policies.eviction;
  wanted.admission = choice.policies.admission;
  wanted.layout = paging.experts->layout();
  wanted.guard = chosen.guard;
  wanted.miss = chosen.misses;
  const auto replayed = lab::make_engine(wanted, {}, {.link = hotset::link_model(*link_of(choice))},
                                         {.per_visit = nanoseconds(out.visit),
                                          .per_token = nanoseconds(out.token),
                                          .transient = choice.transient});
  const auto outcome = lab::replay_timed(trace, visits, {}, *replayed, front);
  out.clock_blocked = static_cast<double>(outcome.times.blocked) * 1e-9;
  out.clock_io = static_cast<double>(outcome.times.link_busy) * 1e-9;
  out.clock_misses = replayed->stats().misses;
  out.clock_predictions = outcome.predictions;
  return out;
}

}  // namespace tiny_moe
