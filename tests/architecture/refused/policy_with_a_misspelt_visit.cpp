// SPDX-License-Identifier: Apache-2.0
// Must not compile: on_vist is no hook.
#include "almost_a_policy.hpp"

struct mine : private almost_a_policy {
  using config = hotset::no_options;
  using almost_a_policy::almost_a_policy;
  using almost_a_policy::name;
  using almost_a_policy::on_evict;
  using almost_a_policy::on_prefetch;
  using almost_a_policy::select_victims;
  static constexpr hotset::eviction_traits traits{};
  void on_move(hotset::slot_id, hotset::slot_id) noexcept {}
  void on_vist(const hotset::visit_event&) noexcept {}
};
static_assert(hotset::is_eviction_policy<mine>());
