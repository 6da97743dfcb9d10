// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on memory whose addresses and bytes are allocated separately; and an address range into which blocks
/// are mapped.
///
/// | expression | meaning |
/// |---|---|
/// | `granularity()` | bytes; every size is a positive multiple of it, every offset a multiple |
/// | `reserve(bytes, range)` | reserves addresses without memory |
/// | `release(range)` | releases the addresses; nothing may be mapped there |
/// | `create_block(bytes, block)` | allocates physical memory of unspecified content; slow, not for the hot path |
/// | `destroy_block(block)` | frees it; mapped bytes stay until the last mapping is removed |
/// | `map(range, offset, block)` | maps the whole block at an unmapped offset; a block may be mapped several times |
/// | `unmap(range, offset, bytes)` | undoes one `map`; no reads or writes there may be outstanding |
/// | `map_range(range, offset, blocks)` | optional and cheaper: maps all blocks in sequence, all or none |
///
/// Calls are `noexcept`. A failed call changes nothing. Outputs are written on success only.
/// Misuse is refused before the platform is called: `invalid_argument` or `in_use`.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"

namespace hotset {

// clang-format off: version 14 parses an attributed enum as a function
/// Result of a call.
enum class [[nodiscard]] memory_status : std::uint8_t{
    ok = 0,
    invalid_argument,  ///< an invalid size, offset, range or block; nothing changed
    in_use,            ///< the range is mapped; nothing changed
    out_of_memory,     ///< no memory, addresses or mappings left; nothing changed
    failed,            ///< the platform refused for another reason; nothing changed
};
// clang-format on

/// Returns a sentence fragment for a message. Complexity: O(1).
[[nodiscard]] constexpr std::string_view describe(memory_status s) noexcept {
  switch (s) {
    case memory_status::ok: return "ok";
    case memory_status::invalid_argument: return "invalid size, offset, range or block";
    case memory_status::in_use: return "the range is mapped";
    case memory_status::out_of_memory: return "out of memory";
    case memory_status::failed: return "the platform refused";
  }
  return "unknown memory status";
}

/// Identifies physical memory of one virtual_memory. Not an owner: copies identify the same memory.
struct memory_block {
  std::uint64_t id = 0;  ///< never reused; 0: none
  std::size_t bytes = 0;

  friend bool operator==(const memory_block&, const memory_block&) = default;
};

// clang-format 14 splits compound requirements badly.
// clang-format off
template <class V>
concept virtual_memory = requires(V memory, const V& fixed, std::size_t bytes, std::size_t offset,
                                  std::span<std::byte>& new_range, std::span<std::byte> range,
                                  memory_block& new_block, memory_block block) {
  { fixed.granularity() } noexcept -> std::same_as<std::size_t>;
  { memory.reserve(bytes, new_range) } noexcept -> std::same_as<memory_status>;
  { memory.release(range) } noexcept -> std::same_as<memory_status>;
  { memory.create_block(bytes, new_block) } noexcept -> std::same_as<memory_status>;
  { memory.destroy_block(block) } noexcept -> std::same_as<memory_status>;
  { memory.map(range, offset, block) } noexcept -> std::same_as<memory_status>;
  { memory.unmap(range, offset, bytes) } noexcept -> std::same_as<memory_status>;
};
/// A virtual_memory with `map_range`.
template <class V>
concept maps_ranges = virtual_memory<V> &&
    requires(V memory, std::size_t offset, std::span<std::byte> range,
             std::span<const memory_block> blocks) {
  { memory.map_range(range, offset, blocks) } noexcept -> std::same_as<memory_status>;
};
// clang-format on

/// A reserved address range. Each operation succeeds completely or changes nothing. Owns the addresses and the
/// mappings; a mapped block is still destroyed by its creator.
template <virtual_memory Memory>
class virtual_range {
 public:
  /// Reserves `bytes` of addresses. Pre: `memory` outlives the range and does not move. Errors: bytes that are no
  /// positive multiple of the granularity; no addresses are available.
  static result<virtual_range> reserve(Memory& memory, std::size_t bytes) {
    std::span<std::byte> range;
    const auto code = memory.reserve(bytes, range);
    if (code == memory_status::ok) return virtual_range(memory, range);
    return refusal("cannot reserve ", bytes, " bytes of addresses in units of ",
                   memory.granularity(), ": ", describe(code));
  }
  virtual_range(virtual_range&& other) noexcept
      : memory_(other.memory_),
        range_(std::exchange(other.range_, {})),
        mapped_(std::exchange(other.mapped_, {})) {}
  virtual_range& operator=(virtual_range&&) = delete;
  /// Unmaps everything. Pre: no reads or writes there are outstanding.
  ~virtual_range() {
    if (range_.empty()) return;
    for (auto p = mapped_.rbegin(); p != mapped_.rend(); ++p)
      (void)memory_->unmap(range_, p->offset, p->bytes);
    (void)memory_->release(range_);
  }

  /// The addresses, mapped or not; stable for the range's life.
  [[nodiscard]] std::span<std::byte> addresses() const noexcept { return range_; }
  /// Bytes of mapped addresses.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const auto& p : mapped_) bytes += p.bytes;
    return bytes;
  }

