// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves as JSON (schema hotset.curve/2), CSV or a table.

#include <span>
#include <string>
#include <vector>

#include "lab/curves/miss_curves.hpp"
#include "lab/reports/rows.hpp"

namespace hotset::lab {

/// {"schema", "generator", "name", "scope", "eviction" (if one was named), "method", "replay", "accesses",
/// "compulsory_misses", "widest", "experts_total", "cycle", "curves": [{"layer", "widest", "misses", "slot_bytes",
/// "below_cycle"}]}. Misses below a pool's widest union are null.
/// One object for a single set, else an array.
[[nodiscard]] std::string to_json_text(std::span<const curve_set> sets);
/// trace,scope,eviction (if one was named),method,replay,layer,slots,misses,share,bytes,layers,experts,below_cycle; one
/// line per capacity, from the widest union on.
[[nodiscard]] std::string to_csv(std::span<const curve_set> sets);
/// Misses and hits of all pools together, at several capacities. A line says if some are below a token's cycle.
[[nodiscard]] std::string to_table(const curve_set& curves, const table_view& view = {});
/// Accepted names in table_view::columns, besides "all".
[[nodiscard]] std::vector<std::string> curve_columns();

}  // namespace hotset::lab
