// SPDX-License-Identifier: Apache-2.0
// Three stages over values: plan (parse names, list combinations), run (prepare and replay each plan), report.
#include "lab/replay/sweep.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hotset/paging/explain.hpp"
#include "hotset/paging/residency/warm_start.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "hotset/version.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/replay/expert_engine.hpp"
#include "lab/replay/finished_runs.hpp"
#include "lab/replay/part_counts.hpp"
#include "lab/replay/run_all.hpp"
#include "lab/traces/expert_counts.hpp"
#include "lab/traces/open_trace.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/trace_hash.hpp"

namespace hotset::lab {

namespace {

/// One combination of a request's lists.
struct run_plan {
  const chosen_policies* policies = nullptr;
  cache_scope scope = cache_scope::shared;
  replay_mode mode = replay_mode::event_atomic;
  size_request size{};
  precision_ladder precision{};
  std::optional<link_request> link{};

  [[nodiscard]] bool by_expert() const { return mode == replay_mode::expert_by_expert; }
};

/// A trace in the two forms that replays use, and shared data of replays. Each part is built on first use.
class prepared_trace {
 public:
  prepared_trace(const routing_trace& trace, std::uint32_t max_tokens)
      : trace_(trace), max_tokens_(max_tokens) {}

  [[nodiscard]] const routing_trace& trace() const { return trace_; }
  const visit_sequence& visits(replay_mode mode) {
    auto& form = form_of(mode);
    if (!form.visits) {
      auto made = visit_sequence::create(trace_, {mode == replay_mode::per_access, max_tokens_});
      if (!made) throw trace_error(fmt::format("{}: {}", trace_.name, made.error().message));
      form.visits = *std::move(made);
    }
    return *form.visits;
  }
  /// Event order of all runs whose visits need no splitting.
  const event_order& whole_events(replay_mode mode, const pool_layout& layout) {
    auto& form = form_of(mode);
    if (!form.events.future) form.events = order_events(visits(mode), layout, false);
    return form.events;
  }
  /// That order as policies number it, for all runs whose layers share pools alike.
  std::shared_ptr<const use_order> whole_order(replay_mode mode, const pool_layout& layout) {
    auto& orders = form_of(mode).orders;
    for (const auto& order : orders)
      if (order->fits(layout)) return order;
    orders.push_back(std::make_shared<const use_order>(layout, *whole_events(mode, layout).future));
    return orders.back();
  }
  const usage_profile& profile(const profile_request& wanted) {
    auto& slot = profiles_[wanted];
    if (slot.counts.empty()) slot = load_profile(wanted);
    return slot;
  }

 private:
  struct walked_form {
    std::optional<visit_sequence> visits{};
    event_order events{};
    std::vector<std::shared_ptr<const use_order>> orders{};
  };
  walked_form& form_of(replay_mode mode) { return forms_[mode == replay_mode::per_access ? 1 : 0]; }
  usage_profile load_profile(const profile_request& wanted) const {
    const auto part =
        wanted.first == 0 ? std::string() : fmt::format("the first {} tokens of ", wanted.first);
    if (wanted.source == "trace")
      return {count_uses(trace_, wanted.first).uses,
              part + "the replayed trace itself (sees the future)"};
    reading_notes notes;
    const auto other = open_trace(wanted.source, {.notes = &notes});
    if (other.layers != trace_.layers || other.experts != trace_.experts)
      throw usage_error(fmt::format("profile {} has {} layers of {} experts, accepted: {} of {}",
                                    wanted.source, other.layers, other.experts, trace_.layers,
                                    trace_.experts));
    auto said = part + wanted.source;
    for (const auto& note : notes) said += "; " + note;
    return {count_uses(other, wanted.first).uses, said};
  }

