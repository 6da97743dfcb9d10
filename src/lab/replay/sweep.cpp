// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "hotset/paging/cliff_guard.hpp"
#include "hotset/paging/residency/warm_start.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/counted_together.hpp"
#include "lab/curves/size_ladder.hpp"
#include "lab/replay/decision_log.hpp"
#include "lab/replay/dimensions.hpp"
#include "lab/replay/expert_engine.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/timeline.hpp"
#include "lab/traces/open_trace.hpp"
#include "lab/traces/oracle_general.hpp"

namespace hotset::lab {

namespace {

struct run_plan {
  policy_set policies{};
  cache_scope scope = cache_scope::shared;
  replay_mode mode = replay_mode::event_atomic;
  size_request size{};
  precision_ladder precision{};
  std::optional<link_request> link{};
};

std::vector<run_plan> combinations(const sweep_request& request,
                                   const std::vector<policy_set>& sets) {
  std::vector<run_plan> runs;
  std::vector<precision_ladder> ladders;
  for (const auto& text : request.precisions) ladders.push_back(precision_ladder::parse(text));
  if (ladders.empty()) ladders.emplace_back();
  std::vector<std::optional<link_request>> links(request.links.begin(), request.links.end());
  if (links.empty()) links.emplace_back();
  for (const auto& replay : request.replays)
    for (const auto& scope : request.scopes)
      for (const auto& size : request.sizes)
        for (const auto& ladder : ladders)
          for (const auto& link : links)
            for (const auto& policies : sets)
              runs.push_back(
                  {policies, parse_scope(scope), parse_replay_mode(replay), size, ladder, link});
  return runs;
}

/// Whether a policy may hear of more than a pager alone knows: whose tokens are routed, and what is expected.
bool looks_ahead(std::string_view eviction) {
  const auto traits = heard_by(eviction);
  return traits.hears_routes || traits.hears_forecasts;
}
/// True if there is more to a run than a pager, whatever its eviction policy hears.
bool is_more_than_paging(const run_plan& plan, const sweep_request& request) {
  return plan.link || request.warm_start || plan.mode == replay_mode::expert_by_expert ||
         prefetches(plan.policies.prefetch) || bends_routing(plan.policies.routing) ||
         wants_scores(plan.policies.miss) || plan.policies.pre_eviction != "none";
}
/// True if an engine is simulated.
bool needs_engine(const run_plan& plan, const sweep_request& request) {
  return is_more_than_paging(plan, request) ||
         (plan.mode == replay_mode::event_atomic && looks_ahead(plan.policies.eviction));
}

/// The two forms of the trace, built when first asked for.
class prepared_trace {
 public:
  prepared_trace(const routing_trace& trace, std::uint32_t max_tokens)
      : trace_(trace), max_tokens_(max_tokens) {}

  const visit_sequence& visits(replay_mode mode) {
    auto& slot = mode == replay_mode::per_access ? per_access_ : atomic_;
    if (!slot) {
      auto made = visit_sequence::create(trace_, {mode == replay_mode::per_access, max_tokens_});
      if (!made) throw trace_error(fmt::format("{}: {}", trace_.name, made.error().message));
      slot = *std::move(made);
    }
    return *slot;
  }
  /// The future is shared by all runs whose visits need no splitting.
  const event_order& whole_events(replay_mode mode, const pool_layout& layout) {
    auto& slot = mode == replay_mode::per_access ? per_access_events_ : atomic_events_;
    if (!slot.future) slot = order_events(visits(mode), layout, false);
    return slot;
  }
  /// The same of what a policy numbers in it, by all whose layers share pools alike.
  std::shared_ptr<const use_order> whole_order(replay_mode mode, const pool_layout& layout) {
    auto& orders = mode == replay_mode::per_access ? per_access_orders_ : atomic_orders_;
    for (const auto& order : orders)
      if (order->fits(layout)) return order;
    orders.push_back(std::make_shared<const use_order>(layout, *whole_events(mode, layout).future));
    return orders.back();
  }
  [[nodiscard]] const routing_trace& trace() const { return trace_; }
  const usage_profile& profile(const profile_request& wanted) {
    auto& slot = profiles_[wanted];
    if (slot.counts.empty()) slot = load_profile(wanted);
    return slot;
  }

