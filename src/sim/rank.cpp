// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/rank.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/sim/errors.hpp"
#include "hotset/sim/io/input_error.hpp"
#include "hotset/sim/registry.hpp"
#include "sim/csv_field.hpp"
#include "sim/report_parts.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view base = "lru";
constexpr std::string_view bound = "belady";
constexpr std::string_view horizon = "next_visit_oracle";

bool is_offline(std::string_view eviction) { return eviction == bound || eviction == horizon; }

/// What a policy goes by and the past of the trace does not have.
std::optional<std::string> what_it_lacks(const eviction_row& row, const routing_trace& trace) {
  if (row.traits.needs_weights && trace.weights.empty())
    return "it goes by gate weights, and the trace has none; accepted: a trace that recorded them";
  const auto profile = requested_profile(row.name);
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
                                cell.scope, cell.size, eviction, base, bound));
}

std::vector<rank_cell> cells_of(const sweep_result& sweep) {
  std::vector<rank_cell> cells;
  for (const auto& run : sweep.results) {
    if (std::ranges::any_of(cells, [&](const rank_cell& c) { return in_cell(run, c); })) continue;
    rank_cell cell{run.scope, run.size, run.slots, run.budget_bytes, run.stats.accesses, 0, 0};
    cell.lru_misses = misses_of(sweep, cell, base);
    cell.best_misses = misses_of(sweep, cell, bound);
    cells.push_back(std::move(cell));
  }
  return cells;
}

std::optional<double> mean_of(const std::vector<std::optional<double>>& shares) {
  double sum = 0;
  double count = 0;
  for (const auto& share : shares) {
    if (!share) continue;
    sum += *share;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

ranked_policy judged(const sweep_result& sweep, const std::vector<rank_cell>& cells,
                     const std::string& eviction) {
  ranked_policy out{eviction, is_offline(eviction), {}, {}, {}};
  for (const auto& cell : cells) {
    const auto* run = run_of(sweep, cell, eviction);
    out.misses.push_back(run ? std::optional(run->stats.misses) : std::nullopt);
    out.gap_closed.push_back(run ? cell.gap_closed(run->stats.misses) : std::nullopt);
  }
  out.mean = mean_of(out.gap_closed);
  return out;
}

/// Before another one: policies by their mean, then those that see the future, the one that knows most last.
bool goes_first(const ranked_policy& a, const ranked_policy& b) {
  const auto place = [](const ranked_policy& p) {
    return p.eviction == bound ? 2 : p.offline ? 1 : 0;
  };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.mean && (!b.mean || *a.mean > *b.mean);
}

template <class Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}
template <class Value>
json list_of(const std::vector<std::optional<Value>>& values) {
  json out = json::array();
  for (const auto& value : values) out.push_back(or_null(value));
  return out;
}

json cell_to_json(const rank_cell& cell) {
  return {{"scope", cell.scope},
          {"size", cell.size},
          {"slots", cell.slots},
          {"budget_bytes", or_null(cell.budget_bytes)},
          {"accesses", cell.accesses},
          {"lru_misses", cell.lru_misses},
          {"belady_misses", cell.best_misses}};
}
json policy_to_json(const ranked_policy& policy) {
  return {{"eviction", policy.eviction},
          {"offline", policy.offline},
          {"misses", list_of(policy.misses)},
          {"gap_closed", list_of(policy.gap_closed)},
          {"mean_gap_closed", or_null(policy.mean)}};
}

/// What stands before the policies.
json head_of(const ranking& ranked) {
  json out{{"schema", rank_schema}, {"trace", trace_to_json(ranked.sweep)}};
  if (!ranked.sweep.not_replayed.empty()) out["not_replayed"] = ranked.sweep.not_replayed;
  out["cells"] = json::array();
  for (const auto& cell : ranked.cells) out["cells"].push_back(cell_to_json(cell));
  return out;
}

std::string ranking_text(const ranking& ranked) {
  auto out = one_line(head_of(ranked));
  out.back() = ',';
  out += "\"policies\":[";
  for (std::size_t i = 0; i < ranked.policies.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + one_line(policy_to_json(ranked.policies[i]));
  return out + "\n]}";
}

std::string number(const json& value) { return value.is_null() ? "" : value.dump(); }

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}", 100 * *share) : "-";
}

