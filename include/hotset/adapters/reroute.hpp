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
#include "hotset/core/platform/compiler.hpp"
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

/// What a token's ids are looked up in.
struct token_row {
  const expert_id* row = nullptr;  ///< null: the base model's ids stay
  std::int32_t experts = 0;        ///< ids from here on are refused
};
[[nodiscard]] inline token_row row_of(const batch& b, std::size_t token) noexcept {
  const auto adapter = b.adapter_of_token[token];
  if (adapter >= b.map.adapters) return {};
  if (adapter < 0) return {nullptr, b.map.experts};
  return {b.map.rows + std::int64_t{adapter} * b.map.experts, b.map.experts};
}

/// Ids [from, to) of a token, one by one. Returns those that were refused.
template <bool ToSlots>
std::uint64_t reroute_ids(const batch& b, slot_row slots, token_row token, std::size_t from,
                          std::size_t to) noexcept {
  std::uint64_t refused = 0;
  for (auto i = from; i < to; ++i) {
    auto id = b.ids[i];
    if (id >= token.experts && id >= 0) {
      ++refused;
      id = no_expert;
    } else if (id >= 0 && token.row != nullptr) {
      id = token.row[index_of(id)];
    }
    b.out[i] = ToSlots ? number(slots.of(id)) : number(id);
  }
  return refused;
}
template <bool ToSlots>
std::uint64_t reroute_scalar(const batch& b, slot_row slots) noexcept {
  std::uint64_t refused = 0;
  for (std::size_t t = 0; t < b.tokens; ++t)
    refused += reroute_ids<ToSlots>(b, slots, row_of(b, t), t * b.top_k, (t + 1) * b.top_k);
  return refused;
}

#if HOTSET_X86_VECTORS
/// Ids as the instructions take them; they alias everything.
[[nodiscard]] inline const std::int32_t* numbers(const void* ids) noexcept {
  return static_cast<const std::int32_t*>(ids);
}
/// Eight ids of a token at a time, what is left of it one by one: no vector has ids of two tokens.
template <bool ToSlots>
__attribute__((target("avx2,popcnt"))) std::uint64_t reroute_avx2(const batch& b,
                                                                  slot_row slots) noexcept {
  const __m256i none = _mm256_set1_epi32(-1);
  const __m256i slotted = _mm256_set1_epi32(slots.experts);
  const std::int32_t* const routed = numbers(b.ids.data());
  std::uint64_t refusals = 0;
  for (std::size_t t = 0, i = 0; t < b.tokens; ++t) {
    const auto token = row_of(b, t);
    const __m256i experts = _mm256_set1_epi32(token.experts);
    const auto end = i + b.top_k;
    for (; end - i >= 8; i += 8) {
      const __m256i ids = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(routed + i));
      const __m256i is_expert = _mm256_cmpgt_epi32(ids, none);
      const __m256i known = _mm256_and_si256(is_expert, _mm256_cmpgt_epi32(experts, ids));
      const __m256i refused = _mm256_andnot_si256(known, is_expert);
      refusals += static_cast<std::uint64_t>(
          std::popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(refused)))));
      __m256i found = _mm256_or_si256(ids, refused);
      if (token.row != nullptr)
        found = _mm256_mask_i32gather_epi32(found, numbers(token.row), ids, known, 4);
      if constexpr (ToSlots) {
        __m256i has_slot = _mm256_and_si256(known, _mm256_cmpgt_epi32(found, none));
        has_slot = _mm256_and_si256(has_slot, _mm256_cmpgt_epi32(slotted, found));
        found = _mm256_mask_i32gather_epi32(none, numbers(slots.slots), found, has_slot, 4);
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(b.out + i), found);
    }
    refusals += reroute_ids<ToSlots>(b, slots, token, i, end);
    i = end;
  }
  return refusals;
}
#endif

/// Returns the ids that were refused. Pre: level <= best_vector_level().
template <bool ToSlots>
std::uint64_t run([[maybe_unused]] vector_level level, const batch& b, slot_row slots) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar && b.top_k >= 8) return reroute_avx2<ToSlots>(b, slots);
#endif
  return reroute_scalar<ToSlots>(b, slots);
}

}  // namespace detail::rerouting

/// Shape: ids and out [tokens * top_k], adapter_of_token [tokens], negative: the base model. `out` is `ids` or apart
/// from it. Pre: level <= best_vector_level(); each but scalar uses AVX2.
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
