// SPDX-License-Identifier: Apache-2.0
/// Prefetch policies and predictors of the C interface, by name.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/registry/policy_registry.hpp"

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one handle
using c::refuse;

/// Handle that C sees.
struct hotset_prefetcher : c::handle {
  hotset_prefetcher(geometry of, any_predictor predictor, any_prefetch_policy policy, bool scored)
      : shape(std::move(of)),
        expects(std::move(predictor)),
        asks(std::move(policy)),
        needs_logits(scored),
        gathered(shape),
        requests(asks.most_requests()) {}

  geometry shape;
  any_predictor expects;
  any_prefetch_policy asks;
  bool needs_logits;  ///< the predictor needs them
  c::gathered_rows gathered;
  std::vector<prefetch_request> requests;
};

namespace {

/// Returns what a predictor needs and the calls of C cannot give, or an empty text.
const char* lacks(const predictor_traits& facts) noexcept {
  if (facts.needs_recorded) return "predictions that a trace recorded";
  if (facts.needs_routers) return "the engine's routers";
  if (facts.needs_hidden) return "hidden states";
  return "";
}

/// Reads a visit, or the beginning of a step, for which only its tokens' sequences are known.
hotset_status read(hotset_prefetcher& p, const hotset_view& given, routing_view& out) noexcept {
  if (given.layer != number(before_layers)) {
    const auto bad = c::check_scores(given, false, p.needs_logits, "the predictor needs");
    return bad != HOTSET_OK ? bad : c::read_view(given, p.shape, p.gathered, out);
  }
  if (given.tokens > p.shape.tokens_per_visit())
    return refuse(HOTSET_VISIT_TOO_LARGE, "a step of %zu tokens, accepted: at most %d, max_tokens",
                  given.tokens, p.shape.max_tokens_per_visit);
  out.layer = before_layers;
  out.step = given.step;
  if (given.sequences != nullptr) out.sequences = {given.sequences, given.tokens};
  return HOTSET_OK;
}

result<std::unique_ptr<hotset_prefetcher>> make(const hotset_prefetcher_options& o) {
  const auto shape = c::shape_of(o);
  if (auto bad = shape.validate()) return *std::move(bad);
  const auto& known = policies();
  auto asked = known.prefetch.make(o.prefetch == nullptr ? "next_layer_top_k" : o.prefetch);
  if (!asked) return asked.error();
  any_prefetch_policy policy(shape, *asked);
  if (policy.facts().needs == forecast_need::truth)
    return refusal(o.prefetch, " sees the future, accepted: a policy that does not");
  const std::string name = o.predictor == nullptr ? "similar-steps" : o.predictor;
  auto expected = known.make_predictor(name);
  if (!expected) return expected.error();
  if (const std::string lacking = lacks(expected->traits); !lacking.empty())
    return error{"predictor " + name + " needs " + lacking + ", accepted: one that does not"};
  expected->depth = std::max(1, policy.depth());
  auto predictor = any_predictor::create(shape, *expected);
  if (!predictor) return predictor.error();
  return std::make_unique<hotset_prefetcher>(shape, *std::move(predictor), std::move(policy),
                                             expected->traits.needs_scores);
}

}  // namespace

extern "C" {

hotset_status hotset_prefetcher_create(const hotset_prefetcher_options* options,
                                       hotset_prefetcher** out) {
  return c::create(options, out, make);
}
void hotset_prefetcher_destroy(hotset_prefetcher* prefetcher) { delete prefetcher; }

hotset_status hotset_prefetcher_most(hotset_prefetcher* prefetcher, size_t* most) {
  return c::call(prefetcher).needs(most, "most").run([&](hotset_prefetcher& p) {
    *most = p.requests.size();
  });
}
hotset_status hotset_propose(hotset_prefetcher* prefetcher, const hotset_view* view,
                             hotset_request* requests, size_t room, size_t* count) {
  hotset_view given{};
  return c::call(prefetcher)
      .needs(requests, room, "requests")
      .needs(count, "count")
      .reads(view, given, "view")
      .run([&](hotset_prefetcher& p) -> hotset_status {
        routing_view routed;
        if (const auto bad = read(p, given, routed); bad != HOTSET_OK) return bad;
        const bool opens = routed.layer == before_layers;
        *count = 0;
        if (opens && !p.expects.facts().opens_steps) return HOTSET_OK;
        if (!opens) p.asks.observe(routed);
        const auto expected = p.expects.expect(routed);
        // Others propose from a visit's experts.
        if (opens && p.asks.facts().needs != forecast_need::probabilities) return HOTSET_OK;
        const auto wanted = std::span(p.requests).first(std::min(room, p.requests.size()));
        *count = p.asks.propose(routed, expected, wanted);
        for (std::size_t i = 0; i < *count; ++i) {
          const auto& r = wanted[i];
          requests[i] = {.key = {number(r.key.layer), number(r.key.expert)},
                         .for_step = r.for_step,
                         .probability = r.probability};
        }
        return HOTSET_OK;
      });
}

}  // extern "C"
