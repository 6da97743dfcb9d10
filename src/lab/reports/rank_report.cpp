// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rank_report.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/reports/csv_field.hpp"
#include "lab/reports/json_text.hpp"
#include "lab/reports/report_parts.hpp"

namespace hotset::lab {
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
          {"belady_misses", cell.best_misses},
          {"room", cell.room()}};
}
json policy_to_json(const ranked_policy& policy) {
  return {{"eviction", policy.eviction},      {"offline", policy.offline},
          {"misses", list_of(policy.misses)}, {"gap_closed", list_of(policy.gap_closed)},
          {"saved", or_null(policy.saved)},   {"mean_gap_closed", or_null(policy.mean)}};
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

/// A column of the table: with several scopes its size stands in the first row; its room stands in the last.
text_table::column column_of(std::string name, std::string title, bool plain, std::string size,
                             std::vector<std::string> shares, std::string room) {
  text_table::column out{std::move(name), std::move(title), false, 0, true, {}};
  if (!plain) out.cells.push_back(std::move(size));
  out.cells.insert(out.cells.end(), shares.begin(), shares.end());
  out.cells.push_back(std::move(room));
  return out;
}

/// Returns of(policy) for each policy.
template <class Of>
std::vector<std::string> for_each_policy(const ranking& ranked, Of of) {
  std::vector<std::string> out;
  for (const auto& policy : ranked.policies) out.push_back(of(policy));
  return out;
}

std::uint64_t room_of(const ranking& ranked) {
  std::uint64_t room = 0;
  for (const auto& cell : ranked.cells) room += cell.room();
  return room;
}

text_table table_of(const ranking& ranked) {
  const bool plain = one_scope(ranked);
  text_table table;
  auto names = column_of(
      "eviction", "eviction", plain, "",
      for_each_policy(ranked, [](const auto& p) { return printable(p.eviction); }), "room, misses");
  names.text = true;
  table.add(std::move(names));
  table.add(column_of("saved", "saved", plain, "",
                      for_each_policy(ranked, [](const auto& p) { return percent(p.saved); }),
                      std::to_string(room_of(ranked))));
  table.add(column_of("mean", "mean", plain, "",
                      for_each_policy(ranked, [](const auto& p) { return percent(p.mean); }), ""));
  for (std::size_t c = 0; c < ranked.cells.size(); ++c) {
    const auto& cell = ranked.cells[c];
    table.add(
        column_of(cell.scope + ' ' + cell.size, plain ? cell.size : cell.scope, plain, cell.size,
                  for_each_policy(ranked, [&](const auto& p) { return percent(p.gap_closed[c]); }),
                  std::to_string(cell.room())));
  }
  return table;
}

std::string explanation_of(const ranking& ranked) {
  std::string out =
      "saved: of all misses between lru and belady, summed over the caches; mean: of the caches' "
      "shares\n";
  if (!std::ranges::all_of(ranked.cells, &rank_cell::has_room))
    out += "-: belady avoids misses of less than 1 % of the accesses there; not in the mean\n";
  return out +
         "next_visit_oracle knows each layer's next visit, belady all visits: to compare with\n";
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
      "mean_gap_closed,saved\n";
  for (const auto& ranked : rankings)
    for (const auto& policy : ranked.policies)
      for (std::size_t c = 0; c < ranked.cells.size(); ++c) {
        const auto& cell = ranked.cells[c];
        out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(ranked.sweep.name),
                           csv_field(policy.eviction), policy.offline, cell.scope,
                           csv_field(cell.size), cell.slots, number(or_null(cell.budget_bytes)),
                           cell.accesses, number(or_null(policy.misses[c])),
                           number(or_null(policy.gap_closed[c])), number(or_null(policy.mean)),
                           number(or_null(policy.saved)));
      }
  return out;
}

std::string to_table(const ranking& ranked, const table_view& view) {
  std::string head =
      title_of(ranked.sweep) + "% of the misses between lru (0) and belady (100) that are avoided";
  if (!ranked.cells.empty() && one_scope(ranked)) head += ", scope " + ranked.cells.front().scope;
  return folded(head + '\n', view.width) + table_of(ranked).render(view) +
         folded(explanation_of(ranked) + notes_of(ranked.sweep), view.width);
}

}  // namespace hotset::lab
