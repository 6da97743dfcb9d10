// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A working set as JSON and as lines for people.

#include <string>

#include "lab/studies/working_set.hpp"

namespace hotset::lab {

/// {"pool", "burst_steps", "seed", "bursts": {"decode": {"count", "shorter", "mean", "least", "most"}},
/// "burst_overlap", "decode_burst_overlap": {"pairs", "jaccard", "held"}, "step_overlap": {"pairs", "share"},
/// "sequence_footprint": {"after": [{"bursts", "sequences", "share"}], "end": {"sequences", "mean", "least", "most"}},
/// "trace_footprint": {"after": [{"bursts", "share"}], "end": {"bursts", "share"}},
/// "agreement": [{"distance", "pairs", "share", "shuffled_pairs", "shuffled"}]}. Of nothing: null.
[[nodiscard]] std::string to_json_text(const working_set& set);
/// Lines for people, in per cent; "-" where there is nothing.
[[nodiscard]] std::string to_text(const working_set& set);

}  // namespace hotset::lab
