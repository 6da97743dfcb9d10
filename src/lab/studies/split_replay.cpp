// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/split_replay.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/planning/control/right_sizing.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"

namespace hotset::lab {
namespace {

/// One burst: visits of a sequence, and blocks of its request.
struct burst {
  const visit_sequence* visits = nullptr;
  std::size_t first = 0, last = 0;
  id_view<expert_id> blocks{};
  std::size_t workflow = 0;
  bool counts = true;
};

/// Several workflows in sequence.
struct session {
  std::string name;
  geometry shape{};
  std::vector<visit_sequence> visits{};  ///< by workflow
  std::vector<routing_trace> blocks{};   ///< by workflow: renumbered, as a trace of one layer
  std::vector<burst> bursts{};
  std::size_t keys = 0;  ///< distinct blocks of all workflows
};

void add_workflow(const workflow& flow, session& out) {
  auto visits = visit_sequence::create(*flow.routing);
  if (!visits) throw usage_error(fmt::format("{}: {}", flow.name, visits.error().message));
  auto blocks = block_accesses(*flow.requests);
  if (!blocks) throw usage_error(fmt::format("{}: {}", flow.name, blocks.error().message));
  for (auto& id : blocks->ids) id = id + static_cast<std::int32_t>(out.keys);
  out.keys += static_cast<std::size_t>(blocks->experts);
  out.visits.push_back(*std::move(visits));
  out.blocks.push_back(*std::move(blocks));
}

/// Requests repeat if there are fewer of them than bursts.
void add_bursts(const workflow& flow, const split_request& request, std::size_t index,
                session& out) {
  const auto& visits = out.visits[index];
  const auto& ids = out.blocks[index].ids;
  std::size_t v = 0;
  std::size_t r = 0;
  for (std::uint32_t number = 0; v < visits.size(); ++number, ++r) {
    burst b;
    b.visits = &visits;
    b.first = v;
    const auto end = visits.at(v).step + request.burst_steps;
    while (v < visits.size() && visits.at(v).step < end) ++v;
    b.last = v;
    const auto turn = r % flow.requests->requests();
    const auto begin = turn == 0 ? 0 : flow.requests->block_end[turn - 1];
    b.blocks = std::span(ids).subspan(begin, flow.requests->block_end[turn] - begin);
    b.workflow = index;
    b.counts = number >= request.warmup;
    out.bursts.push_back(b);
  }
}

std::unique_ptr<session> make_session(std::span<const workflow> flows,
                                      const split_request& request) {
  auto out = std::make_unique<session>();
  for (const auto& flow : flows) {
    out->name += (out->name.empty() ? "" : " > ") + flow.name;
    add_workflow(flow, *out);
  }
  out->shape = out->visits.front().shape();
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto& shape = out->visits[i].shape();
    out->shape.max_tokens_per_visit =
        std::max(out->shape.max_tokens_per_visit, shape.max_tokens_per_visit);
    add_bursts(flows[i], request, i, *out);
  }
  return out;
}

/// Reuse distances of both streams, by burst.
class distances {
 public:
  explicit distances(const session& s) : blocks_(s.keys) {
    const auto experts = s.shape.expert_count();
    const auto ids = s.shape.ids_per_visit();
    for (std::int32_t l = 0; l < s.shape.layers; ++l) experts_.emplace_back(experts, experts, ids);
  }
  template <class OnExpert, class OnBlock>
  void follow(const burst& b, OnExpert on_expert, OnBlock on_block) {
    for (auto i = b.first; i < b.last; ++i) {
      const auto view = (*b.visits)[i];
      experts_[index_of(view.layer)].visit(
          view.experts, 0, [&](std::size_t, std::uint32_t distance) { on_expert(distance); });
    }
    for (const auto id : b.blocks) {
      on_block(blocks_.distance(index_of(id)));
      blocks_.touch(index_of(id));
    }
  }

