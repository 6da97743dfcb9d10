// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The calls of the CUDA driver that virtual memory takes, as a table: what stands above it is tested without a device.

#include <cstddef>
#include <cstdint>

#include "hotset/cuda/error.hpp"

namespace hotset::cuda {

/// `system_driver()` is the real one; tests have one that runs without a device. Each call is the driver function that
/// is named beside it and returns its code, whose number is that of the runtime's. Outputs are written on success only.
/// Addresses are device addresses; memory is page-locked to a device. Units: bytes. Threads: as the driver, safe.
class driver : public error_texts {
 public:
  /// cuMemGetAllocationGranularity: the smallest, for memory of the device.
  virtual error_code allocation_granularity(std::size_t& bytes, int device) noexcept = 0;
  /// cuMemAddressReserve
  virtual error_code reserve_addresses(std::uintptr_t& address, std::size_t bytes) noexcept = 0;
  /// cuMemAddressFree
  virtual error_code free_addresses(std::uintptr_t address, std::size_t bytes) noexcept = 0;
  /// cuMemCreate
  virtual error_code create_memory(std::uint64_t& handle, std::size_t bytes,
                                   int device) noexcept = 0;
  /// cuMemRelease: the memory stays until its last mapping is gone.
  virtual error_code release_memory(std::uint64_t handle) noexcept = 0;
  /// cuMemMap: all of the memory, without access to it.
  virtual error_code map_memory(std::uintptr_t address, std::size_t bytes,
                                std::uint64_t handle) noexcept = 0;
  /// cuMemUnmap
  virtual error_code unmap_memory(std::uintptr_t address, std::size_t bytes) noexcept = 0;
  /// cuMemSetAccess: the device reads and writes.
  virtual error_code set_access(std::uintptr_t address, std::size_t bytes, int device) noexcept = 0;
};

/// The driver of this machine, never linked but asked for when it is first needed; null where there is none, and `why`
/// then says what was missing. Part of hotset::cuda. Threads: safe.
driver* system_driver(failure& why) noexcept;

}  // namespace hotset::cuda
