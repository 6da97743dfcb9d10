// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random interleavings of everything an engine may do with a slot_cache, over a backend that does whatever it may,
/// against a model of what the engine's kernels must read and what it must be told.

#include <cstdint>
#include <functional>

#include "event_trail.hpp"
#include "tested_cache.hpp"

namespace hotset::interleaving {

/// What a run is given beside its seed.
struct subject {
  support::cache_factory make;
  std::size_t precisions = 1;
  bool may_stay_on_host = false;  ///< admission may refuse a miss a slot
  bool upgrades = false;          ///< a resident copy may be too low for a use
};

/// Runs a life for so many operations. What it does follows from its seed alone; a fault goes into the trail.
using life_of_seed =
    std::function<void(std::uint64_t seed, std::uint64_t operations, support::event_trail&)>;

/// Runs one life after the other, each under its own seed, until a share of HOTSET_INTERLEAVING_OPERATIONS (100,000 by
/// default) is done. HOTSET_INTERLEAVING_SEED names the first seed; a failure says which one shows it.
/// Returns true if no life had a fault, and enough operations were made for every case to come up.
bool run_lives(const life_of_seed& life);

/// Runs caches: each is a life.
void run(const subject& of);

}  // namespace hotset::interleaving
