// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on memory whose addresses and bytes are taken apart: addresses are reserved, blocks are mapped into them.
///
/// | expression | meaning |
/// |---|---|
/// | `granularity()` | bytes; every size is a positive multiple of it, every offset a multiple |
/// | `reserve(bytes, range)` | takes addresses with no memory behind them |
/// | `release(range)` | gives the addresses back; nothing may be mapped there |
/// | `create_block(bytes, block)` | takes physical memory of unknown content; slow, so not on the hot path |
/// | `destroy_block(block)` | gives it back; where it is mapped its bytes stay until the last place is unmapped |
/// | `map(range, offset, block)` | the whole block shows at the offset, where nothing may be mapped; a block may show at several places at once |
/// | `unmap(range, offset, bytes)` | undoes one `map`; nobody may still read or write there |
/// | `map_range(range, offset, blocks)` | optional, where it costs less: a `map` of each block, one behind the other, all or none |
///
/// Calls are `noexcept`. One that fails changes nothing, and outputs are written on success only.
/// What the caller got wrong is refused before the platform is asked: `invalid_argument` or `in_use`.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/version.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

// clang-format off: version 14 takes an attributed enum for a function
/// What became of a call.
enum class [[nodiscard]] memory_status : std::uint8_t{
    ok = 0,
    invalid_argument,  ///< a size, offset, range or block that is none; nothing changed
    in_use,            ///< something is mapped there; nothing changed
    out_of_memory,     ///< no more memory, addresses or mappings to be had; nothing changed
    failed,            ///< the platform refused for another reason; nothing changed
};
// clang-format on

/// Complexity: O(1). Returns a sentence fragment fit for a message.
[[nodiscard]] constexpr std::string_view describe(memory_status s) noexcept {
  switch (s) {
    case memory_status::ok: return "ok";
    case memory_status::invalid_argument: return "a size, offset, range or block that is none";
    case memory_status::in_use: return "something is mapped there";
    case memory_status::out_of_memory: return "out of memory";
    case memory_status::failed: return "the platform refused";
  }
  return "unknown memory status";
}

/// Physical memory of one virtual_memory. A name and no owner: copies name the same bytes.
struct memory_block {
  std::uint64_t id = 0;  ///< never used twice; 0 is none
  std::size_t bytes = 0;

  friend bool operator==(const memory_block&, const memory_block&) = default;
};

template <class V>
concept virtual_memory = requires(V memory, const V& fixed, std::size_t bytes, std::size_t offset,
                                  std::span<std::byte>& new_range, std::span<std::byte> range,
                                  memory_block& new_block, memory_block block) {
  { fixed.granularity() }
  noexcept->std::same_as<std::size_t>;
  { memory.reserve(bytes, new_range) }
  noexcept->std::same_as<memory_status>;
  { memory.release(range) }
  noexcept->std::same_as<memory_status>;
  { memory.create_block(bytes, new_block) }
  noexcept->std::same_as<memory_status>;
  { memory.destroy_block(block) }
  noexcept->std::same_as<memory_status>;
  { memory.map(range, offset, block) }
  noexcept->std::same_as<memory_status>;
  { memory.unmap(range, offset, bytes) }
  noexcept->std::same_as<memory_status>;
};
/// A virtual_memory with `map_range`.
template <class V>
concept maps_ranges = virtual_memory<V> &&
    requires(V memory, std::size_t offset, std::span<std::byte> range,
             std::span<const memory_block> blocks) {
  { memory.map_range(range, offset, blocks) }
  noexcept->std::same_as<memory_status>;
};

}  // namespace hotset
