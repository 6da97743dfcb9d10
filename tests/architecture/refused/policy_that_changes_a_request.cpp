// SPDX-License-Identifier: Apache-2.0
// Must not compile: on_request takes a const event, not one to change.
#include "almost_a_policy.hpp"

struct mine : almost_a_policy {
  using almost_a_policy::almost_a_policy;
  static constexpr hotset::eviction_traits traits{.wants_requests = true};
  void on_move(hotset::slot_id, hotset::slot_id) noexcept {}
  void on_request(hotset::prefetch_event&) noexcept {}
};
static_assert(hotset::is_eviction_policy<mine>());