 private:
  usage_profile load_profile(const profile_request& wanted) const {
    const auto part =
        wanted.first == 0 ? std::string() : fmt::format("the first {} tokens of ", wanted.first);
    if (wanted.source == "trace")
      return {count_uses(trace_, wanted.first),
              part + "the replayed trace itself (sees the future)"};
    reading_notes notes;
    const auto other = open_trace(wanted.source, {.notes = &notes});
    if (other.layers != trace_.layers || other.experts != trace_.experts)
      throw usage_error(fmt::format("profile {} has {} layers of {} experts, accepted: {} of {}",
                                    wanted.source, other.layers, other.experts, trace_.layers,
                                    trace_.experts));
    auto said = part + wanted.source;
    for (const auto& note : notes) said += "; " + note;
    return {count_uses(other, wanted.first), said};
  }

  const routing_trace& trace_;
  std::uint32_t max_tokens_;
  std::optional<visit_sequence> atomic_, per_access_;
  event_order atomic_events_, per_access_events_;
  std::vector<std::shared_ptr<const use_order>> atomic_orders_, per_access_orders_;
  std::map<profile_request, usage_profile> profiles_;
};

/// Everything that one replay needs; made in sequence, run in parallel.
struct prepared_run {
  run_plan plan;
  cache_size size;
  const visit_sequence* visits = nullptr;
  event_order events;
  std::unique_ptr<any_pager> pager;  ///< or
  std::unique_ptr<simulated_engine> engine;
  replay_front front;
  std::vector<std::string> notes;
};

bool may_split(const visit_sequence& visits, const pool_layout& layout) {
  for (std::size_t p = 0; p < layout.pools(); ++p)
    if (static_cast<std::uint32_t>(layout.at(static_cast<pool_id>(p)).slots) <
        visits.widest_union())
      return true;
  return false;
}

constexpr const char* split_note =
    "visits are split by expert: sums change their order (not exact)";

any_predictor::config predictor_of(const policy_set& policies) {
  return make_predictor(policies.predictor, predictor_names(false, true));
}

/// Names and parameters, before anything is replayed.
void check_set(const policy_set& policies) {
  check_policies(policies.eviction, policies.admission);
  (void)make_prefetch(policies.prefetch);
  (void)parse_guard(policies.guard);
  (void)parse_fill_order(policies.prefetch_order);
  (void)make_miss(policies.miss);
  (void)make_routing(policies.routing);
  (void)predictor_of(policies);
  if (!make_pre_eviction(policies.pre_eviction) && needs_free_slots(policies.routing))
    throw usage_error(fmt::format(
        "routing policy {} does nothing without slots that were freed ahead, accepted: with "
        "--pre-eviction active_evict, or another routing policy",
        policies.routing));
}

/// Of no pager's policy: it never splits a visit.
bool stands_alone(std::string_view eviction) {
  return !asked(known_policies().eviction_of(eviction))->make;
}

void check_engine(const run_plan& plan, const sweep_request& request, const routing_trace& trace) {
  if (plan.mode != replay_mode::event_atomic && plan.mode != replay_mode::expert_by_expert)
    throw usage_error(
        fmt::format("{} replay knows neither prefetch, scores nor time; accepted: event-atomic, "
                    "expert-by-expert",
                    name_of(plan.mode)));
  if (plan.mode == replay_mode::expert_by_expert && needs_future(plan.policies.eviction))
    throw usage_error(fmt::format(
        "expert-by-expert replay numbers no events, which {} goes by; accepted: any other eviction",
        plan.policies.eviction));
  if (plan.link && trace.expert_bytes.empty())
    throw usage_error(fmt::format("link {}: {}, accepted: traces with expert bytes",
                                  plan.link->text, why_no_expert_bytes(trace)));
  if (plan.mode == replay_mode::expert_by_expert && plan.policies.prefetch_order != "nearest")
    throw usage_error("expert-by-expert replay prefetches nearest first, accepted: event-atomic");
  if (plan.mode == replay_mode::expert_by_expert && plan.policies.pre_eviction != "none")
    throw usage_error("expert-by-expert replay frees no slots ahead, accepted: event-atomic");
  if (plan.mode == replay_mode::expert_by_expert && request.costs.transient != 0)
    throw usage_error("expert-by-expert replay has no transient slots, accepted: event-atomic");
  if (request.decisions != nullptr && plan.policies.pre_eviction != "none")
    throw usage_error("decisions ahead of visits cannot be logged, accepted: --pre-eviction none");
  if (request.decisions != nullptr && prefetches(plan.policies.prefetch))
    throw usage_error("decisions of prefetches cannot be logged, accepted: --prefetch no_prefetch");
}

/// What a reader of the result must know of its policies.
std::vector<std::string> policy_notes(const policy_set& policies) {
  std::vector<std::string> notes;
  if (bends_routing(policies.routing))
    notes.push_back(fmt::format("routing by {} changes what a model computes", policies.routing));
  if (!is_exact_miss(policies.miss))
    notes.push_back(fmt::format("misses by {} change what a model computes", policies.miss));
  if (sees_future(policies.prefetch))
    notes.push_back(
        fmt::format("prefetch by {} sees the trace's future and is degraded to its stated accuracy",
                    policies.prefetch));
  return notes;
}

policy_knowledge know(const run_plan& plan, const sweep_request& request, prepared_trace& trace,
                      prepared_run& run) {
  policy_knowledge knowledge;
  const auto& eviction = plan.policies.eviction;
  if (needs_future(eviction)) {
    const bool groups = !stands_alone(eviction) && may_split(*run.visits, run.size.layout);
    run.events = groups ? order_events(*run.visits, run.size.layout, true, request.split)
                        : trace.whole_events(plan.mode, run.size.layout);
    knowledge.future = run.events.future;
    if (!groups)
      knowledge.numbered = [&trace, mode = plan.mode](const pool_layout& layout) {
        return trace.whole_order(mode, layout);
      };
  }
  if (const auto profile = requested_profile(eviction)) {
    knowledge.profile = trace.profile(*profile);
    run.notes.push_back("popularity profile: " + knowledge.profile.source);
  }
  return knowledge;
}

replay_front front_of(const run_plan& plan, const sweep_request& request, prepared_trace& trace,
                      prepared_run& run) {
  replay_front front;
  front.predictor = predictor_of(plan.policies);
  front.lessons = request.lessons;
  if (request.warm_start)
    front.start = popular_warm_keys(count_uses(*request.lessons, 0), run.size.layout);
  front.needs_scores = wants_scores(plan.policies.miss);
  if (bends_routing(plan.policies.routing)) front.routing = make_routing(plan.policies.routing);
  front.pre_eviction = make_pre_eviction(plan.policies.pre_eviction);
  front.tells_forecasts = heard_by(plan.policies.eviction).hears_forecasts;
  if (!prefetches(plan.policies.prefetch)) return front;
  usage_profile profile;
  if (const auto wanted = requested_prefetch_profile(plan.policies.prefetch)) {
    profile = trace.profile(*wanted);
    run.notes.push_back("popular prefetch profile: " + profile.source);
  }
  front.prefetch = make_prefetch(plan.policies.prefetch, profile);
  return front;
}

cache_size size_of(const run_plan& plan, const sweep_request& request, const routing_trace& trace,
                   const geometry& whole) {
  const auto shape = plan.mode == replay_mode::expert_by_expert ? one_by_one(whole) : whole;
  auto size = make_cache_size(shape, plan.scope, plan.size, plan.mode, request.size_classes);
  if (!plan.precision.several()) return size;
  if (plan.mode == replay_mode::deferred || plan.mode == replay_mode::expert_by_expert)
    throw usage_error(fmt::format(
        "{} replay knows one precision, accepted: event-atomic, per-access", name_of(plan.mode)));
  if (plan.precision.several() && trace.expert_bytes.empty())
    throw usage_error(fmt::format("precision {}: {}, accepted: traces with expert bytes",
                                  plan.precision.text, why_no_expert_bytes(trace)));
  size.layout = divide_by_precision(size.layout, with_precisions(shape, plan.precision),
                                    plan.precision.shares);
  return size;
}

pager_request pager_of(const run_plan& plan, const sweep_request& request,
                       const pool_layout& layout, const routing_trace& trace) {
  const auto& policies = plan.policies;
  pager_request out{policies.eviction, policies.admission, layout,
                    request.split,     std::nullopt,       parse_guard(policies.guard)};
  if (!fetches_everything(policies.miss)) out.miss = make_miss(policies.miss);
  if (needs_weights(policies.miss) && trace.weights.empty())
    throw usage_error(fmt::format(
        "miss policy {} goes by gate weights, and the trace has none; accepted: a trace "
        "that recorded them, or another miss policy",
        policies.miss));
  return out;
}

/// What can be said of a run before it is known who replays it.
prepared_run begin_run(const run_plan& plan, const sweep_request& request, prepared_trace& trace) {
  prepared_run run;
  run.plan = plan;
  run.visits = &trace.visits(plan.mode);
  run.size = size_of(plan, request, trace.trace(), run.visits->shape());
  if (plan.mode == replay_mode::expert_by_expert)
    run.notes.emplace_back("nothing of a visit is protected: only to compare with SpecMD");
  else if (plan.mode != replay_mode::deferred)
    if (auto warning = cliff_warning(run.size.layout)) run.notes.push_back(*std::move(warning));
  return run;
}

prepared_run prepare(const run_plan& plan, const sweep_request& request, prepared_trace& trace) {
  auto run = begin_run(plan, request, trace);
  const bool one_expert = plan.mode == replay_mode::expert_by_expert;
  const auto& shape = run.visits->shape();
  const auto& policies = plan.policies;
  if (stands_alone(policies.eviction) && plan.mode == replay_mode::deferred)
    throw usage_error("belady_bypass has no deferred replay, accepted: event-atomic, per-access");
  if (stands_alone(policies.eviction) && request.decisions != nullptr)
    throw usage_error(
        "belady_bypass has no slots whose decisions could be logged, accepted: any other policy");
  const auto knowledge = know(plan, request, trace, run);
  for (auto& note : policy_notes(policies)) run.notes.push_back(std::move(note));
  const auto wanted = pager_of(plan, request, run.size.layout, trace.trace());
  if (!needs_engine(plan, request)) {
    if (heard_by(policies.eviction).hears_forecasts)
      run.notes.push_back(fmt::format("{} goes by the past alone: {} replay knows no forecasts",
                                      policies.eviction, name_of(plan.mode)));
    run.pager = make_pager(wanted, knowledge);
    return run;
  }
  check_engine(plan, request, trace.trace());
  run.front = front_of(plan, request, trace, run);
  if (const auto bad = check_front(trace.trace(), run.front)) throw usage_error(bad->message);
  if (run.front.tells_forecasts && !tells_of_forecasts(trace.trace(), run.front))
    run.notes.push_back(fmt::format(
        "{} goes by the past alone: the trace has no predictions for it", policies.eviction));
  const auto clock = plan.link ? plan.link->clock() : engine_clock{};
  const auto costs = plan.link ? request.costs : visit_costs{};
  run.engine = one_expert
                   ? make_expert_engine(wanted, knowledge, shape, clock, costs)
                   : make_engine(wanted, knowledge, clock, costs,
                                 {.queue = {.order = parse_fill_order(policies.prefetch_order)}});
  return run;
}

/// Told once, however many sizes it is left out of.
void leave_out(const policy_set& policies, const usage_error& why,
               std::vector<std::string>& not_replayed) {
  const auto& name = policies.preset.empty() ? policies.eviction : policies.preset;
  auto line = fmt::format("{}: {}", name, why.what());
  if (std::ranges::find(not_replayed, line) == not_replayed.end())
    not_replayed.push_back(std::move(line));
}

/// Those of the request's that the names in them allow.
std::vector<policy_set> sets_that_work(const sweep_request& request,
                                       std::vector<std::string>& not_replayed) {
  std::vector<policy_set> out;
  for (const auto& policies : request.policies) {
    try {
      check_set(policies);
      out.push_back(policies);
    } catch (const usage_error& why) {
      if (!request.leaves_out) throw;
      leave_out(policies, why, not_replayed);
    }
  }
  return out;
}

/// Without those whose size is too small, if the request leaves them out. Errors: infeasible_error if none remains.
std::vector<run_plan> plans_that_fit(std::vector<run_plan> plans, const sweep_request& request,
                                     prepared_trace& trace,
                                     std::vector<std::string>& not_replayed) {
  if (!request.leaves_out_sizes) return plans;
  std::optional<infeasible_error> first;
  const auto too_small = [&](const run_plan& plan) {
    try {
      (void)size_of(plan, request, trace.trace(), trace.visits(plan.mode).shape());
    } catch (const infeasible_error& why) {
      if (!first) first = why;
      auto line = fmt::format("scope {}, {}", name_of(plan.scope), why.what());
      if (std::ranges::find(not_replayed, line) == not_replayed.end())
        not_replayed.push_back(std::move(line));
      return true;
    } catch (const usage_error&) {  // refused, or left out, when it is prepared
    }
    return false;
  };
  const auto any = !plans.empty();
  std::erase_if(plans, too_small);
  if (any && plans.empty()) throw infeasible_error(*first);
  return plans;
}

std::optional<prepared_run> prepare_unless_left_out(const run_plan& plan,
                                                    const sweep_request& request,
                                                    prepared_trace& trace,
                                                    std::vector<std::string>& not_replayed) {
  try {
    return prepare(plan, request, trace);
  } catch (const usage_error& why) {
    if (!request.leaves_out) throw;
    leave_out(plan.policies, why, not_replayed);
    return std::nullopt;
  }
}

std::uint64_t slots_of(const prepared_run& run) {
  if (run.plan.mode != replay_mode::deferred) return run.size.layout.slots();
  // Deferred replay has a place for every key; what it may keep is what the budget holds.
  const auto& shape = run.size.layout.shape();
  std::uint64_t slots = 0;
  for (std::size_t p = 0; p < run.size.layout.pools(); ++p) {
    const auto& pool = run.size.layout.at(static_cast<pool_id>(p));
    std::uint64_t largest = 1;
    for (const auto l : pool.layers) largest = std::max(largest, shape.bytes_of(l));
    slots += std::min<std::uint64_t>(run.size.pool_bytes[p] / largest,
                                     static_cast<std::uint64_t>(pool.slots));
  }
  return slots;
}

/// How far all replays are together, told by any of them.
class sweep_progress {
 public:
  sweep_progress(const progress_report& report, std::uint64_t total)
      : report_(report), total_(total) {}

