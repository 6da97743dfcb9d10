// SPDX-License-Identifier: Apache-2.0
// Must not compile: needs_weights was a member of its own once.
#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/no_options.hpp"

struct mine {
  using config = hotset::no_options;
  static constexpr std::string_view name = "mine";
  static constexpr bool needs_weights = true;
  mine(const hotset::pool_layout&, const config&) {}
  void on_hit(const hotset::access&) noexcept {}
  void on_fill(const hotset::access&) noexcept {}
  void on_evict(hotset::slot_id, hotset::expert_key) noexcept {}
  void on_move(hotset::slot_id, hotset::slot_id) noexcept {}
  std::size_t select_victims(const hotset::visit_context&, const hotset::slot_mask&,
                             std::span<hotset::slot_id>) noexcept {
    return 0;
  }
};
static_assert(hotset::is_eviction_policy<mine>());
