// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A plan as JSON (schema hotset.plan/1) and as lines for people.

#include <string>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Schema hotset.plan/1.
[[nodiscard]] std::string to_json_text(const memory_plan& plan);
/// Lines for people.
[[nodiscard]] std::string to_text(const memory_plan& plan);

}  // namespace hotset::lab
