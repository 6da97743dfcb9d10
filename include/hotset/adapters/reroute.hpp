// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting: each token's experts become those of its adapter, or the slots that those have in a cache.
///
/// Rule: reroute: out = id, if it is negative; -1, if id >= experts or adapter >= adapters of the map;
///   id, if the token's adapter is negative (the base model); map[adapter][id] otherwise.
///   reroute_to_slots: out = slots[e] for what reroute makes of an id, e; no_slot, if e is negative or past the row.
/// What is out of range is not passed on: in the virtual weight tensor it may be another adapter's expert.
/// Source: ExpertWeave, section 4.3; the slots are ours.
/// Exact: yes, the same at every level. Cost: O(1) per id, in one pass; nothing outside the arrays is read.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/vector_level.hpp"
#include "hotset/core/status.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

/// How a batch went.
struct [[nodiscard]] reroute_result {
  status code = status::ok;
  std::uint64_t refused = 0;  ///< ids out of range; they became -1
};

namespace detail::rerouting {

/// Tokens with their experts. `out` may be `ids`.
struct batch {
  redirect_rows map;
  id_view<expert_id> ids;                          ///< [tokens * top_k]
  const std::int32_t* adapter_of_token = nullptr;  ///< [tokens], negative: the base model
  std::size_t tokens = 0;
  std::size_t top_k = 0;
  std::int32_t* out = nullptr;  ///< [tokens * top_k]
};

/// Nothing where the lengths do not belong together.
[[nodiscard]] inline std::optional<batch> batch_of(redirect_rows map, id_view<expert_id> ids,
                                                   std::span<const std::int32_t> adapter_of_token,
                                                   std::span<std::int32_t> out) noexcept {
  const auto tokens = adapter_of_token.size();
  if (out.size() != ids.size()) return std::nullopt;
  if (ids.empty()) return batch{};
  if (tokens == 0 || ids.size() % tokens != 0) return std::nullopt;
  return batch{map, ids, adapter_of_token.data(), tokens, ids.size() / tokens, out.data()};
}

/// One layer's slots by expert of the virtual weight tensor.
struct slot_row {
  const slot_id* slots = nullptr;  ///< [experts]
  std::int32_t experts = 0;        ///< 0 or more

