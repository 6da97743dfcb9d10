// SPDX-License-Identifier: Apache-2.0
// Must not compile: it says that it hears of visits, and on_vist is no hook.
#include "almost_a_policy.hpp"

struct mine : almost_a_policy {
  using almost_a_policy::almost_a_policy;
  static constexpr hotset::eviction_traits traits{.hears_visits = true};
  void on_move(hotset::slot_id, hotset::slot_id) noexcept {}
  void on_vist(const hotset::visit_context&, std::span<const hotset::slot_id>) noexcept {}
};
static_assert(hotset::is_eviction_policy<mine>());
