// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Device arrays and page-locked arrays, freed with the object, and one exception for refused CUDA calls.

#include <cstddef>
#include <span>
#include <stdexcept>

#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace cuda_decode {

/// A failed CUDA call: the call, the code and the driver's text in one line.
class device_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(const hotset::cuda::runtime& api, hotset::cuda::error_code code,
                    std::string_view call) {
  if (code != hotset::cuda::error_code::success)
    throw device_error(hotset::cuda::describe(api, {code, call}).message);
}

/// Device memory. Errors: device_error.
template <class T>
class device_array {
 public:
  device_array(hotset::cuda::runtime& api, int device, std::size_t count) : api_(api) {
    const hotset::cuda::device_scope scope(api, device);
    require(api, scope.what().code, "cudaSetDevice");
    void* memory = nullptr;
    require(api, api.allocate(memory, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
  }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() { (void)api_.free(data_); }
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  hotset::cuda::runtime& api_;
  T* data_ = nullptr;
};

/// Page-locked host memory that the device can address. Errors: hotset::invalid_config.
template <class T>
class pinned_array {
 public:
  pinned_array(hotset::cuda::runtime& api, std::size_t count)
      : buffer_(hotset::cuda::pinned_buffer::allocate(api, count * sizeof(T)).value()),
        count_(count) {
    for (auto& value : values()) value = T{};
  }
  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(buffer_.bytes().data()); }
  [[nodiscard]] std::span<T> values() const noexcept { return {data(), count_}; }

 private:
  hotset::cuda::pinned_buffer buffer_;
  std::size_t count_;
};

}  // namespace cuda_decode
