// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a prefetcher asks for, and what the copies that it causes may evict.

#include <cstdint>

#include "hotset/core/ids.hpp"

namespace hotset {

/// One expert that may be needed soon. Lists of requests are best first.
struct prefetch_request {
  expert_key key{};
  step_id for_step = 0;      ///< the step whose visit of key.layer it is meant for
  float probability = 1.0F;  ///< the predictor's own
};

/// What a speculative fill may evict.
enum class prefetch_guard : std::uint8_t {
  none,   ///< whatever the eviction policy picks
  named,  ///< no key with an outstanding request, and none that an open visit reads
  predicted,  ///< as `named`, and no key that is expected at least as likely, in the same visit or a sooner one
};

}  // namespace hotset
