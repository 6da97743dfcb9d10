// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Common base of the refused policies: complete except for traits and on_move.

#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

struct almost_a_policy {
  using config = hotset::no_options;
  static constexpr std::string_view name = "mine";
  almost_a_policy(const hotset::pool_layout&, const config&) {}
  void on_visit(const hotset::visit_event&) noexcept {}
  void on_prefetch(const hotset::prefetch_event&) noexcept {}
  void on_evict(hotset::slot_id, hotset::expert_key) noexcept {}
  std::size_t select_victims(const hotset::visit_context&, const hotset::slot_mask&,
                             std::span<hotset::slot_id>) noexcept {
    return 0;
  }
};
