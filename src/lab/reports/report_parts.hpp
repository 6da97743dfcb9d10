// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What all reports of a sweep begin and end with.

#include <string>

#include <nlohmann/json.hpp>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

[[nodiscard]] nlohmann::ordered_json trace_to_json(const sweep_result& sweep);
/// The trace in a line.
[[nodiscard]] std::string title_of(const sweep_result& sweep);
/// A line for each note, once, and for what was not replayed.
[[nodiscard]] std::string notes_of(const sweep_result& sweep);

}  // namespace hotset::lab
