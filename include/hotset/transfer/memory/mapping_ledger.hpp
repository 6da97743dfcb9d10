// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a virtual_memory has reserved, created and mapped: it refuses misuse before the platform is asked.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

/// `check_*` decides and changes nothing; `on_*` takes down what has been done. Touches no memory itself.
/// Complexity: O(log n) in the ranges, the blocks and what one range has mapped.
class mapping_ledger {
 public:
  /// Units: bytes. Pre: granularity > 0.
  explicit mapping_ledger(std::size_t granularity) noexcept : granularity_(granularity) {}

  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  /// Units: bytes of addresses.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }
  /// Units: bytes of blocks that were not destroyed or are still mapped somewhere, each counted once.
  [[nodiscard]] std::uint64_t physical_bytes() const noexcept { return physical_bytes_; }

  memory_status check_size(std::size_t bytes) const noexcept {
    return bytes != 0 && bytes % granularity_ == 0 ? memory_status::ok
                                                   : memory_status::invalid_argument;
  }
  memory_status check_release(std::span<std::byte> range) const noexcept {
    const auto* const r = find(range);
    if (r == nullptr) return memory_status::invalid_argument;
    return r->mapped.empty() ? memory_status::ok : memory_status::in_use;
  }
  memory_status check_destroy(const memory_block& block) const noexcept {
    return has_handle(block) ? memory_status::ok : memory_status::invalid_argument;
  }
  memory_status check_map(std::span<std::byte> range, std::size_t offset,
                          const memory_block& block) const noexcept {
    const auto* const r = find(range);
    if (r == nullptr || !has_handle(block) || !is_inside(range, offset, block.bytes))
      return memory_status::invalid_argument;
    const auto behind = r->mapped.lower_bound(offset);
    if (behind != r->mapped.end() && behind->first < offset + block.bytes)
      return memory_status::in_use;
    if (behind == r->mapped.begin()) return memory_status::ok;
    const auto before = std::prev(behind);
    return before->first + before->second.bytes <= offset ? memory_status::ok
                                                          : memory_status::in_use;
  }
  memory_status check_unmap(std::span<std::byte> range, std::size_t offset,
                            std::size_t bytes) const noexcept {
    const auto* const r = find(range);
    if (r == nullptr) return memory_status::invalid_argument;
    const auto place = r->mapped.find(offset);
    return place != r->mapped.end() && place->second.bytes == bytes
               ? memory_status::ok
               : memory_status::invalid_argument;
  }

  /// Takes the memory that the next on_reserve, on_create and on_map need, so that none of them is refused any after the
  /// platform has done its part. Errors: out_of_memory.
  memory_status get_ready() noexcept {
    return unless_out_of_memory(
        [this] {
          refill(ready_range_, ranges_);
          refill(ready_block_, blocks_);
          refill(ready_place_, reservation{}.mapped);
          return memory_status::ok;
        },
        memory_status::out_of_memory);
  }

  /// Pre of each: its check says ok; of those that add something, get_ready() was called.
  void on_reserve(std::span<std::byte> range) noexcept {
    ready_range_.key() = range.data();
    ready_range_.mapped().bytes = range.size();
    ranges_.insert(std::move(ready_range_));
    reserved_bytes_ += range.size();
  }
  void on_release(std::span<std::byte> range) noexcept {
    ranges_.erase(range.data());
    reserved_bytes_ -= range.size();
  }
  /// `handle` is the platform's own name of the memory.
  memory_block on_create(std::size_t bytes, std::uint64_t handle) noexcept {
    const memory_block block{++last_id_, bytes};
    ready_block_.key() = block.id;
    ready_block_.mapped() = {block.bytes, handle, 0, true};
    blocks_.insert(std::move(ready_block_));
    physical_bytes_ += bytes;
    return block;
  }
  [[nodiscard]] std::uint64_t handle(const memory_block& block) const noexcept {
    HOTSET_ASSERT(has_handle(block));
    return blocks_.find(block.id)->second.handle;
  }
  /// Returns the block's handle if nothing shows its bytes any more.
  std::optional<std::uint64_t> on_destroy(const memory_block& block) noexcept {
    blocks_.find(block.id)->second.has_handle = false;
    return forget_if_gone(block.id);
  }
  void on_map(std::span<std::byte> range, std::size_t offset, const memory_block& block) noexcept {
    ready_place_.key() = offset;
    ready_place_.mapped() = block;
    ranges_.find(range.data())->second.mapped.insert(std::move(ready_place_));
    ++blocks_.find(block.id)->second.places;
  }
  /// Returns the block's handle if it was destroyed and nothing shows its bytes any more.
  std::optional<std::uint64_t> on_unmap(std::span<std::byte> range, std::size_t offset) noexcept {
    auto& mapped = ranges_.find(range.data())->second.mapped;
    const auto place = mapped.find(offset);
    const auto id = place->second.id;
    mapped.erase(place);
    --blocks_.find(id)->second.places;
    return forget_if_gone(id);
  }

 private:
  struct reservation {
    std::size_t bytes = 0;
    std::map<std::size_t, memory_block> mapped{};  ///< by offset
  };
  struct holding {
    std::size_t bytes = 0;
    std::uint64_t handle = 0;
    std::size_t places = 0;   ///< where it is mapped
    bool has_handle = false;  ///< it was not destroyed
  };

  template <class Map>
  static void refill(typename Map::node_type& node, const Map&) {
    if (!node.empty()) return;
    Map made;
    made.try_emplace({});
    node = made.extract(made.begin());
  }
  [[nodiscard]] const reservation* find(std::span<std::byte> range) const noexcept {
    const auto r = ranges_.find(range.data());
    return r != ranges_.end() && r->second.bytes == range.size() ? &r->second : nullptr;
  }
  [[nodiscard]] bool has_handle(const memory_block& block) const noexcept {
    const auto b = blocks_.find(block.id);
    return b != blocks_.end() && b->second.has_handle && b->second.bytes == block.bytes;
  }
  [[nodiscard]] bool is_inside(std::span<std::byte> range, std::size_t offset,
                               std::size_t bytes) const noexcept {
    return offset % granularity_ == 0 && offset <= range.size() && bytes <= range.size() - offset;
  }
  std::optional<std::uint64_t> forget_if_gone(std::uint64_t id) noexcept {
    const auto b = blocks_.find(id);
    if (b->second.has_handle || b->second.places != 0) return std::nullopt;
    const auto handle = b->second.handle;
    physical_bytes_ -= b->second.bytes;
    blocks_.erase(b);
    return handle;
  }

  std::size_t granularity_;
  std::map<const std::byte*, reservation> ranges_;
  std::map<std::uint64_t, holding> blocks_;
  decltype(ranges_)::node_type ready_range_;
  decltype(blocks_)::node_type ready_block_;
  decltype(reservation::mapped)::node_type ready_place_;
  std::uint64_t last_id_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t physical_bytes_ = 0;
};

}  // namespace hotset
