// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/rank.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"

namespace hotset::lab {
namespace {

constexpr std::string_view rank_base = "lru";
constexpr std::string_view rank_bound = "belady";
constexpr std::string_view rank_horizon = "next_visit_oracle";

bool is_offline(std::string_view eviction) {
  return eviction == rank_bound || eviction == rank_horizon;
}

/// Inputs of a policy that the past of the trace lacks; nothing if it has all.
std::optional<std::string> what_it_lacks(const eviction_row& row, const routing_trace& trace) {
  if (row.traits.needs_weights && trace.weights.empty())
    return "it goes by gate weights, and the trace has none; accepted: a trace that recorded them";
  const auto profile = asked(known_policies().profile_of(row.name));
  if (profile && profile->source == profile_request{}.source)
    return fmt::format(
        "it goes by a profile of the replayed trace, which is its future; accepted: "
        "--eviction {}:profile=FILE",
        row.name);
  return std::nullopt;
}

bool in_cell(const run_result& run, const rank_cell& cell) {
  return run.scope == cell.scope && run.size == cell.size;
}
const run_result* run_of(const sweep_result& sweep, const rank_cell& cell,
                         std::string_view eviction) {
  const auto found = std::ranges::find_if(sweep.results, [&](const run_result& run) {
    return in_cell(run, cell) && run.policies.eviction == eviction;
  });
  return found == sweep.results.end() ? nullptr : &*found;
}

std::uint64_t misses_of(const sweep_result& sweep, const rank_cell& cell,
                        std::string_view eviction) {
  if (const auto* run = run_of(sweep, cell, eviction)) return run->stats.misses;
  throw usage_error(fmt::format("a ranking of {} {} without {}, accepted: with {} and {}",
                                cell.scope, cell.size, eviction, rank_base, rank_bound));
}

std::vector<rank_cell> cells_of(const sweep_result& sweep) {
  std::vector<rank_cell> cells;
  for (const auto& run : sweep.results) {
    if (std::ranges::any_of(cells, [&](const rank_cell& c) { return in_cell(run, c); })) continue;
    rank_cell cell{run.scope, run.size, run.slots, run.budget_bytes, run.stats.accesses, 0, 0};
    cell.lru_misses = misses_of(sweep, cell, rank_base);
    cell.best_misses = misses_of(sweep, cell, rank_bound);
    cells.push_back(std::move(cell));
  }
  return cells;
}

ranked_policy judged(const sweep_result& sweep, const std::vector<rank_cell>& cells,
                     const std::string& eviction) {
  ranked_policy out{eviction, is_offline(eviction), {}, {}, {}, {}};
  double saved = 0;
  double room = 0;
  double shares = 0;
  double shared = 0;  // number of cells
  for (const auto& cell : cells) {
    auto& misses = out.misses.emplace_back();
    auto& share = out.gap_closed.emplace_back();
    const auto* run = run_of(sweep, cell, eviction);
    if (run == nullptr) continue;
    misses = run->stats.misses;
    share = cell.gap_closed(*misses);
    shares += share.value_or(0);
    shared += share ? 1 : 0;
    if (cell.room() == 0) continue;
    saved += static_cast<double>(cell.lru_misses) - static_cast<double>(*misses);
    room += static_cast<double>(cell.room());
  }
  if (room > 0) out.saved = saved / room;
  if (shared > 0) out.mean = shares / shared;
  return out;
}

/// Orders policies by misses saved, then those that see the future, belady last.
bool goes_first(const ranked_policy& a, const ranked_policy& b) {
  const auto place = [](const ranked_policy& p) {
    return p.eviction == rank_bound ? 2 : p.offline ? 1 : 0;
  };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.saved && (!b.saved || *a.saved > *b.saved);
}

}  // namespace

std::uint64_t rank_cell::room() const noexcept {
  return lru_misses > best_misses ? lru_misses - best_misses : 0;
}
bool rank_cell::has_room() const noexcept { return room() > 0 && 100 * room() >= accesses; }

std::optional<double> rank_cell::gap_closed(std::uint64_t misses) const noexcept {
  if (!has_room()) return std::nullopt;
  return (static_cast<double>(lru_misses) - static_cast<double>(misses)) /
         static_cast<double>(room());
}

std::vector<policy_set> rank_candidates(const routing_trace& trace,
                                        std::vector<std::string>& left_out) {
  std::vector<policy_set> sets;
  for (const auto& row : known_policies().eviction.rows()) {
    if (row.traits.needs_future && !is_offline(row.name)) continue;
    if (const auto why = what_it_lacks(row, trace)) {
      left_out.push_back(fmt::format("{}: {}", row.name, *why));
      continue;
    }
    policy_set set;
    set.eviction = row.name;
    sets.push_back(std::move(set));
  }
  return sets;
}

ranking rank_policies(const routing_trace& trace, sweep_request request) {
  std::vector<std::string> left_out;
  request.policies = rank_candidates(trace, left_out);
  request.leaves_out = true;
  auto sweep = run_sweep(trace, request);
  sweep.not_replayed.insert(sweep.not_replayed.begin(), left_out.begin(), left_out.end());
  return rank_sweep(std::move(sweep));
}

ranking rank_sweep(sweep_result sweep) {
  ranking out;
  out.cells = cells_of(sweep);
  std::vector<std::string> names;
  for (const auto& run : sweep.results)
    if (std::ranges::find(names, run.policies.eviction) == names.end())
      names.push_back(run.policies.eviction);
  for (const auto& name : names) out.policies.push_back(judged(sweep, out.cells, name));
  std::ranges::stable_sort(out.policies, goes_first);
  out.sweep = std::move(sweep);
  return out;
}

}  // namespace hotset::lab