  const routing_trace& trace_;
  std::uint32_t max_tokens_;
  std::array<walked_form, 2> forms_;  // event-atomic, per access
  std::map<profile_request, usage_profile> profiles_;
};

// --- plan

void add_once(std::string line, std::vector<std::string>& reported) {
  if (std::ranges::find(reported, line) == reported.end()) reported.push_back(std::move(line));
}

void leave_out(const policy_set& policies, const usage_error& why,
               std::vector<std::string>& not_replayed) {
  const auto& name = policies.preset.empty() ? policies.eviction : policies.preset;
  add_once(fmt::format("{}: {}", name, why.what()), not_replayed);
}

void refuse_if(bool wrong, const std::string& why) {
  if (wrong) throw usage_error(why);
}

/// True if something of the set asks a predictor.
bool asks_predictor(const chosen_policies& set) {
  return set.prefetch.needs == forecast_need::probabilities || set.pre_eviction ||
         set.eviction->traits.wants_forecasts;
}

/// Refuses choices that no set goes by. A preset's own choices may be replaced by others.
/// Errors: usage_error.
void refuse_unused(const std::vector<chosen_policies>& sets) {
  if (sets.empty()) return;
  const auto is_chosen = [&](std::string policy_set::*kind) {
    return std::ranges::any_of(sets, [&](const chosen_policies& set) {
      return set.names.preset.empty() && set.names.*kind != policy_set{}.*kind;
    });
  };
  const bool prefetches =
      std::ranges::any_of(sets, [](const auto& set) { return set.prefetcher.has_value(); });
  refuse_if(std::ranges::none_of(sets, asks_predictor) && is_chosen(&policy_set::predictor),
            "no policy goes by the predictor, accepted: with a --prefetch, --pre-eviction or "
            "--eviction that does");
  refuse_if(
      !prefetches && (is_chosen(&policy_set::guard) || is_chosen(&policy_set::prefetch_order)),
      "nothing is prefetched, accepted: --prefetch-guard and --prefetch-order with --prefetch");
}

std::vector<chosen_policies> read_sets(const sweep_request& request,
                                       std::vector<std::string>& not_replayed) {
  std::vector<chosen_policies> out;
  for (const auto& names : request.policies) {
    try {
      out.push_back(read_policies(names));
    } catch (const usage_error& why) {
      if (!request.leaves_out) throw;
      leave_out(names, why, not_replayed);
    }
  }
  refuse_unused(out);
  return out;
}

std::vector<run_plan> combinations(const sweep_request& request,
                                   const std::vector<chosen_policies>& sets) {
  auto ladders = request.precisions;
  if (ladders.empty()) ladders.emplace_back();
  std::vector<std::optional<link_request>> links(request.links.begin(), request.links.end());
  if (links.empty()) links.emplace_back();
  std::vector<run_plan> plans;
  for (const auto mode : request.replays)
    for (const auto scope : request.scopes)
      for (const auto& size : request.sizes)
        for (const auto& ladder : ladders)
          for (const auto& link : links)
            for (const auto& policies : sets)
              plans.push_back({&policies, scope, mode, size, ladder, link});
  return plans;
}

void check_bytes(const sweep_request& request, const routing_trace& trace) {
  if (!trace.expert_bytes.empty()) return;
  const auto refuse = [&](const std::string& option, const char* instead = "") {
    throw usage_error(fmt::format("{}: {}: {}; accepted: --expert-bytes SIZE{}", trace.name, option,
                                  why_no_expert_bytes(trace), instead));
  };
  for (const auto& size : request.sizes)
    if (size.what == size_request::unit::bytes)
      refuse("--budget " + size.text, ", or sizes in --slots");
  for (const auto& link : request.links) refuse("--link " + link.text);
  for (const auto& ladder : request.precisions)
    if (ladder.several()) refuse("--precision " + ladder.text);
}

cache_size size_of(const run_plan& plan, const sweep_request& request, const geometry& whole) {
  const auto shape = plan.by_expert() ? one_by_one(whole) : whole;
  auto size = make_cache_size(shape, plan.scope, plan.size, plan.mode, request.size_classes);
  if (!plan.precision.several()) return size;
  if (plan.mode == replay_mode::deferred || plan.by_expert())
    throw usage_error(fmt::format(
        "{} replay knows one precision, accepted: event-atomic, per-access", name_of(plan.mode)));
  size.layout = divide_by_precision(size.layout, with_precisions(shape, plan.precision),
                                    plan.precision.shares);
  return size;
}

/// Drops plans with a too small size if the request allows it. Errors: infeasible_error if none remains.
void drop_small_sizes(std::vector<run_plan>& plans, const sweep_request& request,
                      prepared_trace& trace, std::vector<std::string>& not_replayed) {
  if (!request.leaves_out_sizes || plans.empty()) return;
  std::optional<infeasible_error> first;
  std::erase_if(plans, [&](const run_plan& plan) {
    try {
      (void)size_of(plan, request, trace.visits(plan.mode).shape());
    } catch (const infeasible_error& why) {
      if (!first) first = why;
      add_once(fmt::format("scope {}, {}", name_of(plan.scope), why.what()), not_replayed);
      return true;
    } catch (const usage_error&) {  // refused, or left out, when the plan is prepared
    }
    return false;
  });
  if (plans.empty()) throw infeasible_error(*first);
}

// --- run

/// Whether a run needs a simulated engine instead of a pager alone.
bool needs_engine(const run_plan& plan, const sweep_request& request) {
  const auto& chosen = *plan.policies;
  const auto& hears = chosen.eviction->traits;
  return plan.link || request.warm_start || plan.by_expert() || chosen.prefetcher ||
         chosen.routing || chosen.miss.needs_logits || chosen.pre_eviction ||
         (plan.mode == replay_mode::event_atomic && (hears.wants_routes || hears.wants_forecasts));
}

/// Everything that one replay needs; prepared sequentially, run in parallel.
struct prepared_run {
  const run_plan* plan = nullptr;
  cache_size size;
  const visit_sequence* visits = nullptr;
  event_order events;
  // Exactly one of these is used.
  std::optional<erased_pager> pager;
  std::unique_ptr<belady_bypass> bound;
  std::unique_ptr<simulated_engine> engine;
  replay_front front;
  std::vector<std::string> notes;
};

bool may_split(const visit_sequence& visits, const pool_layout& layout) {
  for (const auto pool : each<pool_id>(layout.pools()))
    if (static_cast<std::uint32_t>(layout.at(pool).slots) < visits.widest_union()) return true;
  return false;
}

void check_pager(const run_plan& plan, const sweep_request& request) {
  const bool deferred = plan.mode == replay_mode::deferred;
  const bool alone = plan.policies->stands_alone();
  const bool logs = request.decisions != nullptr;
  refuse_if(alone && deferred,
            "belady_bypass has no deferred replay, accepted: event-atomic, per-access");
  refuse_if(alone && logs,
            "belady_bypass has no slots whose decisions could be logged, accepted: any other "
            "policy");
  refuse_if(deferred && logs,
            "decisions of deferred replay cannot be logged, accepted: other replays");
}

void check_engine(const run_plan& plan, const sweep_request& request) {
  const auto& chosen = *plan.policies;
  const bool by_expert = plan.by_expert();
  refuse_if(plan.mode != replay_mode::event_atomic && !by_expert,
            fmt::format("{} replay knows neither prefetch, scores nor time; accepted: "
                        "event-atomic, expert-by-expert",
                        name_of(plan.mode)));
  refuse_if(by_expert && chosen.eviction->traits.needs_future,
            fmt::format("expert-by-expert replay numbers no events, which {} goes by; accepted: "
                        "any other eviction",
                        chosen.names.eviction));
  refuse_if(by_expert && chosen.order != fill_order::nearest,
            "expert-by-expert replay prefetches nearest first, accepted: event-atomic");
  refuse_if(by_expert && chosen.pre_eviction,
            "expert-by-expert replay frees no slots ahead, accepted: event-atomic");
  refuse_if(by_expert && request.costs.transient != 0,
            "expert-by-expert replay has no transient slots, accepted: event-atomic");
  refuse_if(request.decisions != nullptr && chosen.pre_eviction,
            "decisions ahead of visits cannot be logged, accepted: --pre-eviction none");
  refuse_if(request.decisions != nullptr && chosen.prefetcher,
            "decisions of prefetches cannot be logged, accepted: --prefetch no_prefetch");
}

/// Adds notes if the policies change what is computed, or see the future.
void note_policies(const chosen_policies& chosen, std::vector<std::string>& notes) {
  if (chosen.routing)
    notes.push_back(
        fmt::format("routing by {} changes what a model computes", chosen.names.routing));
  if (!chosen.miss.is_exact)
    notes.push_back(fmt::format("misses by {} change what a model computes", chosen.names.miss));
  if (chosen.prefetch.needs == forecast_need::truth)
    notes.push_back(
        fmt::format("prefetch by {} sees the trace's future and is degraded to its stated accuracy",
                    chosen.names.prefetch));
}
void note_size(const run_plan& plan, const pool_layout& layout, std::vector<std::string>& notes) {
  if (plan.by_expert())
    notes.emplace_back("nothing of a visit is protected: only to compare with SpecMD");
  else if (plan.mode != replay_mode::deferred)
    if (auto warning = cliff_warning(layout)) notes.push_back(*std::move(warning));
}

policy_knowledge know(prepared_run& run, const sweep_request& request, prepared_trace& trace) {
  policy_knowledge knowledge;
  const auto& chosen = *run.plan->policies;
  if (chosen.eviction->traits.needs_future) {
    const bool groups = !chosen.stands_alone() && may_split(*run.visits, run.size.layout);
    const auto mode = run.plan->mode;
    run.events = groups ? order_events(*run.visits, run.size.layout, true, request.split)
                        : trace.whole_events(mode, run.size.layout);
    knowledge.future = run.events.future;
    if (!groups)
      knowledge.numbered = [&trace, mode](const pool_layout& layout) {
        return trace.whole_order(mode, layout);
      };
  }
  if (chosen.profile) {
    knowledge.profile = trace.profile(*chosen.profile);
    run.notes.push_back("popularity profile: " + knowledge.profile.source);
  }
  return knowledge;
}

replay_front front_of(prepared_run& run, const sweep_request& request, prepared_trace& trace) {
  const auto& chosen = *run.plan->policies;
  replay_front front;
  front.predictor = chosen.predictor;
  front.lessons = request.lessons;
  if (request.warm_start)
    front.start = popular_warm_keys(count_uses(*request.lessons, 0).uses, run.size.layout);
  front.needs_scores = chosen.miss.needs_logits;
  front.routing = chosen.routing;
  front.pre_eviction = chosen.pre_eviction;
  front.tells_forecasts = chosen.eviction->traits.wants_forecasts;
  front.prefetch = chosen.prefetcher;
  if (chosen.prefetch_profile) {
    const auto& profile = trace.profile(*chosen.prefetch_profile);
    run.notes.push_back("popular prefetch profile: " + profile.source);
    front.prefetch = make_prefetch(chosen.names.prefetch, profile);
  }
  return front;
}

pager_request pager_of(const prepared_run& run, const sweep_request& request,
                       const routing_trace& trace) {
  const auto& chosen = *run.plan->policies;
  if (chosen.miss.needs_weights && trace.weights.empty())
    throw usage_error(fmt::format(
        "miss policy {} goes by gate weights, and the trace has none; accepted: a trace "
        "that recorded them, or another miss policy",
        chosen.names.miss));
  return {chosen.names.eviction, chosen.names.admission, run.size.layout,
          request.split,         chosen.misses,          chosen.guard};
}

std::unique_ptr<simulated_engine> engine_of(const prepared_run& run, const pager_request& wanted,
                                            const policy_knowledge& knowledge,
                                            const sweep_request& request) {
  const auto& plan = *run.plan;
  const auto clock = plan.link ? plan.link->clock() : engine_clock{};
  const auto costs = plan.link ? request.costs : visit_costs{};
  if (plan.by_expert())
    return make_expert_engine(wanted, knowledge, run.visits->shape(), clock, costs);
  return make_engine(wanted, knowledge, clock, costs, {.queue = {.order = plan.policies->order}});
}

prepared_run prepare(const run_plan& plan, const sweep_request& request, prepared_trace& trace) {
  prepared_run run;
  run.plan = &plan;
  run.visits = &trace.visits(plan.mode);
  run.size = size_of(plan, request, run.visits->shape());
  note_size(plan, run.size.layout, run.notes);
  check_pager(plan, request);
  const auto& chosen = *plan.policies;
  const auto knowledge = know(run, request, trace);
  note_policies(chosen, run.notes);
  const auto wanted = pager_of(run, request, trace.trace());
  const auto& eviction = chosen.names.eviction;
  if (needs_engine(plan, request)) {
    check_engine(plan, request);
    run.front = front_of(run, request, trace);
    if (const auto bad = check_front(trace.trace(), run.front)) throw usage_error(bad->message);
    if (run.front.tells_forecasts && !tells_of_forecasts(trace.trace(), run.front))
      run.notes.push_back(
          fmt::format("{} goes by the past alone: the trace has no predictions for it", eviction));
    run.engine = engine_of(run, wanted, knowledge, request);
  } else if (chosen.stands_alone()) {
    check_precisions(eviction, run.size.layout, wanted.miss.has_value());
    run.bound = std::make_unique<belady_bypass>(
        run.size.layout, belady::config{knowledge.future, knowledge.numbered});
    return run;
  } else {
    if (chosen.eviction->traits.wants_forecasts)
      run.notes.push_back(fmt::format("{} goes by the past alone: {} replay knows no forecasts",
                                      eviction, name_of(plan.mode)));
    run.pager.emplace(make_pager(wanted, knowledge));
  }
  if (request.lessons != nullptr && !request.warm_start && !asks_predictor(chosen))
    run.notes.emplace_back("--learn-from has no effect: no policy goes by a predictor");
  if (request.split == visit_split::by_expert)
    run.notes.emplace_back("visits are split by expert: sums change their order (not exact)");
  return run;
}

// --- report

std::uint64_t slots_of(const prepared_run& run) {
  if (run.plan->mode != replay_mode::deferred) return run.size.layout.slots();
  // Deferred replay has a slot for every key; the budget limits what it keeps.
  const auto& shape = run.size.layout.shape();
  std::uint64_t slots = 0;
  for (const auto p : each<pool_id>(run.size.layout.pools())) {
    const auto& pool = run.size.layout.at(p);
    std::uint64_t largest = 1;
    for (const auto l : pool.layers) largest = std::max(largest, shape.bytes_of(l));
    slots += std::min<std::uint64_t>(run.size.pool_bytes[index_of(p)] / largest,
                                     static_cast<std::uint64_t>(pool.slots));
  }
  return slots;
}

std::vector<std::optional<std::uint64_t>> layer_slots_of(const prepared_run& run) {
  const auto& layout = run.size.layout;
  std::vector<std::optional<std::uint64_t>> out(layout.shape().layer_count());
  if (run.plan->mode == replay_mode::deferred) return out;
  for (const auto pool : each<pool_id>(layout.pools())) {
    const auto& one = layout.at(pool);
    if (one.layers.size() != 1) continue;
    auto& slots = out[index_of(one.layers.front())];
    slots = slots.value_or(0) + static_cast<std::uint64_t>(one.slots);
  }
  return out;
}

/// The run as requested.
run_result requested(const run_plan& plan) {
  run_result out;
  out.policies = plan.policies->names;
  out.scope = name_of(plan.scope);
  out.replay = name_of(plan.mode);
  out.precision = plan.precision.text;
  if (plan.link) out.link = plan.link->text;
  out.size = plan.size.text;
  if (plan.size.what == size_request::unit::bytes) out.budget_bytes = plan.size.count;
  return out;
}
/// The run as requested, with its slots and without its outcome.
run_result result_of(const prepared_run& run) {
  auto out = requested(*run.plan);
  out.layer_slots = layer_slots_of(run);
  out.slots = slots_of(run);
  return out;
}

/// Whether a visit hits the experts that are resident before it: then sequences can be counted.
bool hits_are_residents(const run_plan& plan) {
  return !plan.by_expert() && !plan.precision.several();
}

/// Processor time of this thread: unlike elapsed time, it excludes waiting for other replays.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

run_result execute(prepared_run run, const routing_trace& trace, const sweep_request& request,
                   std::size_t index) {
  std::optional<decision_log> log;
  if (request.decisions != nullptr) log.emplace(*request.decisions, index);
  std::optional<timeline> times;
  if (request.timeline != nullptr) times.emplace(*request.timeline);
  std::optional<part_counts> counted;
  if (request.parts) counted.emplace(trace, *run.visits, hits_are_residents(*run.plan));
  auto* const parts = counted ? &*counted : nullptr;
  auto out = result_of(run);
  if (run.engine) {
    run.engine->watch(log ? &*log : nullptr, times ? &*times : nullptr, parts);
    out.outcome = replay_timed(trace, *run.visits, run.events, *run.engine, run.front, parts);
    out.stats = run.engine->stats();
    out.decision_hash = run.engine->decision_hash();
  } else if (run.bound) {
    replay(*run.visits, *run.bound, parts);
    out.stats = run.bound->stats();
    out.decision_hash = run.bound->decision_hash();
    run.notes.push_back(run.bound->note());
  } else {
    replay(*run.visits, run.events, *run.pager, log ? &*log : nullptr, run.size.pool_bytes, parts);
    out.stats = run.pager->stats();
    out.decision_hash = run.pager->decision_hash();
  }
  if (times) times->finish();
  out.notes = std::move(run.notes);
  if (counted) {
    out.windows = counted->take_windows();
    out.by_sequence = counted->take_sequences();
  }
  return out;
}

// --- keys

/// Names the contents of the files in the text of a policy, such as learned-gate:weights=FILE.
std::string contents_of_files(std::string_view policy) {
  std::string hashes;
  for (auto at = policy.find('='); at != std::string_view::npos; at = policy.find('=', at + 1)) {
    const auto end = std::min(policy.find_first_of(":+", at), policy.size());
    const auto value = policy.substr(at + 1, end - at - 1);
    std::error_code bad;
    if (std::filesystem::is_regular_file(value, bad))
      hashes += fmt::format("|{:x}", text_hash(mapped_file(value).text()));
    else if (policy.substr(0, at).ends_with("profile") && std::filesystem::is_directory(value, bad))
      for (const auto& file : read_input(value))
        hashes += fmt::format("|{}|{:x}", file.name, text_hash(file.text));
  }
  return hashes;
}

std::string key_of(const run_plan& plan, const sweep_request& request) {
  if (request.inputs.empty()) return {};
  const auto& p = plan.policies->names;
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", HOTSET_VERSION, request.inputs,
                  p.eviction, p.admission, p.prefetch, p.guard, p.miss, p.routing, p.pre_eviction,
                  p.predictor, p.prefetch_order, p.preset, name_of(plan.mode), name_of(plan.scope),
                  plan.size.text, plan.precision.text);
  for (const auto* policy : {&p.eviction, &p.admission, &p.prefetch, &p.predictor})
    text += '|' + contents_of_files(*policy);
  text += fmt::format("|{}|{}|{}|{}", request.warm_start, request.size_classes,
                      static_cast<int>(request.split), request.max_tokens);
  if (plan.link) {
    const auto& [link, name, way, back, spares] = *plan.link;
    const auto& costs = request.costs;
    text += fmt::format("|{}|{}|{}|{}|{}|{}|{}|{}|{}", name, link.bytes_per_second, link.latency,
                        link.chunk_bytes, static_cast<int>(way), back.bytes_per_second,
                        back.latency, back.chunk_bytes, spares);
    text += fmt::format("|{}|{}|{}|{}|{}", costs.gate, costs.per_visit, costs.per_token,
                        costs.per_host_expert, costs.transient);
  }
  return fmt::format("{:016x}", text_hash(text));
}

void check_request(const sweep_request& request, const routing_trace& trace) {
  refuse_if(request.sizes.empty(), "no size, accepted: --slots 5%,64 or --budget 1500MiB");
  refuse_if(request.warm_start && request.lessons == nullptr,
            "a warm start from nothing, accepted: --warm-start with --learn-from TRACE");
  refuse_if(request.size_classes &&
                std::ranges::find(request.scopes, cache_scope::shared) == request.scopes.end(),
            "a pool for each size of expert in per-layer scope, accepted: --size-classes with "
            "--scope shared");
  check_bytes(request, trace);
}

/// The runs to replay. Errors: usage_error if none has a key of `only`.
std::vector<run_plan> plans_of(const sweep_request& request,
                               const std::vector<chosen_policies>& policies, prepared_trace& trace,
                               std::vector<std::string>& not_replayed) {
  auto plans = combinations(request, policies);
  drop_small_sizes(plans, request, trace, not_replayed);
  const auto& only = request.only;
  if (only.empty()) return plans;
  std::erase_if(plans, [&](const run_plan& plan) {
    return std::ranges::find(only, key_of(plan, request)) == only.end();
  });
  if (plans.empty())
    throw usage_error(
        input_message("--only", "", fmt::format("no run has the key '{}'", printable(only.front())),
                      "keys that --dry-run prints for this trace, these options and this version"));
  return plans;
}

/// Bytes of an expert if all layers agree.
std::optional<std::uint64_t> common_bytes(const routing_trace& trace) {
  const auto& bytes = trace.expert_bytes;
  if (!has_bytes(trace.shape()) || bytes.empty()) return std::nullopt;
  if (std::ranges::adjacent_find(bytes, std::not_equal_to{}) != bytes.end()) return std::nullopt;
  return bytes.front();
}

/// Progress of a sweep: visits of all its runs, and the runs themselves. Threads: any.
class sweep_progress {
 public:
  sweep_progress(const sweep_request& request, std::uint64_t visits, std::size_t runs)
      : request_(request), visits_(visits), runs_(runs) {}

