// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/split_report.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

/// Share of the time over the oracle's; nothing where the oracle pays nothing and the policy does.
std::optional<double> over_oracle(const split_outcome& outcome, const split_result& result) {
  const auto least = result.outcomes.front().seconds;
  if (outcome.seconds == least) return 0;
  if (least == 0) return std::nullopt;
  return outcome.seconds / least - 1;
}

/// In per cent; what rounds to nothing has no sign.
std::string percent_over(const split_outcome& outcome, const split_result& result) {
  const auto over = over_oracle(outcome, result);
  if (!over) return "-";
  const auto percent = 100 * *over;
  return fmt::format("{:.1f}", std::abs(percent) < 0.05 ? 0 : percent);
}

json to_json(std::span<const split_result> results) {
  json out = json::array();
  for (const auto& r : results) {
    json outcomes = json::array();
    for (const auto& o : r.outcomes) {
      const auto over = over_oracle(o, r);
      outcomes.push_back({{"policy", o.policy},
                          {"cap", o.cap},
                          {"seconds_per_burst", o.seconds},
                          {"over_oracle", over ? json(*over) : json()},
                          {"moves", o.moves},
                          {"caps", o.caps}});
    }
    out.push_back({{"name", r.name}, {"bursts", r.bursts}, {"outcomes", std::move(outcomes)}});
  }
  return {{"schema", split_schema}, {"results", std::move(out)}};
}

text_table empty_split_table() {
  text_table out;
  out.add({"policy", "policy", true, 0, true, {}});
  for (const auto& [name, title] : {std::pair("cap", "cap"),
                                    {"ms", "ms a burst"},
                                    {"over-oracle", "over oracle %"},
                                    {"moves", "moves"}})
    out.add({name, title, false, 0, true, {}});
  return out;
}

}  // namespace

std::string to_json_text(std::span<const split_result> results) {
  return one_line(to_json(results)) + '\n';
}

std::vector<std::string> split_columns() { return empty_split_table().names(); }

std::string to_table(std::span<const split_result> results, const table_view& view) {
  std::string out;
  for (const auto& r : results) {
    out += fmt::format("{}{}: {} bursts\n", out.empty() ? "" : "\n", printable(r.name), r.bursts);
    auto table = empty_split_table();
    for (const auto& o : r.outcomes)
      table.add_row({o.policy, o.cap == 0 ? "-" : std::to_string(o.cap),
                     fmt::format("{:.3f}", 1e3 * o.seconds), percent_over(o, r),
                     std::to_string(o.moves)});
    out += table.render(view);
  }
  return out;
}

}  // namespace hotset::lab
