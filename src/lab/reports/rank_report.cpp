// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rank_report.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/reports/generator.hpp"
#include "lab/reports/sweep_report.hpp"

namespace hotset::lab {
namespace {

template <class Value>
row list_of(const std::vector<std::optional<Value>>& values) {
  row out = row::array();
  for (const auto& value : values) out.push_back(or_null(value));
  return out;
}

/// `of_several`: the cell's trace is not the report's only one.
row row_of(const rank_cell& cell, bool of_several) {
  row out = row::object();
  if (of_several) out["trace"] = cell.trace;
  out.update({{"scope", cell.scope},
              {"size", cell.size},
              {"slots", cell.slots},
              {"budget_bytes", or_null(cell.budget_bytes)},
              {"accesses", cell.accesses},
              {"lru_misses", cell.lru_misses},
              {"belady_misses", cell.best_misses},
              {"room", cell.room()}});
  return out;
}
row row_of(const rank_cell& cell, const sweep_result& sweep) {
  auto out = row_of(cell, false);
  out["share"] = share_of(cell.slots, sweep.experts_total());
  return out;
}
/// The share of a policy in one cell of a board; null without a cell.
row spread_end(const leaderboard& board, const ranked_policy& policy, std::optional<std::size_t> c,
               bool of_several) {
  if (!c) return nullptr;
  row out = row::object();
  if (of_several) out["trace"] = board.cells[*c].trace;
  out.update({{"scope", board.cells[*c].scope},
              {"size", board.cells[*c].size},
              {"gap_closed", or_null(policy.gap_closed[*c])}});
  return out;
}
row row_of(const leaderboard& board, const ranked_policy& policy, bool of_several) {
  return {{"eviction", policy.eviction},
          {"offline", policy.offline},
          {"misses", list_of(policy.misses)},
          {"gap_closed", list_of(policy.gap_closed)},
          {"saved", or_null(policy.saved)},
          {"mean_gap_closed", or_null(policy.mean)},
          {"above_belady", policy.above_belady},
          {"worst", spread_end(board, policy, policy.worst, of_several)},
          {"best", spread_end(board, policy, policy.best, of_several)}};
}
/// Columns of a policy in a table.
row totals_of(const ranked_policy& policy) {
  const auto share = [&](std::optional<std::size_t> c) {
    return c ? or_null(policy.gap_closed[*c]) : row(nullptr);
  };
  return {{"eviction", policy.eviction},         {"saved", or_null(policy.saved)},
          {"worst", share(policy.worst)},        {"best", share(policy.best)},
          {"above_belady", policy.above_belady}, {"caches", policy.replayed_cells()},
          {"host_ns", or_null(policy.host_ns)}};
}
/// One policy in one cell.
row row_in_cell(const ranking& ranked, const ranked_policy& policy, std::size_t c) {
  auto out = row_of(ranked.cells[c], ranked.sweep);
  out["trace"] = ranked.sweep.name;
  out.update(row_of(ranked, policy, false));
  out.update(totals_of(policy));
  out["misses"] = or_null(policy.misses[c]);
  out["gap_closed"] = or_null(policy.gap_closed[c]);
  out["layers"] = ranked.sweep.layers;
  out["experts"] = ranked.sweep.experts;
  return out;
}

/// The rest of an object that begins with `head`.
std::string json_lines_of(row head, const leaderboard& board, const row& cells, bool of_several) {
  head["cells"] = cells;
  std::vector<row> rows;
  for (const auto& policy : board.policies) rows.push_back(row_of(board, policy, of_several));
  return to_json_lines(head, "policies", rows);
}
std::string json_lines_of(const ranking& ranked) {
  row cells = row::array();
  for (const auto& cell : ranked.cells) cells.push_back(row_of(cell, ranked.sweep));
  return json_lines_of(head_of(ranked.sweep, rank_schema), ranked, cells, false);
}
std::string json_lines_of(const leaderboard& board) {
  row cells = row::array();
  for (const auto& cell : board.cells) cells.push_back(row_of(cell, true));
  return json_lines_of({{"schema", rank_schema},
                        {"generator", generator_of(std::nullopt)},
                        {"traces", board.traces()},
                        {"not_in_every_trace", uneven_cells(board)}},
                       board, cells, true);
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

constexpr cell in_percent{.digits = 1, .scale = 100};

/// Columns that begin every table.
std::vector<column> first_columns() {
  return {{"eviction", "eviction", "eviction", {cell::word}},
          {"saved", "saved", "saved", in_percent},
          {"worst", "worst", "worst", in_percent},
          {"best", "best", "best", in_percent}};
}
/// The last row: misses between lru and belady.
row rooms_row(const leaderboard& board) {
  std::uint64_t room = 0;
  for (const auto& cell : board.cells) room += cell.room();
  return {{"eviction", "room, misses"}, {"saved", room}, {"worst", " "}, {"best", " "}};
}

/// One column per cache. With several scopes the first row has the sizes; the last row has each cache's room.
std::string table_of(const ranking& ranked, const table_view& view) {
  const bool plain = one_scope(ranked);
  std::vector<std::string> names, texts;  // storage for the columns
  for (const auto& cell : ranked.cells) {
    texts.push_back(size_of(cell, ranked.sweep));
    names.push_back(cell.scope + ' ' + cell.size);
  }
  auto columns = first_columns();
  row sizes{{"eviction", " "}, {"saved", " "}, {"worst", " "}, {"best", " "}};
  auto rooms = rooms_row(ranked);
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto& cell = ranked.cells[c];
    const auto* const name = names[c].c_str();
    columns.push_back({name, name, plain ? texts[c].c_str() : cell.scope.c_str(), in_percent});
    sizes[name] = texts[c];
    rooms[name] = cell.room();
  }
  std::vector<row> rows;
  if (!plain) rows.push_back(std::move(sizes));
  for (const auto& policy : ranked.policies) {
    rows.push_back(totals_of(policy));
    for (std::size_t c = 0; c < names.size(); ++c)
      rows.back()[names[c]] = or_null(policy.gap_closed[c]);
  }
  rows.push_back(std::move(rooms));
  return to_table(columns, rows, view);
}

/// One column per trace. The last row has each trace's room.
std::string table_of(const leaderboard& board, const table_view& view) {
  const auto traces = board.traces();
  std::vector<std::string> titles, keys;  // storage for the columns
  for (const auto& trace : traces) {
    titles.push_back(printable(trace, 24));
    keys.push_back("trace " + trace);
  }
  auto columns = first_columns();
  columns.push_back({"above", "above_belady", "above belady"});
  if (std::ranges::any_of(board.policies,
                          [&](const auto& p) { return p.replayed_cells() < board.cells.size(); }))
    columns.push_back({"caches", "caches", "caches"});
  if (std::ranges::any_of(board.policies, [](const auto& p) { return p.host_ns.has_value(); }))
    columns.push_back({"host", "host_ns", "host ns a visit"});
  auto rooms = rooms_row(board);
  rooms["above_belady"] = rooms["caches"] = rooms["host_ns"] = " ";
  std::vector<row> rows;
  for (const auto& policy : board.policies) rows.push_back(totals_of(policy));
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const auto* const key = keys[t].c_str();
    columns.push_back({key, key, titles[t].c_str(), in_percent});
    for (std::size_t p = 0; p < board.policies.size(); ++p)
      rows[p][key] = or_null(board.saved(board.policies[p], traces[t]));
    std::uint64_t room = 0;
    for (const auto& cell : board.cells) room += cell.trace == traces[t] ? cell.room() : 0;
    rooms[key] = room;
  }
  rows.push_back(std::move(rooms));
  return to_table(columns, rows, view);
}

std::string explanation_of(const leaderboard& board) {
  std::string out =
      "saved: of all misses between lru and belady, summed over the caches; worst, best: of one "
      "cache\n";
  if (!std::ranges::all_of(board.cells, &rank_cell::has_room))
    out +=
        "caches where belady avoids misses of less than 1 % of the accesses (-) are not worst or "
        "best\n";
  return out +
         "next_visit_oracle knows each layer's next visit, belady all visits: to compare with\n";
}

}  // namespace

