// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cost of fixed splits of a budget and of the controller, as JSON (schema hotset.split/1) and as a table.

#include <span>
#include <string>
#include <vector>

#include "lab/reports/rows.hpp"
#include "lab/studies/split_replay.hpp"

namespace hotset::lab {

/// {"schema", "results": [{"name", "bursts", "outcomes": [{"policy", "cap", "seconds_per_burst", "over_oracle",
/// "moves", "caps"}]}]}. over_oracle is null if the oracle pays nothing and the policy does.
[[nodiscard]] std::string to_json_text(std::span<const split_result> results);
/// One row per policy and result.
[[nodiscard]] std::string to_table(std::span<const split_result> results,
                                   const table_view& view = {});
/// Accepted names in table_view::columns, besides "all".
[[nodiscard]] std::vector<std::string> split_columns();

}  // namespace hotset::lab
