// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What files and reports call the classes of requests.

#include <array>
#include <cstddef>
#include <utility>

#include "hotset/core/ids.hpp"

namespace hotset {

/// All of them, in the order of their numbers.
inline constexpr std::array<std::pair<request_class, const char*>, 3> request_classes{
    {{request_class::decode, "decode"},
     {request_class::prefill, "prefill"},
     {request_class::verify, "verify"}}};

/// "decode", "prefill", "verify".
[[nodiscard]] constexpr const char* name_of(request_class kind) noexcept {
  return request_classes[static_cast<std::size_t>(kind)].second;
}

}  // namespace hotset