  void begin(const run_plan& plan) {
    const std::lock_guard lock(reporting_);
    const auto& names = plan.policies->names;
    last_ = fmt::format(", {} {}", names.preset.empty() ? names.eviction : names.preset,
                        plan.size.text);
    say();
  }
  void add_visits(std::uint64_t more) {
    const std::lock_guard lock(reporting_);
    report(more);
  }
  /// Ends runs with the visits of them that were not added.
  void end(std::size_t runs, std::uint64_t more) {
    const std::lock_guard lock(reporting_);
    ended_ += runs;
    say();
    report(more);
  }

 private:
  void say() const {
    if (request_.running) request_.running(fmt::format("{} of {} runs{}", ended_, runs_, last_));
  }
  void report(std::uint64_t more) {
    done_ += more;
    if (request_.progress) request_.progress(done_, visits_);
  }

  const sweep_request& request_;
  std::uint64_t visits_;
  std::size_t runs_;
  std::mutex reporting_;
  std::uint64_t done_ = 0;
  std::size_t ended_ = 0;
  std::string last_{};  ///< the run that began last
};

}  // namespace

engine_clock link_request::clock() const {
  engine_clock out{link_model(link), {write_back}};
  if (write_back == write_back_way::none) return out;
  out.back.link = link_model(back.bytes_per_second == 0 ? link : back);
  out.back.spares = spares;
  return out;
}

