// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/sweep.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "decision_log.hpp"
#include "hotset/paging/cliff_guard.hpp"
#include "hotset/sim/io/open_trace.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::inline v0::sim {

namespace {

struct run_plan {
  std::string eviction, admission;
  cache_scope scope = cache_scope::shared;
  replay_mode mode = replay_mode::event_atomic;
  size_request size{};
};

std::vector<run_plan> combinations(const sweep_request& request) {
  std::vector<run_plan> runs;
  for (const auto& replay : request.replays)
    for (const auto& scope : request.scopes)
      for (const auto& size : request.sizes)
        for (const auto& admission : request.admissions)
          for (const auto& eviction : request.evictions)
            runs.push_back(
                {eviction, admission, parse_scope(scope), parse_replay_mode(replay), size});
  return runs;
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
      if (!made) throw trace_error(fmt::format("{}: {}", trace_.name, made.reason().message));
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
  const popularity::config& profile(const profile_request& wanted) {
    auto& slot = profiles_[wanted];
    if (slot.profile.empty()) slot = load_profile(wanted);
    return slot;
  }

 private:
  popularity::config load_profile(const profile_request& wanted) const {
    const auto part =
        wanted.first == 0 ? std::string() : fmt::format("the first {} tokens of ", wanted.first);
    if (wanted.source == "trace")
      return {count_uses(trace_, wanted.first),
              part + "the replayed trace itself (sees the future)"};
    const auto other = open_trace(wanted.source);
    if (other.layers != trace_.layers || other.experts != trace_.experts)
      throw usage_error(
          fmt::format("popularity: profile {} has {} layers of {} experts, accepted: {} of {}",
                      wanted.source, other.layers, other.experts, trace_.layers, trace_.experts));
    return {count_uses(other, wanted.first), part + wanted.source};
  }

  const routing_trace& trace_;
  std::uint32_t max_tokens_;
  std::optional<visit_sequence> atomic_, per_access_;
  event_order atomic_events_, per_access_events_;
  std::map<profile_request, popularity::config> profiles_;
};

/// Everything that one replay needs; made in sequence, run in parallel.
struct prepared_run {
  run_plan plan;
  cache_size size;
  const visit_sequence* visits = nullptr;
  event_order events;
  std::unique_ptr<any_pager> pager;
  std::vector<std::string> notes;
};

bool may_split(const visit_sequence& visits, const pool_layout& layout) {
  for (std::size_t p = 0; p < layout.pools(); ++p)
    if (static_cast<std::uint32_t>(layout.at(static_cast<pool_id>(p)).slots) <
        visits.widest_union())
      return true;
  return false;
}

/// belady_bypass never splits a visit.
bool bypasses(std::string_view eviction) {
  return parse_policy_chain(eviction).back().name.ends_with("belady_bypass");
}

prepared_run prepare(const run_plan& plan, const sweep_request& request, prepared_trace& trace) {
  prepared_run run;
  run.plan = plan;
  run.visits = &trace.visits(plan.mode);
  run.size =
      make_cache_size(run.visits->shape(), plan.scope, plan.size, plan.mode, request.size_classes);
  if (plan.mode != replay_mode::deferred)
    if (auto warning = cliff_warning(run.size.layout)) run.notes.push_back(*std::move(warning));
  policy_knowledge knowledge;
  if (bypasses(plan.eviction) && plan.mode == replay_mode::deferred)
    throw usage_error("belady_bypass has no deferred replay, accepted: event-atomic, per-access");
  if (bypasses(plan.eviction) && request.decisions != nullptr)
    throw usage_error(
        "belady_bypass has no slots whose decisions could be logged, accepted: any other policy");
  if (needs_future(plan.eviction)) {
    const bool groups = !bypasses(plan.eviction) && may_split(*run.visits, run.size.layout);
    run.events = groups ? order_events(*run.visits, run.size.layout, true, request.split)
                        : trace.whole_events(plan.mode, run.size.layout);
    knowledge.future = run.events.future;
  }
  if (const auto profile = requested_profile(plan.eviction)) {
    knowledge.profile = trace.profile(*profile);
    run.notes.push_back("popularity profile: " + knowledge.profile.source);
  }
  run.pager =
      make_pager({plan.eviction, plan.admission, run.size.layout, request.split}, knowledge);
  return run;
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

run_result execute(prepared_run& run, std::ostream* decisions, std::size_t index) {
  std::optional<decision_log> log;
  if (decisions != nullptr) {
    log.emplace(*decisions, index);
    run.pager->watch(&*log);
  }
  replay(*run.visits, run.events, *run.pager, run.size.layout, run.size.pool_bytes);
  run_result out{run.plan.eviction, run.plan.admission, std::string(name_of(run.plan.scope)),
                 std::string(name_of(run.plan.mode))};
  out.slots = slots_of(run);
  if (run.plan.size.what == size_request::unit::bytes) out.budget_bytes = run.plan.size.count;
  out.stats = run.pager->stats();
  out.decision_hash = run.pager->decision_hash();
  out.notes = std::move(run.notes);
  for (auto& note : run.pager->notes()) out.notes.push_back(std::move(note));
  run.pager.reset();
  return out;
}

}  // namespace

std::vector<double> count_uses(const routing_trace& trace, std::uint64_t tokens) {
  const auto shape = trace.shape();
  std::vector<double> counts(shape.keys(), 0);
  const auto rows = tokens == 0 ? trace.tokens() : std::min<std::size_t>(trace.tokens(), tokens);
  for (std::size_t t = 0; t < rows; ++t)
    for (layer_id l = 0; l < trace.layers; ++l)
      for (const auto e : trace.ids_of(t, l))
        if (e >= 0) counts[shape.index({l, e})] += 1;
  return counts;
}

sweep_result run_sweep(const routing_trace& trace, const sweep_request& request) {
  if (request.sizes.empty())
    throw usage_error("no size, accepted: --slots 5%,64 or --budget 1500MiB");
  for (const auto& eviction : request.evictions)
    for (const auto& admission : request.admissions) check_policies(eviction, admission);
  const auto plans = combinations(request);
  prepared_trace prepared(trace, request.max_tokens);
  sweep_result out{trace.name, trace.layers, trace.experts, trace.top_k, trace.tokens(), 0, {}};
  out.visits = prepared.visits(replay_mode::event_atomic).size();
  out.results.resize(plans.size());
  std::mutex mutex;
  std::size_t done = 0;
  const auto run_one = [&](std::size_t i) {
    std::unique_lock lock(mutex);
    auto run = prepare(plans[i], request, prepared);
    lock.unlock();
    auto finished = execute(run, request.decisions, i);
    lock.lock();
    out.results[i] = std::move(finished);
    if (request.progress) request.progress(++done, plans.size());
  };
  if (request.decisions != nullptr || request.jobs <= 1) {
    for (std::size_t i = 0; i < plans.size(); ++i) run_one(i);
    return out;
  }
  tbb::task_arena arena(static_cast<int>(request.jobs));
  arena.execute([&] { tbb::parallel_for(std::size_t{0}, plans.size(), run_one); });
  return out;
}

}  // namespace hotset::inline v0::sim