std::string to_json_text(std::span<const ranking> rankings) {
  std::vector<std::string> texts;
  for (const auto& ranked : rankings) texts.push_back(json_lines_of(ranked));
  if (rankings.size() > 1) texts.push_back(json_lines_of(rank_traces(rankings)));
  return one_or_array(texts);
}

std::string to_csv(std::span<const ranking> rankings) {
  std::vector<row> rows;
  for (const auto& ranked : rankings)
    for (const auto& policy : ranked.policies)
      for (std::size_t c = 0; c < ranked.cells.size(); ++c)
        rows.push_back(row_in_cell(ranked, policy, c));
  return to_csv({"trace", "eviction", "offline", "scope", "size", "slots", "budget_bytes",
                 "accesses", "misses", "gap_closed", "mean_gap_closed", "saved", "share", "layers",
                 "experts", "above_belady", "worst", "best"},
                rows);
}

std::string to_table(const ranking& ranked, const table_view& view) {
  auto head =
      title_of(ranked.sweep) + "% of the misses between lru (0) and belady (100) that are avoided";
  if (!ranked.cells.empty() && one_scope(ranked)) head += ", scope " + ranked.cells.front().scope;
  return folded(head + '\n', view.width) + table_of(ranked, view) +
         folded(explanation_of(ranked) + notes_of(ranked.sweep), view.width);
}

std::string to_table(const leaderboard& board, const table_view& view) {
  const auto counted = [](std::size_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  const auto head =
      fmt::format("{}, {}\n% of the misses between lru (0) and belady (100) that are avoided\n",
                  counted(board.traces().size(), "trace"), counted(board.cells.size(), "cache"));
  auto notes = explanation_of(board);
  for (const auto& line : uneven_cells(board)) notes += "note: " + printable(line, 400) + '\n';
  return folded(head, view.width) + table_of(board, view) + folded(notes, view.width);
}

}  // namespace hotset::lab
