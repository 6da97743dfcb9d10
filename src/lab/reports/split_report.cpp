// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/split_report.hpp"

#include <fmt/format.h>

#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

constexpr column outcome_columns[] = {
    {"policy", "policy", "policy", {cell::word}},
    {"cap", "cap", "cap", {.some = true}},
    {"ms", "seconds_per_burst", "ms a burst", {.digits = 3, .scale = 1e3}},
    {"over-oracle", "over_oracle", "over oracle %", {.digits = 1, .scale = 100}},
    {"moves", "moves", "moves"},
};

/// Relative time above the oracle's; null if the oracle pays nothing and the policy does.
row over_oracle(const split_outcome& outcome, const split_result& result) {
  const auto least = result.outcomes.front().seconds;
  if (outcome.seconds == least) return 0.0;
  return least == 0 ? row(nullptr) : row(outcome.seconds / least - 1);
}

std::vector<row> rows_of(const split_result& result) {
  std::vector<row> rows;
  for (const auto& o : result.outcomes)
    rows.push_back({{"policy", o.policy},
                    {"cap", o.cap},
                    {"seconds_per_burst", o.seconds},
                    {"over_oracle", over_oracle(o, result)},
                    {"moves", o.moves},
                    {"caps", o.caps}});
  return rows;
}

}  // namespace

std::string to_json_text(std::span<const split_result> results) {
  row all = row::array();
  for (const auto& r : results)
    all.push_back({{"name", r.name}, {"bursts", r.bursts}, {"outcomes", rows_of(r)}});
  return one_line({{"schema", split_schema}, {"results", std::move(all)}}) + '\n';
}

std::vector<std::string> split_columns() { return names_of(outcome_columns); }

std::string to_table(std::span<const split_result> results, const table_view& view) {
  std::string out;
  for (const auto& r : results)
    out += fmt::format("{}{}: {} bursts\n{}", out.empty() ? "" : "\n", printable(r.name), r.bursts,
                       to_table(outcome_columns, rows_of(r), view));
  return out;
}

}  // namespace hotset::lab