  [[nodiscard]] slot_id of(expert_id expert) const noexcept {
    const bool is_there = static_cast<std::uint32_t>(expert) < static_cast<std::uint32_t>(experts);
    return is_there ? slots[index_of(expert)] : no_slot;
  }
};

// Scalar: the reference. A token's row is found once.

template <bool ToSlots>
std::uint64_t reroute_scalar(batch b, slot_row slots) noexcept {
  std::uint64_t refused = 0;
  std::size_t i = 0;
  for (std::size_t t = 0; t < b.tokens; ++t) {
    const auto adapter = b.adapter_of_token[t];
    const bool is_known = adapter < b.map.adapters;
    const std::int32_t experts = is_known ? b.map.experts : 0;
    const expert_id* const row =
        is_known && adapter >= 0 ? b.map.rows + std::int64_t{adapter} * b.map.experts : nullptr;
    for (const auto end = i + b.top_k; i < end; ++i) {
      auto id = b.ids[i];
      if (id >= experts && id >= 0) {
        ++refused;
        id = no_expert;
      } else if (id >= 0 && row != nullptr) {
        id = row[index_of(id)];
      }
      b.out[i] = ToSlots ? number(slots.of(id)) : number(id);
    }
  }
  return refused;
}

#if HOTSET_X86_VECTORS
#define HOTSET_AVX2 __attribute__((target("avx2,popcnt")))

/// Ids as the instructions take them; they alias everything.
[[nodiscard]] inline const std::int32_t* numbers(const void* ids) noexcept {
  return static_cast<const std::int32_t*>(ids);
}
/// Of fewer ids the scalar form is done before a vector form has set up its lanes.
inline constexpr std::size_t least_in_vectors = 48;
/// Lanes and offsets into the rows are 32 bits wide.
[[nodiscard]] inline bool suits_vectors(const batch& b) noexcept {
  return b.tokens * b.top_k >= least_in_vectors &&
         std::int64_t{b.map.adapters} * b.map.experts <= std::numeric_limits<std::int32_t>::max() &&
         b.top_k <= std::size_t{1} << 30U;
}
/// lane / top_k = (lane * this) >> 16, for up to 8 lanes.
[[nodiscard]] inline std::int32_t reciprocal(std::uint32_t top_k) noexcept {
  return static_cast<std::int32_t>(65536 / top_k + 1);
}

// AVX2: the lanes are 8 ids of the batch in their order, whichever tokens they belong to. A token's adapter is spread over
// its lanes, and one gather reads the rows of all of them.

/// Which tokens the lanes belong to.
struct walk_256 {
  HOTSET_AVX2 explicit walk_256(std::uint32_t top_k) noexcept
      : period(_mm256_set1_epi32(static_cast<std::int32_t>(top_k))),
        last(_mm256_set1_epi32(static_cast<std::int32_t>(top_k) - 1)),
        left_over(_mm256_set1_epi32(static_cast<std::int32_t>(8 % top_k))),
        whole_tokens(8 / top_k),
        is_even(8 % top_k == 0) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i scaled = _mm256_mullo_epi32(lane, _mm256_set1_epi32(reciprocal(top_k)));
    token = _mm256_srli_epi32(scaled, 16);
    place = _mm256_sub_epi32(lane, _mm256_mullo_epi32(token, period));
  }
  /// To the next 8 ids.
  HOTSET_AVX2 void advance() noexcept {
    first += whole_tokens;
    if (is_even) return;
    place = _mm256_add_epi32(place, left_over);
    const __m256i next = _mm256_cmpgt_epi32(place, last);
    const __m128i next_of_first = _mm256_castsi256_si128(next);
    place = _mm256_sub_epi32(place, _mm256_and_si256(next, period));
    token = _mm256_sub_epi32(token, next);
    token = _mm256_add_epi32(token, _mm256_broadcastd_epi32(next_of_first));
    first += static_cast<unsigned>(_mm_cvtsi128_si32(next_of_first)) & 1U;
  }
  __m256i period;
  __m256i last;
  __m256i left_over;
  std::size_t whole_tokens;
  bool is_even;           ///< a vector ends with a token
  __m256i token;          ///< of each lane, counted from `first`
  __m256i place;          ///< of each lane, among its token's ids
  std::size_t first = 0;  ///< token of the first lane
};
[[nodiscard]] HOTSET_AVX2 inline __m256i first_of_8(std::size_t count) noexcept {
  const auto lanes = static_cast<std::int32_t>(count < 8 ? count : 8);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
[[nodiscard]] HOTSET_AVX2 inline unsigned bits_of(__m256i mask) noexcept {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}
template <bool ToSlots>
HOTSET_AVX2 std::uint64_t reroute_avx2(batch b, slot_row slots) noexcept {
  const auto count = b.tokens * b.top_k;
  const __m256i none = _mm256_set1_epi32(-1);
  const __m256i experts = _mm256_set1_epi32(b.map.experts);
  const __m256i adapters = _mm256_set1_epi32(b.map.adapters);
  const __m256i slotted = _mm256_set1_epi32(slots.experts);
  const std::int32_t* const routed_ids = numbers(b.ids.data());
  const bool in_place = b.out == routed_ids;
  std::uint64_t refusals = 0;
  walk_256 walk(static_cast<std::uint32_t>(b.top_k));
  for (std::size_t i = 0; i < count; i += 8, walk.advance()) {
    const bool is_whole = count - i >= 8;
    const __m256i here = first_of_8(count - i);
    const __m256i ids = is_whole
                            ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(routed_ids + i))
                            : _mm256_maskload_epi32(routed_ids + i, here);
    const __m256i of_tokens =
        _mm256_maskload_epi32(b.adapter_of_token + walk.first, first_of_8(b.tokens - walk.first));
    const __m256i adapter = _mm256_permutevar8x32_epi32(of_tokens, walk.token);
    const __m256i routed = _mm256_and_si256(here, _mm256_cmpgt_epi32(ids, none));
    __m256i known = _mm256_and_si256(routed, _mm256_cmpgt_epi32(experts, ids));
    known = _mm256_and_si256(known, _mm256_cmpgt_epi32(adapters, adapter));
    const __m256i adapted = _mm256_and_si256(known, _mm256_cmpgt_epi32(adapter, none));
    const __m256i refused = _mm256_andnot_si256(known, routed);
    const auto any_adapted = bits_of(adapted);
    const auto any_refused = bits_of(refused);
    refusals += static_cast<std::uint64_t>(std::popcount(any_refused));
    __m256i found = _mm256_or_si256(ids, refused);
    if (any_adapted != 0) {
      const __m256i at = _mm256_add_epi32(_mm256_mullo_epi32(adapter, experts), ids);
      found = _mm256_mask_i32gather_epi32(found, numbers(b.map.rows), at, adapted, 4);
    }
    if constexpr (ToSlots) {
      __m256i has_slot = _mm256_and_si256(known, _mm256_cmpgt_epi32(found, none));
      has_slot = _mm256_and_si256(has_slot, _mm256_cmpgt_epi32(slotted, found));
      found = _mm256_mask_i32gather_epi32(none, numbers(slots.slots), found, has_slot, 4);
    } else if (in_place && (any_adapted | any_refused) == 0) {
      continue;
    }
    if (is_whole)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(b.out + i), found);
    else
      _mm256_maskstore_epi32(b.out + i, here, found);
  }
  return refusals;
}

