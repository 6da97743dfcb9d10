// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random interleavings of everything an engine may do with a slot_cache, over a backend that does whatever it may,
/// against a model of what the engine's kernels must read and what it must be told.

#include <cstdint>

#include "tested_cache.hpp"

namespace hotset::interleaving {

/// What a run is given beside its seed.
struct subject {
  support::cache_factory make;
  std::size_t precisions = 1;
  bool may_stay_on_host = false;  ///< admission may refuse a miss a slot
  bool upgrades = false;          ///< a resident copy may be too low for a use
};

/// One cache after the other, each under its own seed, until a share of HOTSET_INTERLEAVING_OPERATIONS (100,000 by
/// default) is done. HOTSET_INTERLEAVING_SEED names the first seed; a failure says which one shows it.
void run(const subject& of);

}  // namespace hotset::interleaving