  /// Of one replay, which tells how far it is itself.
  template <class Replay>
  void during(std::uint64_t visits, Replay replay) {
    std::uint64_t told = 0;
    const auto tell = [&](std::uint64_t done) { add(done - std::exchange(told, done)); };
    {
      const progress_scope scope(
          report_ ? progress_report([&](std::uint64_t done, std::uint64_t) { tell(done); })
                  : progress_report());
      replay();
    }
    tell(visits);
  }

 private:
  void add(std::uint64_t visits) {
    if (!report_) return;
    const std::lock_guard lock(mutex_);
    done_ += visits;
    report_(done_, total_);
  }

  const progress_report& report_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

/// What was asked for, and nothing of what came of it.
run_result result_of(const prepared_run& run) {
  run_result out;
  out.policies = run.plan.policies;
  out.scope = name_of(run.plan.scope);
  out.replay = name_of(run.plan.mode);
  out.precision = run.plan.precision.text;
  if (run.plan.link) out.link = run.plan.link->text;
  out.slots = slots_of(run);
  out.size = run.plan.size.text;
  if (run.plan.size.what == size_request::unit::bytes) out.budget_bytes = run.plan.size.count;
  return out;
}

run_result execute(prepared_run& run, const routing_trace& trace, const sweep_request& request,
                   std::size_t index) {
  std::optional<decision_log> log;
  if (request.decisions != nullptr) log.emplace(*request.decisions, index);
  std::optional<timeline> times;
  if (request.timeline != nullptr) times.emplace(*request.timeline);
  auto out = result_of(run);
  if (run.engine) {
    run.engine->watch(log ? &*log : nullptr, times ? &*times : nullptr, times ? &*times : nullptr);
    out.outcome = replay_timed(trace, *run.visits, run.events, *run.engine, run.front);
    out.stats = run.engine->stats();
    out.decision_hash = run.engine->decision_hash();
    if (request.split == visit_split::by_expert) run.notes.emplace_back(split_note);
  } else {
    if (log) run.pager->watch(&*log);
    replay(*run.visits, run.events, *run.pager, run.size.layout, run.size.pool_bytes);
    out.stats = run.pager->stats();
    out.decision_hash = run.pager->decision_hash();
    for (auto& note : run.pager->notes()) run.notes.push_back(std::move(note));
  }
  if (times) times->finish();
  out.notes = std::move(run.notes);
  run.pager.reset();
  run.engine.reset();
  return out;
}

/// A run whose counts need no pager of its own.
struct counted_run {
  std::size_t index = 0;  ///< of its plan
  prepared_run run;
};
/// Runs of one policy that are counted in one walk: their sizes are those of a size_ladder.
using counted_runs = std::vector<counted_run>;

/// What a plain pager does with the policy's name alone.
bool may_be_counted(const run_plan& plan, const sweep_request& request) {
  const auto& policies = plan.policies;
  const policy_set plain;
  return counts_together(policies.eviction) && policies.admission == plain.admission &&
         policies.guard == plain.guard && policies.miss == plain.miss &&
         (plan.mode == replay_mode::event_atomic || plan.mode == replay_mode::per_access) &&
         request.split == visit_split::by_token && !plan.precision.several() &&
         !is_more_than_paging(plan, request);
}

/// Nothing where it has to be replayed; one that cannot be done is left to that, too, and refused in its turn.
std::optional<prepared_run> begin_counted(const run_plan& plan, const sweep_request& request,
                                          prepared_trace& trace) {
  if (!may_be_counted(plan, request)) return std::nullopt;
  try {
    auto run = begin_run(plan, request, trace);
    if (!counts_together(plan.policies.eviction, *run.visits, run.size.layout)) return std::nullopt;
    return run;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool share_visits(const run_plan& a, const run_plan& b) {
  return a.policies.eviction == b.policies.eviction && a.mode == b.mode && a.scope == b.scope;
}

/// Cuts runs that share their visits where the sizes do not ascend in every pool.
void add_ladders(counted_runs runs, std::vector<counted_runs>& out) {
  std::ranges::stable_sort(runs, {}, [](const auto& c) { return c.run.size.layout.slots(); });
  counted_runs ladder;
  for (auto& counted : runs) {
    if (!ladder.empty() &&
        (ladder.size() == size_ladder::most_sizes ||
         !size_ladder::ascend(ladder.back().run.size.layout, counted.run.size.layout)))
      out.push_back(std::exchange(ladder, {}));
    ladder.push_back(std::move(counted));
  }
  if (!ladder.empty()) out.push_back(std::move(ladder));
}

std::vector<counted_runs> runs_to_count(const std::vector<run_plan>& plans,
                                        const sweep_request& request, prepared_trace& trace) {
  std::vector<counted_runs> alike;
  if (!request.counts_alone || request.decisions != nullptr || request.timeline != nullptr)
    return alike;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto run = begin_counted(plans[i], request, trace);
    if (!run) continue;
    const auto same = [&](const auto& runs) {
      return share_visits(runs.front().run.plan, plans[i]);
    };
    auto at = std::ranges::find_if(alike, same);
    if (at == alike.end()) at = alike.emplace(at);
    at->push_back({i, *std::move(run)});
  }
  std::vector<counted_runs> out;
  for (auto& runs : alike) add_ladders(std::move(runs), out);
  return out;
}

/// Where workers would be idle, cuts runs whose sizes have pagers: what they share is worked out once a part.
void share_out(std::vector<counted_runs>& ladders, std::size_t other_works, unsigned jobs) {
  const auto pagers = [](const counted_runs& runs) {
    return has_pagers(runs.front().run.plan.policies.eviction) ? runs.size() : 0;
  };
  while (!ladders.empty() && ladders.size() + other_works < jobs) {
    auto& most = *std::ranges::max_element(ladders, {}, pagers);
    if (pagers(most) < 2) return;
    const auto half = most.begin() + static_cast<std::ptrdiff_t>(most.size() / 2);
    counted_runs part(std::make_move_iterator(half), std::make_move_iterator(most.end()));
    most.erase(half, most.end());
    ladders.push_back(std::move(part));
  }
}

/// The plans that are not among them.
std::vector<std::size_t> others(std::size_t plans, const std::vector<counted_runs>& counted) {
  std::vector<bool> taken(plans, false);
  for (const auto& runs : counted)
    for (const auto& one : runs) taken[one.index] = true;
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < plans; ++i)
    if (!taken[i]) out.push_back(i);
  return out;
}

/// Of an engine's replay in which nothing is timed, and every miss is fetched.
replay_outcome untimed_outcome(const visit_sequence& visits) {
  replay_outcome out;
  for (const auto weight : visits.weights()) out.mass.routed += double{weight};
  return out;
}

void count(counted_runs& runs, const sweep_request& request,
           std::vector<std::optional<run_result>>& results) {
  std::vector<const pool_layout*> layouts;
  for (const auto& counted : runs) layouts.push_back(&counted.run.size.layout);
  const auto& first = runs.front().run;
  auto counts = count_together(first.plan.policies.eviction, *first.visits, layouts);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto& [index, run] = runs[i];
    auto& out = results[index].emplace(result_of(run));
    out.stats = std::move(counts[i].stats);
    out.decision_hash = counts[i].decision_hash;
    if (needs_engine(run.plan, request)) out.outcome = untimed_outcome(*run.visits);
    out.notes = std::move(run.notes);
  }
}

/// Each in its turn by whoever is free: shares of the list, as parallel_for deals them out, take one worker twice as long as another.
template <class Run>
void run_all(std::size_t works, unsigned jobs, Run run) {
  std::atomic<std::size_t> next{0};
  const auto work = [&](unsigned) {
    try {
      for (auto n = next++; n < works; n = next++) run(n);
    } catch (...) {
      next = works;
      throw;
    }
  };
  if (jobs <= 1) return work(0);
  tbb::task_arena arena(static_cast<int>(jobs));
  arena.execute([&] { tbb::parallel_for(0U, jobs, work, tbb::simple_partitioner()); });
}

}  // namespace

engine_clock link_request::clock() const {
  engine_clock out{link_model(link), {write_back}};
  if (write_back == write_back_way::none) return out;
  out.back.link = link_model(back.bytes_per_second == 0 ? link : back);
  out.back.spares = spares;
  return out;
}

std::vector<double> count_uses(const routing_trace& trace, std::uint64_t tokens) {
  const auto shape = trace.shape();
  std::vector<double> counts(shape.keys(), 0);
  const auto rows = tokens == 0 ? trace.tokens() : std::min<std::size_t>(trace.tokens(), tokens);
  for (std::size_t t = 0; t < rows; ++t)
    for (const auto l : each<layer_id>(trace.layers))
      for (const auto e : trace.ids_of(t, l))
        if (e >= 0) counts[shape.index({l, e})] += 1;
  return counts;
}

sweep_result run_sweep(const routing_trace& trace, const sweep_request& request) {
  if (request.sizes.empty())
    throw usage_error("no size, accepted: --slots 5%,64 or --budget 1500MiB");
  if (request.warm_start && request.lessons == nullptr)
    throw usage_error("a warm start from nothing, accepted: --warm-start with --learn-from TRACE");
  sweep_result out{trace.name, trace.layers, trace.experts, trace.top_k, trace.tokens(), 0, {}, {}};
  const auto policies = sets_that_work(request, out.not_replayed);
  prepared_trace prepared(trace, request.max_tokens);
  const auto plans =
      plans_that_fit(combinations(request, policies), request, prepared, out.not_replayed);
  if (request.timeline != nullptr && (plans.size() != 1 || !plans.front().link))
    throw usage_error(fmt::format(
        "a timeline of {}, accepted: one run with a link",
        plans.size() == 1 ? "a run without a link" : fmt::format("{} runs", plans.size())));
  out.visits = prepared.visits(replay_mode::event_atomic).size();
  std::vector<std::optional<run_result>> results(plans.size());
  std::uint64_t visits = 0;
  for (const auto& plan : plans) visits += prepared.visits(plan.mode).size();
  sweep_progress progress(request.progress, visits);
  auto counted = runs_to_count(plans, request, prepared);
  const auto replayed = others(plans.size(), counted);
  out.together = plans.size() - replayed.size();
  const auto jobs = request.decisions != nullptr ? 1U : request.jobs;
  share_out(counted, replayed.size(), jobs);
  std::mutex mutex;
  const auto count_some = [&](counted_runs& runs) {
    progress.during(runs.front().run.visits->size() * runs.size(),
                    [&] { count(runs, request, results); });
  };
  const auto replay_one = [&](std::size_t i) {
    std::unique_lock lock(mutex);
    auto run = prepare_unless_left_out(plans[i], request, prepared, out.not_replayed);
    lock.unlock();
    progress.during(prepared.visits(plans[i].mode).size(), [&] {
      if (run) results[i] = execute(*run, trace, request, i);
    });
  };
  const auto run_one = [&](std::size_t n) {
    n < counted.size() ? count_some(counted[n]) : replay_one(replayed[n - counted.size()]);
  };
  const auto works = counted.size() + replayed.size();
  run_all(works, jobs, run_one);
  for (auto& result : results)
    if (result) out.results.push_back(*std::move(result));
  std::ranges::sort(out.not_replayed);
  return out;
}

}  // namespace hotset::lab
