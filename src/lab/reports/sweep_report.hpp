// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of a sweep as JSON (schema hotset.simulate/1), as CSV and as a table for people.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"
#include "lab/reports/text_table.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view simulate_schema = "hotset.simulate/1";

/// {"schema", "trace": {...}, "results": [...]}: counters, seconds, and the two ratios of a prefetcher. Null: not
/// measured; times without a link, quality where no model ran.
/// JSON text with a line for each replay: an object for one sweep, else an array of such objects.
/// Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json_text(std::span<const sweep_result> sweeps);

/// A header and a line for each replay; the fields of JSON without per_layer, after the trace's name.
[[nodiscard]] std::string to_csv(std::span<const sweep_result> sweeps);

/// The trace in a line, in another what all rows have in common, a row for each replay, then the notes. Regret is
/// fills / fills of belady - 1, against the belady row of the same policies, scope, replay and size; over bound is the same of
/// all bytes that were copied, against a belady row without prefetch. "-" where there is none.
/// Errors: usage_error for a column that is none of report_columns().
[[nodiscard]] std::string to_table(const sweep_result& sweep, const table_view& view = {});
/// The columns by which whole systems are compared.
[[nodiscard]] std::vector<std::string> compared_columns(const sweep_request& request);
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> report_columns();

}  // namespace hotset::lab
