// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Picks the keys of a sample out of a row of ids: those whose hash is below a limit.
///
/// Rule: two rounds of multiply and fold, because neighbouring ids must not be sampled evenly; the upper half is the hash.
/// Cost: two multiplications an id, and no branch on what it is. Where the processor has AVX-512, many ids at once: the same
/// loop, compiled for it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/assert.hpp"

#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define HOTSET_FILTERS_IN_VECTORS 1
#else
#define HOTSET_FILTERS_IN_VECTORS 0
#endif

namespace hotset {

/// Immutable. Threads: const use is safe.
class sample_filter {
 public:
  static constexpr std::size_t most_ids = 512;  ///< of one call
  using keys = std::array<std::uint32_t, most_ids>;

  sample_filter() = default;
  /// Another sample for another seed.
  explicit sample_filter(std::uint64_t seed) noexcept : seed_(seed) {}

  [[nodiscard]] std::uint32_t hash(std::uint32_t key) const noexcept {
    auto x = (key + seed_) * 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 32U)) * 0xd6e8feb86659fd93U;
    return static_cast<std::uint32_t>(x >> 32U);
  }
  /// Writes the ids whose hash is below `limit` to the front of `out`, in order; what lies behind them is unknown.
  /// Returns how many. Pre: no more than most_ids.
  std::size_t select(id_view<expert_id> ids, std::uint64_t limit, keys& out) const noexcept {
    HOTSET_ASSERT(ids.size() <= most_ids);
#if HOTSET_FILTERS_IN_VECTORS
    if (has_vectors()) return select_in_vectors(ids, limit, out);
#endif
    return select_one_by_one(ids, limit, out);
  }
  /// Whether `select` uses vectors here.
  [[nodiscard]] static bool has_vectors() noexcept {
#if HOTSET_FILTERS_IN_VECTORS
    return __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
    return false;
#endif
  }
  /// `select` without vectors: multiplications of 64 bits are slower in those that every processor has.
  std::size_t select_one_by_one(id_view<expert_id> ids, std::uint64_t limit,
                                keys& out) const noexcept {
    std::size_t count = 0;
    for (const auto id : ids) {
      const auto key = static_cast<std::uint32_t>(id);
      out[count] = key;
      count += hash(key) < limit ? 1U : 0U;
    }
    return count;
  }

 private:
#if HOTSET_FILTERS_IN_VECTORS
  /// First all hashes, which compilers make vectors of, then the choice.
  __attribute__((target("avx512f,avx512dq,avx512vl"))) std::size_t select_in_vectors(
      id_view<expert_id> ids, std::uint64_t limit, keys& out) const noexcept {
    keys hashes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    for (std::size_t i = 0; i < ids.size(); ++i)
      hashes[i] = hash(static_cast<std::uint32_t>(ids[i]));
    std::size_t count = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out[count] = static_cast<std::uint32_t>(ids[i]);
      count += hashes[i] < limit ? 1U : 0U;
    }
    return count;
  }
#endif

  std::uint64_t seed_ = 0;
};

}  // namespace hotset
