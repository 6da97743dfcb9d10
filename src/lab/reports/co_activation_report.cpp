// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/co_activation_report.hpp"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

/// Sums over users, each of a precision of its own.
struct over_users {
  double precision = 0, popular = 0, cap = 0;
  void add(const study_score& score, double users) {
    precision += score.quality.precision() / users;
    popular += score.quality.popular_precision() / users;
    cap += static_cast<double>(score.cap) / users;
  }
};

struct size_summary {
  over_users personal, population, others;
  std::uint64_t wins = 0;
};

bool wins(const study_cell& cell) {
  return cell.personal.quality.hits >= cell.population.quality.hits;
}

size_summary summary_of(const study_result& result, std::size_t size) {
  size_summary out;
  const auto users = static_cast<double>(result.users.size());
  for (const auto& user : result.users) {
    const auto& cell = user.cells[size];
    out.personal.add(cell.personal, users);
    out.population.add(cell.population, users);
    out.others.add(cell.others, users);
    out.wins += wins(cell) ? 1U : 0U;
  }
  return out;
}

json score_json(const study_score& score) {
  return {{"precision", score.quality.precision()},
          {"popular_precision", score.quality.popular_precision()},
          {"cap", score.cap}};
}

json mean_json(const over_users& mean) {
  return {{"precision", mean.precision}, {"popular_precision", mean.popular}, {"cap", mean.cap}};
}

std::vector<std::string> cells_of(std::string_view name, std::uint64_t size, const size_summary& s,
                                  std::string_view wins) {
  const auto percent = [](double share) { return fmt::format("{:.2f}", 100 * share); };
  return {std::string(name),
          std::to_string(size),
          percent(s.personal.precision),
          percent(s.population.precision),
          percent(s.others.precision),
          percent(s.personal.popular),
          fmt::format("{:.1f}", s.personal.cap),
          fmt::format("{:.1f}", s.population.cap),
          std::string(wins)};
}

text_table empty_study_table() {
  text_table out;
  out.add({"user", "user", true, 0, true, {}});
  out.add({"tokens", "tokens", false, 0, true, {}});
  out.add({"personal", "personal %", false, 0, true, {}});
  out.add({"population", "population %", false, 0, true, {}});
  out.add({"others", "others %", false, 1, true, {}});
  out.add({"popular", "popular %", false, 2, true, {}});
  out.add({"cap", "cap", false, 2, true, {}});
  out.add({"population-cap", "population's cap", false, 3, true, {}});
  out.add({"wins", "wins", false, 1, true, {}});
  return out;
}

json to_json(const study_result& result) {
  json users = json::array();
  for (const auto& user : result.users) {
    json cells = json::array();
    for (std::size_t i = 0; i < result.sizes.size(); ++i)
      cells.push_back({{"tokens", result.sizes[i]},
                       {"personal", score_json(user.cells[i].personal)},
                       {"population", score_json(user.cells[i].population)},
                       {"others", score_json(user.cells[i].others)}});
    users.push_back(
        {{"name", user.name}, {"tested_tokens", user.tested}, {"sizes", std::move(cells)}});
  }
  json all = json::array();
  for (std::size_t i = 0; i < result.sizes.size(); ++i) {
    const auto mean = summary_of(result, i);
    all.push_back({{"tokens", result.sizes[i]},
                   {"personal", mean_json(mean.personal)},
                   {"population", mean_json(mean.population)},
                   {"others", mean_json(mean.others)},
                   {"wins", mean.wins}});
  }
  return {{"schema", coactivation_schema}, {"study", "personal-vs-population"},
          {"layers", result.layers},       {"experts", result.experts},
          {"top_k", result.top_k},         {"reach", result.table.reach},
          {"decay", result.table.decay},   {"coverage", result.coverage},
          {"left_out", result.left_out},   {"users", std::move(users)},
          {"all", std::move(all)}};
}

}  // namespace

std::string to_json_text(const study_result& result) { return one_line(to_json(result)) + '\n'; }

std::vector<std::string> study_columns() { return empty_study_table().names(); }

std::string to_table(const study_result& result, const table_view& view) {
  constexpr std::size_t most_shown = 8;
  std::uint64_t tested = 0;
  for (const auto& user : result.users) tested += user.tested;
  const auto head = fmt::format(
      "{} users of {} layers x {} experts, top-{}; reach {}, decay {}; tested on {} tokens; {} "
      "users too short\n"
      "precision at {} of the next layer, by tokens of training of each user; caps at {} % of "
      "the uses\n",
      result.users.size(), result.layers, result.experts, result.top_k, result.table.reach,
      result.table.decay, tested, result.left_out.size(), result.top_k, 100 * result.coverage);
  auto table = empty_study_table();
  if (result.users.size() <= most_shown)
    for (const auto& user : result.users)
      for (std::size_t i = 0; i < result.sizes.size(); ++i) {
        size_summary one;
        one.personal.add(user.cells[i].personal, 1);
        one.population.add(user.cells[i].population, 1);
        one.others.add(user.cells[i].others, 1);
        table.add_row(cells_of(printable(user.name, 20), result.sizes[i], one,
                               wins(user.cells[i]) ? "yes" : "no"));
      }
  for (std::size_t i = 0; i < result.sizes.size(); ++i) {
    const auto mean = summary_of(result, i);
    table.add_row(cells_of("all", result.sizes[i], mean,
                           fmt::format("{}/{}", mean.wins, result.users.size())));
  }
  return folded(head, view.width) + table.render(view);
}

}  // namespace hotset::lab