 private:
  std::vector<reuse_distance> experts_;
  recency_bitmap blocks_;
};

/// Misses of a workflow's bursts at every fixed split.
struct fixed_costs {
  reuse_histogram expert_distances, block_distances;
  sampled_miss_curve experts{}, blocks{};
  std::uint64_t bursts = 0;
};

/// Measures the charged bursts, or those of the warm-up.
std::vector<fixed_costs> measure_fixed(const session& s, bool charged = true) {
  std::vector<fixed_costs> out(s.visits.size(),
                               {reuse_histogram(s.shape.expert_count()), reuse_histogram(s.keys)});
  distances all(s);
  for (const auto& b : s.bursts) {
    auto& to = out[b.workflow];
    const bool counts = b.counts == charged;
    const auto into = [&](reuse_histogram& histogram) {
      return [&](std::uint32_t d) {
        if (counts) histogram.add(d);
      };
    };
    all.follow(b, into(to.expert_distances), into(to.block_distances));
    to.bursts += counts ? 1U : 0U;
  }
  for (auto& costs : out) {
    costs.experts = sampled_miss_curve::per_step(costs.expert_distances.misses(), 1);
    costs.blocks = sampled_miss_curve::per_step(costs.block_distances.misses(), 1);
  }
  return out;
}

/// Seconds of all these bursts at a cap.
double seconds_at(std::span<const fixed_costs> costs, configurator question, std::uint64_t cap) {
  double seconds = 0;
  for (const auto& c : costs) {
    question.experts = c.experts;
    question.kv = c.blocks;
    seconds += question.at(cap).seconds;
  }
  return seconds;
}
std::uint64_t best_cap(std::span<const fixed_costs> costs, const configurator& question) {
  auto best = question.min_cap;
  auto least = seconds_at(costs, question, best);
  for (auto cap = best + 1; cap <= question.largest_cap(); ++cap)
    if (const auto seconds = seconds_at(costs, question, cap); seconds < least) {
      least = seconds;
      best = cap;
    }
  return best;
}

/// Separate pools of experts and blocks; their sizes follow the controller.
class two_pools {
 public:
  two_pools(const session& s, const marginal_value::config& control)
      : control_(control),
        experts_({.layout = pool_layout::per_layer(s.shape, s.shape.experts).value()}),
        blocks_({.layout = pool_layout::shared(block_shape(s), block_slots(s, control)).value()}),
        expert_plan_(experts_.make_plan()),
        block_plan_(blocks_.make_plan()) {}

  void resize(const expert_kv_split& to) {
    for (const auto l : each<layer_id>(experts_.shape().layers))
      must(experts_.set_quota(l, static_cast<std::int32_t>(to.cap)));
    const auto most = static_cast<std::uint64_t>(blocks_.layout().slots());
    must(blocks_.set_quota(
        layer_id{}, static_cast<std::int32_t>(std::clamp<std::uint64_t>(to.blocks, 1, most))));
  }
  /// Seconds for a burst's misses.
  double serve(const burst& b) {
    const auto before = experts_.stats().misses;
    const auto blocks_before = blocks_.stats().misses;
    for (auto i = b.first; i < b.last; ++i) visit(experts_, expert_plan_, (*b.visits)[i]);
    for (std::size_t i = 0; i < b.blocks.size(); ++i) {
      routing_view view;
      view.step = ++step_;
      view.experts = b.blocks.subspan(i, 1);
      visit(blocks_, block_plan_, view);
    }
    return control_.seconds_per_expert_miss *
               static_cast<double>(experts_.stats().misses - before) +
           control_.seconds_per_kv_miss *
               static_cast<double>(blocks_.stats().misses - blocks_before);
  }

 private:
  static geometry block_shape(const session& s) {
    return {.layers = 1, .experts = static_cast<std::int32_t>(s.keys), .top_k = 1};
  }
  static std::int64_t block_slots(const session& s, const marginal_value::config& control) {
    const auto most = control.limits.blocks_beside(control.limits.min_cap);
    return static_cast<std::int64_t>(
        std::clamp<std::uint64_t>(most, 1, static_cast<std::uint64_t>(s.keys)));
  }
  static void must(status code) {
    if (code != status::ok)
      throw infeasible_error(fmt::format("a split of the session: {}", describe(code)));
  }
  static void visit(pager<lru>& pages, visit_plan& plan, const routing_view& view) {
    must(pages.serve(view, plan, [](const visit_group&) {}));
  }

