// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a study of co-activation tables found, as JSON (schema hotset.coactivation/1) and as a table for people.

#include <string>
#include <vector>

#include "lab/reports/text_table.hpp"
#include "lab/studies/co_activation_study.hpp"

namespace hotset::lab {

/// {"schema", "study": "personal-vs-population", "layers", "experts", "top_k", "reach", "decay", "coverage", "left_out",
/// "users": [{"name", "tested_tokens", "sizes": [{"tokens", "personal", "population", "others"}]}], "all": [{"tokens",
/// "personal", "population", "others", "wins"}]}. Each table: {"precision", "popular_precision", "cap"}. "all" has the means
/// over users; "wins" counts those whose personal table is at least as precise as the population's.
[[nodiscard]] std::string to_json_text(const study_result& result);
/// A row for each user and size, and one over all users; many users give the rows over all alone.
[[nodiscard]] std::string to_table(const study_result& result, const table_view& view = {});
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> study_columns();

}  // namespace hotset::lab
