// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/reports/rank_report.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/sim/io/input_error.hpp"
#include "sim/reports/csv_field.hpp"
#include "sim/reports/json_text.hpp"
#include "sim/reports/report_parts.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::ordered_json;

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
