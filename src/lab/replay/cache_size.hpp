// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns "12.5%", "5%@16:4", "64" or "1500MiB" into the slot pools of a replay.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "lab/errors.hpp"
#include "lab/replay/replay.hpp"

namespace hotset::lab {

/// Requested size of the cache.
struct size_request {
  /// Unit of the size.
  enum class unit : std::uint8_t {
    slots,    ///< slots of the shared pool, or of every layer
    percent,  ///< share of the experts in the scope, rounded half up, at least 1
    bytes,    ///< bytes of all pools together; divided by the layers in per-layer scope
  };
  unit what = unit::slots;
  double value = 0;         ///< percent
  std::uint64_t count = 0;  ///< slots or bytes
  std::string text{};       ///< as given

  /// Parses "64", "12.5%", or "5%@16:4": 5 % of the experts' bytes at 16 bits, with experts of 4 bits (20 % of them).
  /// Errors: usage_error.
  [[nodiscard]] static size_request parse_slots(std::string_view text);
  /// Parses "1500MiB". Errors: usage_error that lists the units.
  [[nodiscard]] static size_request parse_budget(std::string_view text);
};

/// Whether experts have known bytes. One byte each only counts objects, such as KV blocks.
[[nodiscard]] bool has_bytes(const geometry& shape);

/// Errors: usage_error.
[[nodiscard]] cache_scope parse_scope(std::string_view name);
/// The name that parse_scope accepts.
[[nodiscard]] std::string_view name_of(cache_scope scope) noexcept;

/// Slots of one replay. Deferred replay: a slot for every key, and a budget in bytes.
struct cache_size {
  pool_layout layout;
  std::vector<std::uint64_t> pool_bytes{};  ///< by pool; deferred replay only
};
/// Errors: infeasible_error with the smallest size that works; usage_error.
[[nodiscard]] cache_size make_cache_size(const geometry& shape, cache_scope scope,
                                         const size_request& size,
                                         replay_mode mode = replay_mode::event_atomic,
                                         bool size_classes = false);

}  // namespace hotset::lab