  marginal_value::config control_;
  pager<lru> experts_;
  pager<lru> blocks_;
  visit_plan expert_plan_;
  visit_plan block_plan_;
  step_id step_ = 0;
};

/// The configurator's split (WiSP eq. 7) for the first workflow's warm-up, as a short representative trace. Without a
/// warm-up KV gets its floor and experts the rest.
std::uint64_t configured_cap(const session& s, const configurator& question) {
  const auto costs = measure_fixed(s, false);
  const auto profile = std::span(costs).subspan(s.bursts.front().workflow, 1);
  return profile.front().bursts == 0 ? question.largest_cap() : best_cap(profile, question);
}

split_outcome run_controller(const session& s, const split_request& request) {
  auto controller = marginal_value::create(request.control).value();
  distances live(s);
  two_pools pools(s, request.control);
  split_outcome out;
  out.policy = "mv-wsa";
  const auto question = request.control.split();
  auto now = question.at(configured_cap(s, question));
  pools.resize(now);
  std::uint64_t counted = 0;
  for (const auto& b : s.bursts) {
    const auto seconds = pools.serve(b);
    if (b.counts) {
      out.seconds += seconds;
      ++counted;
    }
    out.caps.push_back(now.cap);
    live.follow(
        b, [&](std::uint32_t d) { controller.on_expert(d); },
        [&](std::uint32_t d) { controller.on_block(d); });
    const auto to = controller.end_burst(now.cap);
    if (to.cap == now.cap) continue;
    pools.resize(to);
    now = to;
    ++out.moves;
  }
  out.cap = now.cap;
  out.seconds /= static_cast<double>(std::max<std::uint64_t>(1, counted));
  return out;
}

/// The smallest cap with 99 % of the possible warm hits, regardless of KV.
std::uint64_t working_set_cap(std::span<const fixed_costs> costs, const configurator& question) {
  std::vector<double> misses;
  for (std::size_t slots = 0; slots <= question.max_cap; ++slots) {
    misses.push_back(0);
    for (const auto& c : costs) misses.back() += c.experts.misses(slots);
  }
  const sampled_miss_curve curve(misses);
  const auto reachable = misses.front() - misses.back();
  const auto cap =
      right_size(curve, misses.front(), 0.99 * reachable / std::max(1.0, misses.front()));
  return std::clamp<std::uint64_t>(cap.value_or(question.max_cap), question.min_cap,
                                   question.largest_cap());
}

split_result run_session(const session& s, const split_request& request) {
  const auto costs = measure_fixed(s);
  const auto question = request.control.split();
  split_result out;
  out.name = s.name;
  for (const auto& c : costs) out.bursts += c.bursts;
  if (out.bursts == 0)
    throw usage_error(fmt::format("{}: {} bursts, all of them warm-up; accepted: longer traces",
                                  s.name, s.bursts.size()));
  const auto bursts = static_cast<double>(out.bursts);
  const auto fixed = [&](std::string policy, std::uint64_t cap) {
    const auto seconds = seconds_at(costs, question, cap) / bursts;
    out.outcomes.push_back({std::move(policy), cap, seconds, 0, {}});
  };
  double oracle = 0;
  for (std::size_t n = 0; n < costs.size(); ++n) {
    const auto alone = std::span(costs).subspan(n, 1);
    oracle += seconds_at(alone, question, best_cap(alone, question));
  }
  const auto best = best_cap(costs, question);
  out.outcomes.push_back({"oracle", costs.size() == 1 ? best : 0, oracle / bursts, 0, {}});
  fixed("best-fixed", best);
  out.outcomes.push_back(run_controller(s, request));
  fixed("50-50", std::clamp(question.budget_bytes / 2 / question.slot_bytes, question.min_cap,
                            question.largest_cap()));
  fixed("flux-prop", working_set_cap(costs, question));
  return out;
}

void check(const split_request& request) {
  if (request.workflows.empty()) throw usage_error("no workflow, accepted: 1 or more");
  if (request.burst_steps == 0) throw usage_error("a burst of 0 steps, accepted: 1 or more");
  const auto& first = request.workflows.front();
  for (const auto& flow : request.workflows) {
    const auto& trace = *flow.routing;
    const auto& model = *first.routing;
    if (trace.layers != model.layers || trace.experts != model.experts ||
        trace.top_k != model.top_k)
      throw usage_error(
          fmt::format("{}: {} layers x {} experts, top-{}; accepted: {} x {}, top-{}, as {}",
                      flow.name, trace.layers, trace.experts, trace.top_k, model.layers,
                      model.experts, model.top_k, first.name));
  }
  const auto question = request.control.split();
  if (question.slot_bytes != 0 && question.budget_bytes < question.smallest_budget())
    throw infeasible_error(question.validate()->message);
  if (const auto bad = request.control.validate()) throw usage_error(bad->message);
}

}  // namespace

std::vector<split_result> simulate_split(const split_request& request) {
  check(request);
  std::vector<split_result> out;
  const std::span flows(request.workflows);
  for (std::size_t i = 0; i < flows.size(); ++i)
    out.push_back(run_session(*make_session(flows.subspan(i, 1), request), request));
  if (flows.size() > 1) out.push_back(run_session(*make_session(flows, request), request));
  return out;
}

}  // namespace hotset::lab