sweep_result run_sweep(const routing_trace& trace, const sweep_request& request) {
  check_request(request, trace);
  sweep_result out{trace.name, trace.layers, trace.experts, trace.top_k, trace.tokens(), 0, {}, {}};
  const auto policies = read_sets(request, out.not_replayed);
  prepared_trace prepared(trace, request.max_tokens);
  const auto plans = plans_of(request, policies, prepared, out.not_replayed);
  if (request.timeline != nullptr && (plans.size() != 1 || !plans.front().link))
    throw usage_error(fmt::format(
        "a timeline of {}, accepted: one run with a link",
        plans.size() == 1 ? "a run without a link" : fmt::format("{} runs", plans.size())));
  out.visits = prepared.visits(replay_mode::event_atomic).size();
  out.sized = has_bytes(trace.shape());
  out.bytes_per_expert = common_bytes(trace);
  std::uint64_t visits = 0;
  for (const auto& plan : plans) visits += prepared.visits(plan.mode).size();

  std::vector<std::optional<run_result>> results(plans.size());
  sweep_progress shown(request, visits, plans.size());
  std::vector<std::size_t> missing;
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (request.finished != nullptr) results[i] = request.finished->find(key_of(plans[i], request));
    if (results[i])
      found += prepared.visits(plans[i].mode).size();
    else
      missing.push_back(i);
  }
  if (missing.size() < plans.size()) shown.end(plans.size() - missing.size(), found);
  std::mutex preparing;
  const auto prepare_one = [&](const run_plan& plan) -> std::optional<prepared_run> {
    const std::lock_guard lock(preparing);
    try {
      return prepare(plan, request, prepared);
    } catch (const usage_error& why) {
      if (!request.leaves_out) throw;
      leave_out(plan.policies->names, why, out.not_replayed);
      return std::nullopt;
    }
  };
  const auto jobs = request.decisions != nullptr ? 1U : request.jobs;
  run_all(missing.size(), jobs, [&](std::size_t n) {
    const auto i = missing[n];
    const auto& plan = plans[i];
    shown.begin(plan);
    auto run = prepare_one(plan);
    std::uint64_t reported = 0;
    const auto tell = [&](std::uint64_t now, std::uint64_t) {
      shown.add_visits(now - std::exchange(reported, now));
    };
    if (run) {
      const progress_scope scope(request.progress ? progress_report(tell) : progress_report());
      const auto start = thread_seconds();
      results[i] = execute(*std::move(run), trace, request, i);
      results[i]->host_seconds = thread_seconds() - start;
      results[i]->key = key_of(plan, request);
      if (request.finished != nullptr) request.finished->keep(*results[i]);
    }
    shown.end(1, prepared.visits(plan.mode).size() - reported);
  });

  for (auto& result : results)
    if (result) out.results.push_back(*std::move(result));
  std::ranges::sort(out.not_replayed);
  return out;
}

std::vector<planned_run> plan_sweep(const routing_trace& trace, const sweep_request& request) {
  check_request(request, trace);
  std::vector<std::string> not_replayed;
  const auto policies = read_sets(request, not_replayed);
  prepared_trace prepared(trace, request.max_tokens);
  std::vector<planned_run> out;
  for (const auto& plan : plans_of(request, policies, prepared, not_replayed)) {
    planned_run run{requested(plan)};
    (void)size_of(plan, request, prepared.visits(plan.mode).shape());
    run.wanted.key = key_of(plan, request);
    run.finished = request.finished != nullptr && request.finished->find(run.wanted.key);
    out.push_back(std::move(run));
  }
  return out;
}

}  // namespace hotset::lab
