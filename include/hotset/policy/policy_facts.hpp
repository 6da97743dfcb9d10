// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What is true of a policy, whichever way it was chosen.

#include "hotset/version.hpp"

namespace hotset {

/// The `traits` of its class; of a policy that was chosen at run time, which has `facts()`, those of what it holds.
template <class P>
[[nodiscard]] constexpr auto facts_of(const P& policy) noexcept {
  if constexpr (requires { policy.facts(); })
    return policy.facts();
  else
    return P::traits;
}

}  // namespace hotset
