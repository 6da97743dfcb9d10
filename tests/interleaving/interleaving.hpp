// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random interleavings of all slot_cache calls, over a backend with every permitted behaviour. A model knows which
/// bytes kernels must read and which failures must be reported.

#include <cstdint>
#include <functional>

#include "event_trail.hpp"
#include "tested_cache.hpp"

namespace hotset::interleaving {

/// Parameters of a run beside its seed.
struct subject {
  support::cache_factory make;
  std::size_t precisions = 1;
  bool may_stay_on_host = false;  ///< admission may refuse a slot
  bool upgrades = false;          ///< a resident's precision may be too low for a use
};

/// Runs a life for this many operations. The seed alone determines it; a fault is written to the trail.
using life_of_seed =
    std::function<void(std::uint64_t seed, std::uint64_t operations, support::event_trail&)>;

/// Runs lives, each with its own seed, until a share of HOTSET_INTERLEAVING_OPERATIONS (default 100,000) is done.
/// HOTSET_INTERLEAVING_SEED sets the first seed; a failure prints the seed that reproduces it. Returns true if no
/// life had a fault and there were enough operations for every case.
bool run_lives(const life_of_seed& life);

/// Runs caches, one per life.
void run(const subject& of);

}  // namespace hotset::interleaving