#undef HOTSET_AVX2
#endif

/// Returns the ids that were refused. Pre: level <= best_vector_level().
template <bool ToSlots>
std::uint64_t run([[maybe_unused]] vector_level level, const batch& b, slot_row slots) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar && suits_vectors(b)) return reroute_avx2<ToSlots>(b, slots);
#endif
  return reroute_scalar<ToSlots>(b, slots);
}

}  // namespace detail::rerouting

/// Shape: ids and out [tokens * top_k], adapter_of_token [tokens], negative: the base model. `out` is `ids` or apart
/// from it; in place, ids that stay as they are may be left unwritten. Pre: level <= best_vector_level(); every level with
/// vectors uses AVX2.
/// Errors: invalid_argument (lengths that do not belong together).
inline reroute_result reroute(redirect_rows map, id_view<expert_id> ids,
                              std::span<const std::int32_t> adapter_of_token,
                              std::span<std::int32_t> out,
                              vector_level level = best_vector_level()) noexcept {
  const auto batch = detail::rerouting::batch_of(map, ids, adapter_of_token, out);
  if (!batch) return {status::invalid_argument, 0};
  return {status::ok, detail::rerouting::run<false>(level, *batch, {})};
}

/// Shape: slots [experts of the virtual weight tensor], a layer's row of a slot_map, at most 2^31 - 1; the rest as reroute
/// has it. `out` is apart from `ids`. Pre: level <= best_vector_level().
/// Returns: `refused` as reroute counts it; an expert that is absent is not refused.
/// Errors: invalid_argument (lengths that do not belong together, or a row that is too long).
inline reroute_result reroute_to_slots(redirect_rows map, std::span<const slot_id> slots,
                                       id_view<expert_id> ids,
                                       std::span<const std::int32_t> adapter_of_token,
                                       std::span<std::int32_t> out,
                                       vector_level level = best_vector_level()) noexcept {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  const auto batch = detail::rerouting::batch_of(map, ids, adapter_of_token, out);
  if (!batch || slots.size() > most) return {status::invalid_argument, 0};
  const detail::rerouting::slot_row row{slots.data(), static_cast<std::int32_t>(slots.size())};
  return {status::ok, detail::rerouting::run<true>(level, *batch, row)};
}

}  // namespace hotset
