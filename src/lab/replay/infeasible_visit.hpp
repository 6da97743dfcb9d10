// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a replay says of a visit that could not be carried out.

#include <cstddef>

#include <fmt/format.h>

#include "hotset/core/status.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"

namespace hotset::lab {

/// Errors: throws infeasible_error naming visit i and why.
[[noreturn]] inline void refuse_visit(const visit_sequence& visits, std::size_t i, status why) {
  const auto& v = visits.at(i);
  throw infeasible_error(
      fmt::format("visit {} (step {}, layer {}): {}", i, v.step, v.layer, describe(why)));
}

}  // namespace hotset::lab
