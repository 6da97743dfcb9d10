// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Virtual memory of a device: stable addresses, with physical memory mapped and unmapped behind them.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/cuda/error.hpp"
#include "hotset/transfer/memory/mapping_ledger.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset::cuda {

/// Table of the CUDA driver calls that virtual memory needs. `system_driver()` is the real driver; tests use one that
/// needs no device. Each call is the driver function named above it and returns its code, whose numbers equal the
/// runtime's. Outputs are written on success only. Addresses are device addresses; memory is allocated on one device.
/// Units: bytes. Threads: safe, like the driver.
class driver : public error_texts {
 public:
  /// cuMemGetAllocationGranularity: the minimum, for memory of the device.
  virtual error_code allocation_granularity(std::size_t& bytes, int device) noexcept = 0;
  /// cuMemAddressReserve
  virtual error_code reserve_addresses(std::uintptr_t& address, std::size_t bytes) noexcept = 0;
  /// cuMemAddressFree
  virtual error_code free_addresses(std::uintptr_t address, std::size_t bytes) noexcept = 0;
  /// cuMemCreate
  virtual error_code create_memory(std::uint64_t& handle, std::size_t bytes,
                                   int device) noexcept = 0;
  /// cuMemRelease: the memory is freed after its last mapping is gone.
  virtual error_code release_memory(std::uint64_t handle) noexcept = 0;
  /// cuMemMap: maps the whole memory, without access to it.
  virtual error_code map_memory(std::uintptr_t address, std::size_t bytes,
                                std::uint64_t handle) noexcept = 0;
  /// cuMemUnmap
  virtual error_code unmap_memory(std::uintptr_t address, std::size_t bytes) noexcept = 0;
  /// cuMemSetAccess: lets the device read and write.
  virtual error_code set_access(std::uintptr_t address, std::size_t bytes, int device) noexcept = 0;
};

/// Returns the driver of this machine, or null; then `why` says what is missing. The driver is not linked: it is
/// looked up at the first call. Part of hotset::cuda. Threads: safe.
driver* system_driver(failure& why) noexcept;

/// Only the device can read and write mapped memory. Must outlive its ranges. Calls name the device and do not change
/// the thread's current device.
class virtual_memory {
 public:
  /// `api` must outlive the memory. Errors: those of the driver.
  static result<virtual_memory> create(driver& api, int device) noexcept {
    std::size_t granularity = 0;
    if (const auto code = api.allocation_granularity(granularity, device);
        code != error_code::success)
      return describe(api, {code, "cuMemGetAllocationGranularity"});
    if (granularity == 0) return error{"cuMemGetAllocationGranularity: 0 bytes"};
    return virtual_memory(api, device, granularity);
  }

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Typically 2 MiB.
  [[nodiscard]] std::size_t granularity() const noexcept { return ledger_.granularity(); }
  /// Units: bytes. See mapping_ledger.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return ledger_.reserved_bytes(); }
  [[nodiscard]] std::uint64_t physical_bytes() const noexcept { return ledger_.physical_bytes(); }

  memory_status reserve(std::size_t bytes, std::span<std::byte>& range) noexcept {
    return ledger_.reserve(bytes, range, [&](std::span<std::byte>& taken) {
      std::uintptr_t address = 0;
      const auto code = status_of(api_->reserve_addresses(address, bytes));
      taken = {reinterpret_cast<std::byte*>(address), bytes};
      return code;
    });
  }
  memory_status release(std::span<std::byte> range) noexcept {
    return ledger_.release(
        range, [&] { return status_of(api_->free_addresses(address_of(range, 0), range.size())); });
  }
  memory_status create_block(std::size_t bytes, memory_block& block) noexcept {
    return ledger_.create_block(bytes, block, [&](std::uint64_t& handle) {
      return status_of(api_->create_memory(handle, bytes, device_));
    });
  }
  memory_status destroy_block(memory_block block) noexcept {
    return ledger_.destroy_block(
        block, [&](std::uint64_t handle, bool) { return status_of(api_->release_memory(handle)); });
  }
  memory_status map(std::span<std::byte> range, std::size_t offset, memory_block block) noexcept {
    return map_range(range, offset, std::span(&block, 1));
  }
  /// Makes one driver call for each block, and one that gives access to all. If a call is refused and the undo fails
  /// too, the place stays mapped without access. It counts as mapped, so that `unmap` can be retried.
  memory_status map_range(std::span<std::byte> range, std::size_t offset,
                          std::span<const memory_block> blocks) noexcept {
    auto end = offset;
    for (const auto& block : blocks) {
      if (const auto code = ledger_.check_map(range, end, block); code != memory_status::ok)
        return code;
      end += block.bytes;
    }
    end = offset;
    auto code = memory_status::ok;
    std::size_t mapped = 0;
    for (; mapped < blocks.size(); ++mapped) {
      code = map_without_access(range, end, blocks[mapped]);
      if (code != memory_status::ok) break;
      end += blocks[mapped].bytes;
    }
    if (code == memory_status::ok && end != offset)
      code = status_of(api_->set_access(address_of(range, offset), end - offset, device_));
    if (code == memory_status::ok) return code;
    while (mapped-- > 0) {
      end -= blocks[mapped].bytes;
      (void)unmap(range, end, blocks[mapped].bytes);
    }
    return code;
  }
  /// The driver waits until the device has finished work enqueued before.
  memory_status unmap(std::span<std::byte> range, std::size_t offset, std::size_t bytes) noexcept {
    return ledger_.unmap(range, offset, bytes, [&](std::uint64_t, bool) {
      return status_of(api_->unmap_memory(address_of(range, offset), bytes));
    });
  }

 private:
  virtual_memory(driver& api, int device, std::size_t granularity) noexcept
      : api_(&api), device_(device), ledger_(granularity) {}

  static std::uintptr_t address_of(std::span<std::byte> range, std::size_t offset) noexcept {
    return reinterpret_cast<std::uintptr_t>(range.data() + offset);
  }
  static memory_status status_of(error_code code) noexcept {
    if (code == error_code::success) return memory_status::ok;
    return code == error_code::memory_allocation ? memory_status::out_of_memory
                                                 : memory_status::failed;
  }
  memory_status map_without_access(std::span<std::byte> range, std::size_t offset,
                                   const memory_block& block) noexcept {
    return ledger_.map(range, offset, block, [&](std::uint64_t handle) {
      return status_of(api_->map_memory(address_of(range, offset), block.bytes, handle));
    });
  }

  driver* api_;
  int device_;
  mapping_ledger ledger_;
};

static_assert(maps_ranges<virtual_memory>);

}  // namespace hotset::cuda
