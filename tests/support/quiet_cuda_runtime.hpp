// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A CUDA runtime that does nothing and allocates nothing but what it is asked for: every call succeeds, and what was
/// recorded has been passed when it is asked for the third time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "hotset/cuda/runtime.hpp"

namespace hotset::support {

class quiet_cuda_runtime final : public cuda::runtime {
 public:
  using code = cuda::error_code;
  [[nodiscard]] std::string_view error_name(code) const noexcept override { return "none"; }
  [[nodiscard]] std::string_view error_text(code) const noexcept override { return "none"; }
  code device_count(int& count) noexcept override { return give(count, 1); }
  code current_device(int& device) noexcept override { return give(device, 0); }
  code set_device(int) noexcept override { return code::success; }
  code memory_info(std::size_t& free, std::size_t& total) noexcept override {
    total = 0;
    return give(free, std::size_t{0});
  }
  code allocate(void*& memory, std::size_t bytes) noexcept override {
    return give(memory, std::malloc(bytes));
  }
  code free(void* memory) noexcept override {
    std::free(memory);
    return code::success;
  }
  code allocate_host(void*& memory, std::size_t bytes) noexcept override {
    return allocate(memory, bytes);
  }
  code free_host(void* memory) noexcept override { return free(memory); }
  code register_host(void*, std::size_t, bool) noexcept override { return code::success; }
  code unregister_host(void*) noexcept override { return code::success; }
  code create_stream(cuda::stream_handle& stream, cuda::stream_priority) noexcept override {
    return give(stream, static_cast<cuda::stream_handle>(nullptr));
  }
  code destroy_stream(cuda::stream_handle) noexcept override { return code::success; }
  code wait_event(cuda::stream_handle, cuda::event_handle) noexcept override {
    return code::success;
  }
  code synchronize_stream(cuda::stream_handle) noexcept override { return code::success; }
  code is_capturing(cuda::stream_handle, bool& capturing) noexcept override {
    return give(capturing, false);
  }
  code create_event(cuda::event_handle& event) noexcept override {
    return give(event, static_cast<cuda::event_handle>(nullptr));
  }
  code destroy_event(cuda::event_handle) noexcept override { return code::success; }
  code record_event(cuda::event_handle, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code query_event(cuda::event_handle) noexcept override {
    return ++queries_ % 3 == 0 ? code::success : code::not_ready;
  }
  code synchronize_event(cuda::event_handle) noexcept override { return code::success; }
  [[nodiscard]] bool has_copy_batch() const noexcept override { return true; }
  code copy(const cuda::copy_request&, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code copy_on_device(const cuda::copy_request&, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code copy_batch(std::span<void* const>, std::span<const void* const>,
                  std::span<const std::size_t>, cuda::stream_handle) noexcept override {
    return code::success;
  }

 private:
  template <class T>
  static code give(T& out, T value) noexcept {
    out = value;
    return code::success;
  }
  std::atomic<std::uint64_t> queries_{0};
};

}  // namespace hotset::support
