// SPDX-License-Identifier: Apache-2.0
// Must not compile: no on_move, but compaction moves the content of slots.
#include "almost_a_policy.hpp"

struct mine : almost_a_policy {
  using almost_a_policy::almost_a_policy;
  static constexpr hotset::eviction_traits traits{};
};
static_assert(hotset::is_eviction_policy<mine>());
