// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Exact misses of fifo, lfu and belady in a pool at every size, without one pager per size.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::lab {

/// Policies that measure_curves can measure exactly at every capacity. lru comes first; its misses follow from reuse
/// distances.
[[nodiscard]] std::span<const std::string_view> evictions_of_every_size() noexcept;

/// Misses in one pool, for each number of slots from `fewest` to all keys of the pool: the experts of `layer`, or of
/// all layers. They equal those of a pager that admits and fetches every miss.
/// Pre: eviction is fifo, lfu or belady, without parameters; no visit of the pool uses more than `fewest` experts.
/// Complexity: lfu and belady O(1) for a hit in the smallest pool, else O(sizes); fifo reads the trace once for each
/// 64 sizes.
[[nodiscard]] std::vector<std::uint64_t> misses_of_every_size(std::string_view eviction,
                                                              const visit_sequence& visits,
                                                              std::optional<layer_id> layer,
                                                              std::size_t fewest);

}  // namespace hotset::lab
