// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a pager's decisions as JSON lines.

#include <cstddef>
#include <ostream>

#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset::lab {

/// One line for each committed plan: hits, fills with their slots, and victims.
class decision_log {
 public:
  decision_log(std::ostream& out, std::size_t run) : out_(out), run_(run) {}
  void on_plan(const visit_plan& plan);

 private:
  std::ostream& out_;
  std::size_t run_;
};

}  // namespace hotset::lab
