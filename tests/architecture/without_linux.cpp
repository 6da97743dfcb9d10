// SPDX-License-Identifier: Apache-2.0
// Compiled as if the system were not Linux: a cache with slots of a fixed size.
#include "hotset/cache/expert_slots.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

using backend = hotset::host_backend<hotset::memory_expert_source>;
template class hotset::slot_cache<hotset::pager<hotset::lru>, backend>;
template class hotset::expert_slots<hotset::slot_cache<hotset::pager<hotset::lru>, backend>,
                                    hotset::host_slot_bank>;
static_assert(sizeof(hotset::host_virtual_memory) == 1, "the one that holds nothing");
