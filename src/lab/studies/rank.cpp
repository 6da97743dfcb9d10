// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/rank.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"

namespace hotset::lab {

constexpr std::string_view rank_base = "lru";
constexpr std::string_view rank_bound = "belady";

namespace {

constexpr std::string_view rank_horizon = "next_visit_oracle";

/// Whether a profile is of the replayed trace, which is its future.
bool is_of_future(const std::optional<profile_request>& profile) {
  return profile && profile->source == profile_request{}.source;
}

/// Inputs of a policy that the past of the trace lacks; nothing if it has all.
std::optional<std::string> what_it_lacks(const eviction_row& row, const routing_trace& trace) {
  if (row.traits.needs_weights && trace.weights.empty())
    return "it goes by gate weights, and the trace has none; accepted: a trace that recorded them";
  if (is_of_future(asked(known_policies().profile_of(row.name))))
    return fmt::format(
        "it goes by a profile of the replayed trace, which is its future; accepted: "
        "--eviction {}:profile=FILE",
        row.name);
  return std::nullopt;
}

/// The element that `is_it` accepts, else a copy of `other` that is appended.
template <class T, class Is>
std::size_t found_or_added(std::vector<T>& in, const T& other, Is is_it) {
  const auto found = std::ranges::find_if(in, is_it);
  const auto place = static_cast<std::size_t>(found - in.begin());
  if (found == in.end()) in.push_back(other);
  return place;
}

/// Cells and misses of all runs, without a judgement.
leaderboard tabulated(std::span<const ranked_run> runs) {
  leaderboard board;
  for (const auto& run : runs) {
    const auto key = [](const rank_cell& c) { return std::tie(c.trace, c.scope, c.size); };
    const auto cell = found_or_added(board.cells, run.cell,
                                     [&](const rank_cell& c) { return key(c) == key(run.cell); });
    const auto policy =
        found_or_added(board.policies, {run.eviction, run.offline},
                       [&](const ranked_policy& p) { return p.eviction == run.eviction; });
    auto& found = board.policies[policy];
    found.misses.resize(std::max(found.misses.size(), cell + 1));
    found.misses[cell] = run.misses;
    if (run.host_ns) found.host_ns = found.host_ns.value_or(0) + *run.host_ns;
  }
  for (auto& policy : board.policies) {
    policy.misses.resize(board.cells.size());
    if (policy.host_ns) *policy.host_ns /= static_cast<double>(policy.replayed_cells());
  }
  return board;
}

std::uint64_t end_misses(const leaderboard& board, std::size_t cell, std::string_view eviction) {
  const auto found = std::ranges::find(board.policies, eviction, &ranked_policy::eviction);
  if (found != board.policies.end() && found->misses[cell]) return *found->misses[cell];
  throw usage_error(fmt::format("a ranking of {} {} without {}, accepted: with {} and {}",
                                board.cells[cell].scope, board.cells[cell].size, eviction,
                                rank_base, rank_bound));
}

/// Keeps the cells with the least and the greatest share.
void note_spread(ranked_policy& policy, std::size_t cell) {
  const auto& shares = policy.gap_closed;
  if (!policy.worst || *shares[cell] < *shares[*policy.worst]) policy.worst = cell;
  if (!policy.best || *shares[cell] > *shares[*policy.best]) policy.best = cell;
}

void judge(ranked_policy& policy, const std::vector<rank_cell>& cells) {
  double shares = 0;
  double shared = 0;  // number of cells
  policy.gap_closed.resize(cells.size());
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (!policy.misses[c]) continue;
    policy.above_belady += static_cast<std::int64_t>(*policy.misses[c]) -
                           static_cast<std::int64_t>(cells[c].best_misses);
    policy.gap_closed[c] = cells[c].gap_closed(*policy.misses[c]);
    if (!policy.gap_closed[c]) continue;
    shares += *policy.gap_closed[c];
    ++shared;
    note_spread(policy, c);
  }
  if (shared > 0) policy.mean = shares / shared;
}

bool goes_first(const ranked_policy& a, const ranked_policy& b) {
  const auto place = [](const ranked_policy& p) {
    if (p.offline) return p.eviction == rank_bound ? 3 : 2;
    return p.replayed_cells() == p.misses.size() ? 0 : 1;
  };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.saved && (!b.saved || *a.saved > *b.saved);
}

/// The replays of a sweep; its cells have this label.
std::vector<ranked_run> ranked_runs_of(const sweep_result& sweep, const std::string& label) {
  std::vector<ranked_run> out;
  for (const auto& run : sweep.results)
    out.push_back({{label, run.scope, run.size, run.slots, run.budget_bytes, run.stats.accesses},
                   run.policies.eviction,
                   sees_future(run.policies.eviction),
                   run.stats.misses});
  return out;
}

/// The different values of the cells, in their order.
template <class Value>
std::vector<std::string> different(const std::vector<rank_cell>& cells, Value value) {
  std::vector<std::string> out;
  for (const auto& cell : cells)
    if (auto one = std::string(std::invoke(value, cell)); std::ranges::find(out, one) == out.end())
      out.push_back(std::move(one));
  return out;
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

std::size_t ranked_policy::replayed_cells() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(misses, [](const auto& one) { return one.has_value(); }));
}

