// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A ranking of eviction policies as JSON (schema hotset.rank/2), CSV or a table.

#include <span>
#include <string>

#include "lab/reports/rows.hpp"
#include "lab/studies/rank.hpp"

namespace hotset::lab {

/// {"schema", "generator", "trace": {...}, "cells": [...], "policies": [...]}: shares as fractions. Null: room of less
/// than 1 % of the accesses, or not replayed.
/// JSON text with one line per policy: an object for one ranking, else an array of such objects. Its last element ranks
/// the policies over all traces: "traces", and a trace in each cell.
[[nodiscard]] std::string to_json_text(std::span<const ranking> rankings);
/// A header, then one line per policy and cell.
[[nodiscard]] std::string to_csv(std::span<const ranking> rankings);
/// One row per policy: the share saved over all cells, in the worst and the best cell, and one column per cell, in
/// percent ("-": null). The last row has the cells' room.
[[nodiscard]] std::string to_table(const ranking& ranked, const table_view& view = {});
/// A table of that kind over several traces, with the misses above belady's and one column per trace.
[[nodiscard]] std::string to_table(const leaderboard& board, const table_view& view = {});

}  // namespace hotset::lab
