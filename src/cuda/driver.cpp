// SPDX-License-Identifier: Apache-2.0
// Table of driver calls. The driver is looked up through the runtime and never linked, so that a program with
// hotset::cuda starts on a machine without one.
#include <string_view>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "as_error_code.hpp"
#include "hotset/cuda/virtual_memory.hpp"

namespace hotset::cuda {
namespace {

static_assert(same(error_code::success, CUDA_SUCCESS));
static_assert(same(error_code::invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(error_code::memory_allocation, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(error_code::invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(error_code::not_supported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(error_code::unknown, CUDA_ERROR_UNKNOWN));

/// `version`: CUDA release that introduced the function in its present form, as 1000 * major + 10 * minor.
error_code find(const char* symbol, [[maybe_unused]] unsigned int version, void*& entry) noexcept {
  auto answer = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 12050
  const auto code = as_error_code(
      cudaGetDriverEntryPointByVersion(symbol, &entry, version, cudaEnableDefault, &answer));
#else
  const auto code =
      as_error_code(cudaGetDriverEntryPoint(symbol, &entry, cudaEnableDefault, &answer));
#endif
  if (code != error_code::success) return code;
  return answer == cudaDriverEntryPointSuccess && entry != nullptr ? error_code::success
                                                                   : error_code::not_supported;
}

CUmemLocation location_of(int device) noexcept {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}
CUmemAllocationProp properties_of(int device) noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(device);
  return properties;
}

class libcuda final : public driver {
 public:
  libcuda() noexcept {
    constexpr unsigned int with_virtual_memory = 10020;
    decltype(&cuInit) initialise = nullptr;
    take(initialise, "cuInit", 2000);
    take(granularity_, "cuMemGetAllocationGranularity", with_virtual_memory);
    take(reserve_, "cuMemAddressReserve", with_virtual_memory);
    take(free_, "cuMemAddressFree", with_virtual_memory);
    take(create_, "cuMemCreate", with_virtual_memory);
    take(release_, "cuMemRelease", with_virtual_memory);
    take(map_, "cuMemMap", with_virtual_memory);
    take(unmap_, "cuMemUnmap", with_virtual_memory);
    take(set_access_, "cuMemSetAccess", with_virtual_memory);
    if (!missing_.happened() && initialise != nullptr)
      missing_ = {as_error_code(initialise(0)), "cuInit"};
  }
  /// First function that is not available.
  [[nodiscard]] const failure& missing() const noexcept { return missing_; }

  [[nodiscard]] std::string_view error_name(error_code code) const noexcept override {
    return cudaGetErrorName(static_cast<cudaError_t>(code));
  }
  [[nodiscard]] std::string_view error_text(error_code code) const noexcept override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }

  error_code allocation_granularity(std::size_t& bytes, int device) noexcept override {
    const auto properties = properties_of(device);
    return write_on_success<std::size_t>(bytes, [&](std::size_t* smallest) {
      return granularity_(smallest, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    });
  }
  error_code reserve_addresses(std::uintptr_t& address, std::size_t bytes) noexcept override {
    return write_on_success<CUdeviceptr>(
        address, [&](CUdeviceptr* first) { return reserve_(first, bytes, 0, 0, 0); });
  }
  error_code free_addresses(std::uintptr_t address, std::size_t bytes) noexcept override {
    return as_error_code(free_(address, bytes));
  }
  error_code create_memory(std::uint64_t& handle, std::size_t bytes, int device) noexcept override {
    const auto properties = properties_of(device);
    return write_on_success<CUmemGenericAllocationHandle>(
        handle,
        [&](CUmemGenericAllocationHandle* made) { return create_(made, bytes, &properties, 0); });
  }
  error_code release_memory(std::uint64_t handle) noexcept override {
    return as_error_code(release_(handle));
  }
  error_code map_memory(std::uintptr_t address, std::size_t bytes,
                        std::uint64_t handle) noexcept override {
    return as_error_code(map_(address, bytes, 0, handle, 0));
  }
  error_code unmap_memory(std::uintptr_t address, std::size_t bytes) noexcept override {
    return as_error_code(unmap_(address, bytes));
  }
  error_code set_access(std::uintptr_t address, std::size_t bytes, int device) noexcept override {
    CUmemAccessDesc access{};
    access.location = location_of(device);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return as_error_code(set_access_(address, bytes, &access, 1));
  }

 private:
  template <class Function>
  void take(Function& function, const char* symbol, unsigned int version) noexcept {
    if (missing_.happened()) return;
    void* entry = nullptr;
    if (const auto code = find(symbol, version, entry); code != error_code::success)
      missing_ = {code, symbol};
    else
      function = reinterpret_cast<Function>(entry);
  }

  decltype(&cuMemGetAllocationGranularity) granularity_ = nullptr;
  decltype(&cuMemAddressReserve) reserve_ = nullptr;
  decltype(&cuMemAddressFree) free_ = nullptr;
  decltype(&cuMemCreate) create_ = nullptr;
  decltype(&cuMemRelease) release_ = nullptr;
  decltype(&cuMemMap) map_ = nullptr;
  decltype(&cuMemUnmap) unmap_ = nullptr;
  decltype(&cuMemSetAccess) set_access_ = nullptr;
  failure missing_{};
};

}  // namespace

driver* system_driver(failure& why) noexcept {
  static libcuda table;
  if (!table.missing().happened()) return &table;
  why = table.missing();
  return nullptr;
}

}  // namespace hotset::cuda