std::optional<double> leaderboard::saved(const ranked_policy& policy,
                                         std::string_view trace) const {
  double saved = 0;
  double room = 0;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const auto& cell = cells[c];
    if (!policy.misses[c] || cell.room() == 0 || (!trace.empty() && cell.trace != trace)) continue;
    saved += static_cast<double>(cell.lru_misses) - static_cast<double>(*policy.misses[c]);
    room += static_cast<double>(cell.room());
  }
  return room > 0 ? std::optional(saved / room) : std::nullopt;
}

leaderboard rank_runs(std::span<const ranked_run> runs) {
  auto board = tabulated(runs);
  for (std::size_t c = 0; c < board.cells.size(); ++c) {
    board.cells[c].lru_misses = end_misses(board, c, rank_base);
    board.cells[c].best_misses = end_misses(board, c, rank_bound);
  }
  for (auto& policy : board.policies) {
    judge(policy, board.cells);
    policy.saved = board.saved(policy);
  }
  std::ranges::stable_sort(board.policies, goes_first);
  return board;
}

std::vector<policy_set> rank_candidates(const routing_trace& trace,
                                        std::vector<std::string>& left_out) {
  std::vector<policy_set> sets;
  for (const auto& row : known_policies().eviction.rows()) {
    if (row.traits.needs_future && row.name != rank_bound && row.name != rank_horizon) continue;
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

bool sees_future(const std::string& eviction) {
  return asked(known_policies().eviction_of(eviction))->traits.needs_future ||
         is_of_future(asked(known_policies().profile_of(eviction)));
}

ranking rank_policies(const routing_trace& trace, sweep_request request) {
  std::vector<std::string> left_out;
  request.policies = rank_candidates(trace, left_out);
  request.leaves_out = true;
  request.leaves_out_sizes = true;
  auto sweep = run_sweep(trace, request);
  sweep.not_replayed.insert(sweep.not_replayed.begin(), left_out.begin(), left_out.end());
  return rank_sweep(std::move(sweep));
}

ranking rank_sweep(sweep_result sweep) {
  auto board = rank_runs(ranked_runs_of(sweep, sweep.name));
  return {std::move(board), std::move(sweep)};
}

leaderboard rank_traces(std::span<const ranking> rankings) {
  std::vector<std::string> names;
  for (const auto& ranked : rankings) names.push_back(ranked.sweep.name);
  const auto labels = trace_labels(std::move(names));
  std::vector<ranked_run> runs;
  for (std::size_t i = 0; i < rankings.size(); ++i)
    for (auto& run : ranked_runs_of(rankings[i].sweep, labels[i])) runs.push_back(std::move(run));
  return rank_runs(runs);
}

std::vector<std::string> trace_labels(std::vector<std::string> names) {
  auto labels = names;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const auto before =
            std::count(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]);
        before > 0)
      labels[i] += fmt::format("#{}", before + 1);
  return labels;
}

std::vector<std::string> leaderboard::traces() const { return different(cells, &rank_cell::trace); }

std::vector<std::string> uneven_cells(const leaderboard& board) {
  const auto cache_of = [](const rank_cell& cell) { return cell.scope + ' ' + cell.size; };
  std::vector<std::string> lines;
  for (const auto& cache : different(board.cells, cache_of)) {
    auto lacking = board.traces();
    for (const auto& cell : board.cells)
      if (cache_of(cell) == cache) std::erase(lacking, cell.trace);
    if (!lacking.empty())
      lines.push_back(fmt::format("{}: not in {}", cache, fmt::join(lacking, ", ")));
  }
  return lines;
}

}  // namespace hotset::lab
