// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What policies that look beyond the running visit are given.

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/usage_profile.hpp"
#include "hotset/trace/use_order.hpp"

namespace hotset {

/// A missing part refuses the policy that needs it.
struct policy_knowledge {
  std::shared_ptr<const future_uses> future{};  ///< of policies whose traits say needs_future
  usage_profile profile{};                      ///< of policies that ask for one: profile_request
  shared_use_orders numbered{};  ///< of that future; none: each policy numbers it for itself
};

/// Where a policy takes its profile from.
struct profile_request {
  std::string source{"trace"};  ///< "trace": the one that is replayed; else a trace file
  std::uint64_t first = 0;      ///< tokens of it to count; 0: all
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
  friend auto operator<=>(const profile_request&, const profile_request&) = default;
};

}  // namespace hotset
