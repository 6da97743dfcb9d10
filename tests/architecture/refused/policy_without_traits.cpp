// SPDX-License-Identifier: Apache-2.0
// Must not compile: needs_weights is a member of the class instead of a trait.
#include "almost_a_policy.hpp"

struct mine : almost_a_policy {
  using almost_a_policy::almost_a_policy;
  static constexpr bool needs_weights = true;
  void on_move(hotset::slot_id, hotset::slot_id) noexcept {}
};
static_assert(hotset::is_eviction_policy<mine>());
