// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rank_report.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/reports/sweep_report.hpp"

namespace hotset::lab {
namespace {

template <class Value>
row list_of(const std::vector<std::optional<Value>>& values) {
  row out = row::array();
  for (const auto& value : values) out.push_back(or_null(value));
  return out;
}

row row_of(const rank_cell& cell, const sweep_result& sweep) {
  return {{"scope", cell.scope},
          {"size", cell.size},
          {"slots", cell.slots},
          {"budget_bytes", or_null(cell.budget_bytes)},
          {"accesses", cell.accesses},
          {"lru_misses", cell.lru_misses},
          {"belady_misses", cell.best_misses},
          {"room", cell.room()},
          {"share", share_of(cell.slots, sweep.experts_total())}};
}
row row_of(const ranked_policy& policy) {
  return {{"eviction", policy.eviction},      {"offline", policy.offline},
          {"misses", list_of(policy.misses)}, {"gap_closed", list_of(policy.gap_closed)},
          {"saved", or_null(policy.saved)},   {"mean_gap_closed", or_null(policy.mean)}};
}
/// One policy in one cell.
row row_of(const ranking& ranked, const ranked_policy& policy, std::size_t c) {
  auto out = row_of(ranked.cells[c], ranked.sweep);
  out["trace"] = ranked.sweep.name;
  out.update(row_of(policy));
  out["misses"] = or_null(policy.misses[c]);
  out["gap_closed"] = or_null(policy.gap_closed[c]);
  out["layers"] = ranked.sweep.layers;
  out["experts"] = ranked.sweep.experts;
  return out;
}

std::string json_lines_of(const ranking& ranked) {
  row head{{"schema", rank_schema}, {"trace", trace_to_json(ranked.sweep)}};
  if (!ranked.sweep.not_replayed.empty()) head["not_replayed"] = ranked.sweep.not_replayed;
  head["cells"] = row::array();
  for (const auto& cell : ranked.cells) head["cells"].push_back(row_of(cell, ranked.sweep));
  std::vector<row> rows;
  for (const auto& policy : ranked.policies) rows.push_back(row_of(policy));
  return to_json_lines(head, "policies", rows);
}

bool one_scope(const ranking& ranked) {
  return std::ranges::adjacent_find(ranked.cells, std::not_equal_to{}, &rank_cell::scope) ==
         ranked.cells.end();
}

/// The size as requested, with its share of all experts.
std::string size_of(const rank_cell& cell, const sweep_result& sweep) {
  if (cell.size.ends_with('%')) return cell.size;
  const auto share = 100.0 * static_cast<double>(cell.slots);
  return fmt::format("{} ({:.1f}%)", cell.size, share / static_cast<double>(sweep.experts_total()));
}

/// One column per cache. With several scopes the first row has the sizes; the last row has each cache's room.
std::string table_of(const ranking& ranked, const table_view& view) {
  constexpr cell share{.digits = 1, .scale = 100};
  const bool plain = one_scope(ranked);
  std::vector<std::string> names, texts;  // storage for the columns
  for (const auto& cell : ranked.cells) {
    texts.push_back(size_of(cell, ranked.sweep));
    names.push_back(cell.scope + ' ' + cell.size);
  }
  std::vector<column> columns{{"eviction", "eviction", "eviction", {cell::word}},
                              {"saved", "saved", "saved", share},
                              {"mean", "mean_gap_closed", "mean", share}};
  row sizes{{"eviction", " "}, {"saved", " "}, {"mean_gap_closed", " "}};
  row rooms{{"eviction", "room, misses"}, {"saved", 0}, {"mean_gap_closed", " "}};
  std::uint64_t room = 0;
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto& cell = ranked.cells[c];
    const auto* const name = names[c].c_str();
    columns.push_back({name, name, plain ? texts[c].c_str() : cell.scope.c_str(), share});
    sizes[name] = texts[c];
    rooms[name] = cell.room();
    room += cell.room();
  }
  rooms["saved"] = room;
  std::vector<row> rows;
  if (!plain) rows.push_back(std::move(sizes));
  for (const auto& policy : ranked.policies) {
    rows.push_back(row_of(policy));
    for (std::size_t c = 0; c < names.size(); ++c)
      rows.back()[names[c]] = or_null(policy.gap_closed[c]);
  }
  rows.push_back(std::move(rooms));
  return to_table(columns, rows, view);
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
  std::vector<std::string> texts;
  for (const auto& ranked : rankings) texts.push_back(json_lines_of(ranked));
  return one_or_array(texts);
}

std::string to_csv(std::span<const ranking> rankings) {
  std::vector<row> rows;
  for (const auto& ranked : rankings)
    for (const auto& policy : ranked.policies)
      for (std::size_t c = 0; c < ranked.cells.size(); ++c)
        rows.push_back(row_of(ranked, policy, c));
  return to_csv(
      {"trace", "eviction", "offline", "scope", "size", "slots", "budget_bytes", "accesses",
       "misses", "gap_closed", "mean_gap_closed", "saved", "share", "layers", "experts"},
      rows);
}

std::string to_table(const ranking& ranked, const table_view& view) {
  auto head =
      title_of(ranked.sweep) + "% of the misses between lru (0) and belady (100) that are avoided";
  if (!ranked.cells.empty() && one_scope(ranked)) head += ", scope " + ranked.cells.front().scope;
  return folded(head + '\n', view.width) + table_of(ranked, view) +
         folded(explanation_of(ranked) + notes_of(ranked.sweep), view.width);
}

}  // namespace hotset::lab
