// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of a sweep as JSON (schema hotset.simulate/2), CSV and a table.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"
#include "lab/reports/rows.hpp"

namespace hotset::lab {

/// Schema of the JSON text: docs/schemas/simulate.json.
inline constexpr std::string_view simulate_schema = "hotset.simulate/2";

/// {"schema", "generator", "trace": {...}, "results": [...]} with one line per replay; several sweeps give an array.
/// Null: not measured, such as times without a link. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json_text(std::span<const sweep_result> sweeps);

/// A header and one line per replay: the trace's name, then the fields of JSON without lists of parts and key.
[[nodiscard]] std::string to_csv(std::span<const sweep_result> sweeps);

/// A line on the trace, a line with the values common to all rows, one row per replay, then the notes. Regret is
/// fills / fills of belady - 1, relative to the belady row with the same policies, scope, replay and size. Over bound
/// is the same ratio of all copied bytes, relative to a belady row without prefetch. "-": no such row.
/// Errors: usage_error for a column that is none of report_columns().
[[nodiscard]] std::string to_table(const sweep_result& sweep, const table_view& view = {});
/// Columns for comparing whole systems.
[[nodiscard]] std::vector<std::string> compared_columns(const sweep_request& request);
/// Accepted names in table_view::columns, besides "all".
[[nodiscard]] std::vector<std::string> report_columns();

/// A JSON line for each run, with the trace's file; members are named as in to_json_text().
[[nodiscard]] std::string to_json_lines(std::string_view file, std::span<const planned_run> runs);

/// First members of every JSON report of a sweep: {"schema", "generator", "trace": {...}}, and "not_replayed" if
/// something was left out.
[[nodiscard]] row head_of(const sweep_result& sweep, std::string_view schema);
/// Facts of the trace in one line.
[[nodiscard]] std::string title_of(const sweep_result& sweep);
/// One line per distinct note, and one per run that was left out.
[[nodiscard]] std::string notes_of(const sweep_result& sweep);

}  // namespace hotset::lab
