// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of a sweep as JSON (schema hotset.simulate/1), as CSV and as a table.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"
#include "lab/reports/rows.hpp"

namespace hotset::lab {

/// The schema of the JSON text: docs/schemas/simulate.json.
inline constexpr std::string_view simulate_schema = "hotset.simulate/1";

/// {"schema", "trace": {...}, "results": [...]} with a line for each replay; several sweeps give an array.
/// Null: not measured, such as times without a link. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json_text(std::span<const sweep_result> sweeps);

/// A header and a line for each replay; the fields of JSON without per_layer, after the trace's name.
[[nodiscard]] std::string to_csv(std::span<const sweep_result> sweeps);

/// The trace in a line, in another what all rows have in common, a row for each replay, then the notes. Regret is
/// fills / fills of belady - 1, against the belady row of the same policies, scope, replay and size; over bound is the same of
/// all bytes that were copied, against a belady row without prefetch. "-": there is no such row.
/// Errors: usage_error for a column that is none of report_columns().
[[nodiscard]] std::string to_table(const sweep_result& sweep, const table_view& view = {});
/// The columns by which whole systems are compared.
[[nodiscard]] std::vector<std::string> compared_columns(const sweep_request& request);
/// What table_view::columns may hold, besides "all".
[[nodiscard]] std::vector<std::string> report_columns();

/// The facts of the trace, as all reports of a sweep give them in JSON.
[[nodiscard]] row trace_to_json(const sweep_result& sweep);
/// The trace in a line.
[[nodiscard]] std::string title_of(const sweep_result& sweep);
/// A line for each different note and for each run that was left out.
[[nodiscard]] std::string notes_of(const sweep_result& sweep);

}  // namespace hotset::lab
