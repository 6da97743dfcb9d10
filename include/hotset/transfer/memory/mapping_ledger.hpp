// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Records reservations, blocks and mappings of a virtual_memory, and refuses misuse before it calls the platform.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

/// Each call checks its arguments, lets the platform act, and records the result if that returns ok. A refused call
/// changes nothing. Allocates its own memory before the platform acts. Does not access mapped memory. Complexity:
/// O(log n) in the numbers of ranges, blocks, and mappings of one range.
class mapping_ledger {
 public:
  /// `granularity`: bytes. Pre: granularity > 0.
  explicit mapping_ledger(std::size_t granularity) noexcept : granularity_(granularity) {}

  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  /// Bytes of reserved addresses.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }
  /// Bytes of blocks that exist or are still mapped, each block counted once.
  [[nodiscard]] std::uint64_t physical_bytes() const noexcept { return physical_bytes_; }

  /// Reserves addresses. `act(range)` performs it.
  template <class Act>
  memory_status reserve(std::size_t bytes, std::span<std::byte>& range, Act act) noexcept {
    if (!is_size(bytes)) return memory_status::invalid_argument;
    auto entry = new_entry<decltype(ranges_)>();
    if (entry.empty()) return memory_status::out_of_memory;
    std::span<std::byte> taken;
    if (const auto code = act(taken); code != memory_status::ok) return code;
    range = taken;
    entry.key() = range.data();
    entry.mapped().bytes = bytes;
    ranges_.insert(std::move(entry));
    reserved_bytes_ += bytes;
    return memory_status::ok;
  }
  /// Releases addresses. `act()` performs it.
  template <class Act>
  memory_status release(std::span<std::byte> range, Act act) noexcept {
    const auto* const r = find(range);
    if (r == nullptr) return memory_status::invalid_argument;
    if (!r->mapped.empty()) return memory_status::in_use;
    if (const auto code = act(); code != memory_status::ok) return code;
    ranges_.erase(range.data());
    reserved_bytes_ -= range.size();
    return memory_status::ok;
  }
  /// Creates a block. `act(handle)` allocates its memory and sets the platform's handle.
  template <class Act>
  memory_status create_block(std::size_t bytes, memory_block& block, Act act) noexcept {
    if (!is_size(bytes)) return memory_status::invalid_argument;
    auto entry = new_entry<decltype(blocks_)>();
    if (entry.empty()) return memory_status::out_of_memory;
    std::uint64_t handle = 0;
    if (const auto code = act(handle); code != memory_status::ok) return code;
    block = {++last_id_, bytes};
    entry.key() = block.id;
    entry.mapped() = {bytes, handle, 0, true};
    blocks_.insert(std::move(entry));
    physical_bytes_ += bytes;
    return memory_status::ok;
  }
  /// Destroys a block. `act(handle, is_gone)` performs it; is_gone: the block is mapped nowhere.
  template <class Act>
  memory_status destroy_block(const memory_block& block, Act act) noexcept {
    auto* const held = find(block);
    if (held == nullptr) return memory_status::invalid_argument;
    if (const auto code = act(held->handle, held->places == 0); code != memory_status::ok)
      return code;
    held->has_handle = false;
    forget_if_gone(block.id);
    return memory_status::ok;
  }
  /// Returns `ok` if the block may be mapped there.
  [[nodiscard]] memory_status check_map(std::span<std::byte> range, std::size_t offset,
                                        const memory_block& block) noexcept {
    const auto* const r = find(range);
    if (r == nullptr || find(block) == nullptr || offset % granularity_ != 0 ||
        offset > range.size() || block.bytes > range.size() - offset)
      return memory_status::invalid_argument;
    const auto behind = r->mapped.lower_bound(offset);
    const bool meets_next = behind != r->mapped.end() && behind->first < offset + block.bytes;
    const bool meets_last = behind != r->mapped.begin() &&
                            std::prev(behind)->first + std::prev(behind)->second.bytes > offset;
    return meets_next || meets_last ? memory_status::in_use : memory_status::ok;
  }
  /// Maps a block. `act(handle)` performs it.
  template <class Act>
  memory_status map(std::span<std::byte> range, std::size_t offset, const memory_block& block,
                    Act act) noexcept {
    if (const auto code = check_map(range, offset, block); code != memory_status::ok) return code;
    auto entry = new_entry<decltype(reservation::mapped)>();
    if (entry.empty()) return memory_status::out_of_memory;
    auto& held = *find(block);
    if (const auto code = act(held.handle); code != memory_status::ok) return code;
    entry.key() = offset;
    entry.mapped() = block;
    ranges_.find(range.data())->second.mapped.insert(std::move(entry));
    ++held.places;
    return memory_status::ok;
  }
  /// Unmaps a block. `act(handle, is_gone)` performs it; is_gone: the block was destroyed and is mapped nowhere else.
  template <class Act>
  memory_status unmap(std::span<std::byte> range, std::size_t offset, std::size_t bytes,
                      Act act) noexcept {
    if (find(range) == nullptr) return memory_status::invalid_argument;
    auto& mapped = ranges_.find(range.data())->second.mapped;
    const auto place = mapped.find(offset);
    if (place == mapped.end() || place->second.bytes != bytes)
      return memory_status::invalid_argument;
    const auto id = place->second.id;
    auto& held = blocks_.find(id)->second;
    if (const auto code = act(held.handle, !held.has_handle && held.places == 1);
        code != memory_status::ok)
      return code;
    mapped.erase(place);
    --held.places;
    forget_if_gone(id);
    return memory_status::ok;
  }

 private:
  struct reservation {
    std::size_t bytes = 0;
    std::map<std::size_t, memory_block> mapped{};  ///< by offset
  };
  struct holding {
    std::size_t bytes = 0;
    std::uint64_t handle = 0;
    std::size_t places = 0;   ///< number of mappings
    bool has_handle = false;  ///< the block was not destroyed
  };

  /// A map entry to be inserted; empty if its allocation failed.
  template <class Map>
  static typename Map::node_type new_entry() noexcept {
    return unless_out_of_memory(
        [] {
          Map made;
          made.try_emplace({});
          return made.extract(made.begin());
        },
        typename Map::node_type{});
  }
  [[nodiscard]] bool is_size(std::size_t bytes) const noexcept {
    return bytes != 0 && bytes % granularity_ == 0;
  }
  [[nodiscard]] const reservation* find(std::span<std::byte> range) const noexcept {
    const auto r = ranges_.find(range.data());
    return r != ranges_.end() && r->second.bytes == range.size() ? &r->second : nullptr;
  }
  [[nodiscard]] holding* find(const memory_block& block) noexcept {
    const auto b = blocks_.find(block.id);
    const bool is_held =
        b != blocks_.end() && b->second.has_handle && b->second.bytes == block.bytes;
    return is_held ? &b->second : nullptr;
  }
  void forget_if_gone(std::uint64_t id) noexcept {
    const auto b = blocks_.find(id);
    if (b->second.has_handle || b->second.places != 0) return;
    physical_bytes_ -= b->second.bytes;
    blocks_.erase(b);
  }

  std::size_t granularity_;
  std::map<const std::byte*, reservation> ranges_;
  std::map<std::uint64_t, holding> blocks_;
  std::uint64_t last_id_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t physical_bytes_ = 0;
};

}  // namespace hotset