bool one_scope(const ranking& ranked) {
  return std::ranges::adjacent_find(ranked.cells, std::not_equal_to{}, &rank_cell::scope) ==
         ranked.cells.end();
}

/// With several scopes the titles are these, and the first row has the sizes.
text_table table_of(const ranking& ranked) {
  const bool plain = one_scope(ranked);
  text_table table;
  text_table::column names{"eviction", "eviction", true, 0, true, {}};
  if (!plain) names.cells.emplace_back();
  for (const auto& policy : ranked.policies) names.cells.push_back(printable(policy.eviction));
  table.add(std::move(names));
  text_table::column means{"mean", "mean", false, 0, true, {}};
  if (!plain) means.cells.emplace_back();
  for (const auto& policy : ranked.policies) means.cells.push_back(percent(policy.mean));
  table.add(std::move(means));
  for (std::size_t c = 0; c < ranked.cells.size(); ++c) {
    const auto& cell = ranked.cells[c];
    text_table::column shares{
        cell.scope + ' ' + cell.size, plain ? cell.size : cell.scope, false, 0, true, {}};
    if (!plain) shares.cells.push_back(cell.size);
    for (const auto& policy : ranked.policies)
      shares.cells.push_back(percent(policy.gap_closed[c]));
    table.add(std::move(shares));
  }
  return table;
}

}  // namespace

std::optional<double> rank_cell::gap_closed(std::uint64_t misses) const noexcept {
  if (lru_misses <= best_misses) return std::nullopt;
  const auto gap = static_cast<double>(lru_misses - best_misses);
  return (static_cast<double>(lru_misses) - static_cast<double>(misses)) / gap;
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

json to_json(const ranking& ranked) {
  auto out = head_of(ranked);
  out["policies"] = json::array();
  for (const auto& policy : ranked.policies) out["policies"].push_back(policy_to_json(policy));
  return out;
}

std::string to_json_text(std::span<const ranking> rankings) {
  if (rankings.size() == 1) return ranking_text(rankings.front()) + '\n';
  std::string out = "[";
  for (std::size_t i = 0; i < rankings.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + ranking_text(rankings[i]);
  return out + "\n]\n";
}

std::string to_csv(std::span<const ranking> rankings) {
  std::string out =
      "trace,eviction,offline,scope,size,slots,budget_bytes,accesses,misses,gap_closed,"
      "mean_gap_closed\n";
  for (const auto& ranked : rankings)
    for (const auto& policy : ranked.policies)
      for (std::size_t c = 0; c < ranked.cells.size(); ++c) {
        const auto& cell = ranked.cells[c];
        out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(ranked.sweep.name),
                           csv_field(policy.eviction), policy.offline, cell.scope,
                           csv_field(cell.size), cell.slots, number(or_null(cell.budget_bytes)),
                           cell.accesses, number(or_null(policy.misses[c])),
                           number(or_null(policy.gap_closed[c])), number(or_null(policy.mean)));
      }
  return out;
}

std::string to_table(const ranking& ranked, const table_view& view) {
  std::string head =
      title_of(ranked.sweep) + "% of the misses between lru (0) and belady (100) that are avoided";
  if (!ranked.cells.empty() && one_scope(ranked)) head += ", scope " + ranked.cells.front().scope;
  return folded(head + '\n', view.width) + table_of(ranked).render(view) +
         folded(
             "next_visit_oracle knows each layer's next visit, belady all visits: to compare "
             "with\n" +
                 notes_of(ranked.sweep),
             view.width);
}

}  // namespace hotset::inline v0::sim
