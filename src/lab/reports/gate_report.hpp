// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What was learnt of a learned_gate, as JSON (schema hotset.train_gate/1) and as a table.

#include <string>

#include "lab/reports/text_table.hpp"
#include "lab/studies/train_gate.hpp"

namespace hotset::lab {

/// {"schema", "trace", "layers", "experts", "top_k", "d_model", "depth", "width", "epochs", "seed", "target", "learnt": {"sequences",
/// "tokens"}, "judged": {"sequences", "tokens"}, "distances": [{"distance", "places", "precision", "most_used", "current_gate",
/// "recorded"}]}; null for what the trace does not have.
[[nodiscard]] std::string to_json_text(const gate_training_result& result);
/// A row for each distance.
[[nodiscard]] std::string to_table(const gate_training_result& result, const table_view& view = {});

}  // namespace hotset::lab
