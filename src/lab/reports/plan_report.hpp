// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A plan as JSON (schema hotset.plan/1) and as text.

#include <string>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Returns JSON of schema hotset.plan/1.
[[nodiscard]] std::string to_json_text(const memory_plan& plan);
/// Returns lines for a terminal.
[[nodiscard]] std::string to_text(const memory_plan& plan);

}  // namespace hotset::lab
