// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What fixed splits of a budget and the controller cost, as JSON (schema hotset.split/1) and as a table.

#include <span>
#include <string>
#include <vector>

#include "lab/reports/rows.hpp"
#include "lab/studies/split_replay.hpp"

namespace hotset::lab {

/// {"schema", "results": [{"name", "bursts", "outcomes": [{"policy", "cap", "seconds_per_burst", "over_oracle", "moves",
/// "caps"}]}]}. over_oracle is null if the oracle pays nothing and the policy does.
[[nodiscard]] std::string to_json_text(std::span<const split_result> results);
/// A row for each policy of each result.
[[nodiscard]] std::string to_table(std::span<const split_result> results,
                                   const table_view& view = {});
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> split_columns();

}  // namespace hotset::lab