  /// Maps the blocks in sequence, all or none, in one call if the memory has `map_range`. If the memory refuses to
  /// undo a mapping too, the range still owns that mapping; `unmap` and the destructor try again.
  memory_status map(std::size_t offset, std::span<const memory_block> blocks) noexcept {
    const auto ready = unless_out_of_memory(
        [&] {
          mapped_.reserve(mapped_.size() + blocks.size());
          return memory_status::ok;
        },
        memory_status::out_of_memory);
    if (ready != memory_status::ok) return ready;
    if constexpr (maps_ranges<Memory>) return map_at_once(offset, blocks);
    auto end = offset;
    for (const auto& block : blocks) {
      if (const auto code = memory_->map(range_, end, block); code != memory_status::ok) {
        (void)unmap(offset, end - offset);
        return code;
      }
      own(end, block.bytes);
      end += block.bytes;
    }
    return memory_status::ok;
  }
  /// Maps `count` new blocks of `block_bytes` each, all or none. Each block is destroyed when it is unmapped.
  memory_status populate(std::size_t offset, std::size_t block_bytes, std::size_t count) noexcept {
    if (block_bytes == 0 || count > range_.size() / block_bytes)
      return memory_status::invalid_argument;
    std::vector<memory_block> blocks;
    auto code = unless_out_of_memory(
        [&] {
          blocks.reserve(count);
          return memory_status::ok;
        },
        memory_status::out_of_memory);
    while (code == memory_status::ok && blocks.size() < count) {
      memory_block made;
      code = memory_->create_block(block_bytes, made);
      if (code == memory_status::ok) blocks.push_back(made);
    }
    if (code == memory_status::ok) code = map(offset, blocks);
    // A mapped block keeps its bytes, so from here on unmapping alone frees them.
    if (const auto kept = destroy(blocks); code == memory_status::ok && kept != memory_status::ok) {
      (void)unmap(offset, count * block_bytes);
      (void)destroy(blocks);
      code = kept;
    }
    return code;
  }
  /// Unmaps all blocks in [offset, offset + bytes), last to first. Refuses to cut a block, with nothing changed. Stops
  /// if the memory refuses; another call can unmap the rest.
  memory_status unmap(std::size_t offset, std::size_t bytes) noexcept {
    if (offset > range_.size() || bytes > range_.size() - offset)
      return memory_status::invalid_argument;
    const auto first = index_of(offset);
    const auto last = index_of(offset + bytes);
    if (cuts(first, offset) || cuts(last, offset + bytes)) return memory_status::invalid_argument;
    auto code = memory_status::ok;
    auto kept = mapped_.begin() + last;
    for (; kept != mapped_.begin() + first; --kept) {
      const auto& p = *(kept - 1);
      code = memory_->unmap(range_, p.offset, p.bytes);
      if (code != memory_status::ok) break;
    }
    mapped_.erase(kept, mapped_.begin() + last);
    return code;
  }

 private:
  struct place {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  virtual_range(Memory& memory, std::span<std::byte> range) noexcept
      : memory_(&memory), range_(range) {}

  /// Destroys the blocks, and keeps those that the memory refuses to destroy in the list. Returns the first refusal.
  memory_status destroy(std::vector<memory_block>& blocks) noexcept {
    auto first_refusal = memory_status::ok;
    std::erase_if(blocks, [&](const memory_block& block) {
      const auto code = memory_->destroy_block(block);
      if (first_refusal == memory_status::ok) first_refusal = code;
      return code == memory_status::ok;
    });
    return first_refusal;
  }
  /// Pre: `mapped_` has capacity for the new places.
  memory_status map_at_once(std::size_t offset, std::span<const memory_block> blocks) noexcept {
    const auto code = memory_->map_range(range_, offset, blocks);
    if (code == memory_status::invalid_argument || code == memory_status::in_use) return code;
    for (const auto& block : blocks) {
      if (code == memory_status::ok || !is_gone(offset, block.bytes)) own(offset, block.bytes);
      offset += block.bytes;
    }
    return code;
  }
  /// True if nothing is mapped there after a failed map call; unmaps a leftover mapping.
  [[nodiscard]] bool is_gone(std::size_t offset, std::size_t bytes) noexcept {
    const auto code = memory_->unmap(range_, offset, bytes);
    return code == memory_status::ok || code == memory_status::invalid_argument;
  }
  void own(std::size_t offset, std::size_t bytes) noexcept {
    mapped_.insert(mapped_.begin() + index_of(offset), {offset, bytes});
  }
  /// Index of the first place at or behind `offset`.
  [[nodiscard]] std::ptrdiff_t index_of(std::size_t offset) const noexcept {
    return std::ranges::lower_bound(mapped_, offset, {}, &place::offset) - mapped_.begin();
  }
  /// True if the place before `index` extends beyond `offset`.
  [[nodiscard]] bool cuts(std::ptrdiff_t index, std::size_t offset) const noexcept {
    if (index == 0) return false;
    const auto& before = mapped_[static_cast<std::size_t>(index - 1)];
    return before.offset + before.bytes > offset;
  }

  Memory* memory_;
  std::span<std::byte> range_;
  std::vector<place> mapped_{};  ///< sorted by offset
};

}  // namespace hotset
