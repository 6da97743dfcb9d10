// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes what a pager decided as JSON lines.

#include <ostream>
#include <span>
#include <string>

#include "hotset/paging/any_pager.hpp"

namespace hotset::lab {

/// One line a committed plan: who hit, which copies were made into which slots, and whose place they took.
class decision_log final : public decision_sink {
 public:
  decision_log(std::ostream& out, std::size_t run) : out_(out), run_(run) {}
  void on_plan(const visit_plan& plan) override;
  void on_trim(const visit_context& context, std::span<const expert_key> evicted) override;

 private:
  std::ostream& out_;
  std::size_t run_;
};

}  // namespace hotset::lab
