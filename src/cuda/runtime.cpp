// SPDX-License-Identifier: Apache-2.0
// Table of CUDA calls over the runtime that hotset::cuda is linked with.
#include "hotset/cuda/runtime.hpp"

#include <cuda_runtime_api.h>

#include "as_error_code.hpp"

namespace hotset::cuda {
namespace {

static_assert(same(error_code::success, cudaSuccess));
static_assert(same(error_code::invalid_value, cudaErrorInvalidValue));
static_assert(same(error_code::memory_allocation, cudaErrorMemoryAllocation));
static_assert(same(error_code::insufficient_driver, cudaErrorInsufficientDriver));
static_assert(same(error_code::invalid_device, cudaErrorInvalidDevice));
static_assert(same(error_code::not_ready, cudaErrorNotReady));
static_assert(same(error_code::not_supported, cudaErrorNotSupported));
static_assert(same(error_code::stream_capture_unsupported, cudaErrorStreamCaptureUnsupported));
static_assert(same(error_code::unknown, cudaErrorUnknown));

constexpr int first_driver_with_batches = 12080;

int driver_version() noexcept {
  int version = 0;
  return as_error_code(cudaDriverGetVersion(&version)) == error_code::success ? version : 0;
}

bool is_legacy_default(stream_handle stream) noexcept {
  return stream == nullptr || stream == cudaStreamLegacy;
}

class cudart final : public runtime {
 public:
  [[nodiscard]] std::string_view error_name(error_code code) const noexcept override {
    return cudaGetErrorName(static_cast<cudaError_t>(code));
  }
  [[nodiscard]] std::string_view error_text(error_code code) const noexcept override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }

  error_code device_count(int& count) noexcept override {
    return write_on_success<int>(count, cudaGetDeviceCount);
  }
  error_code current_device(int& device) noexcept override {
    return write_on_success<int>(device, cudaGetDevice);
  }
  error_code set_device(int device) noexcept override {
    return as_error_code(cudaSetDevice(device));
  }
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): as the interface has them
  error_code memory_info(std::size_t& free, std::size_t& total) noexcept override {
    std::size_t all = 0;
    const auto code = write_on_success<std::size_t>(
        free, [&](std::size_t* unused) { return cudaMemGetInfo(unused, &all); });
    if (code == error_code::success) total = all;
    return code;
  }

  error_code allocate(void*& memory, std::size_t bytes) noexcept override {
    return write_on_success<void*>(memory, [&](void** made) { return cudaMalloc(made, bytes); });
  }
  error_code free(void* memory) noexcept override { return as_error_code(cudaFree(memory)); }
  error_code allocate_host(void*& memory, std::size_t bytes) noexcept override {
    return write_on_success<void*>(
        memory, [&](void** made) { return cudaHostAlloc(made, bytes, cudaHostAllocPortable); });
  }
  error_code free_host(void* memory) noexcept override {
    return as_error_code(cudaFreeHost(memory));
  }
  error_code register_host(void* memory, std::size_t bytes, bool read_only) noexcept override {
    const unsigned int flags =
        cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0U);
    return as_error_code(cudaHostRegister(memory, bytes, flags));
  }
  error_code unregister_host(void* memory) noexcept override {
    return as_error_code(cudaHostUnregister(memory));
  }

  error_code create_stream(stream_handle& stream, stream_priority priority) noexcept override {
    int lowest = 0;
    int highest = 0;
    if (const auto code = as_error_code(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
        code != error_code::success)
      return code;
    const int number = priority == stream_priority::high ? highest : lowest;
    return write_on_success<stream_handle>(stream, [&](stream_handle* made) {
      return cudaStreamCreateWithPriority(made, cudaStreamNonBlocking, number);
    });
  }
  error_code destroy_stream(stream_handle stream) noexcept override {
    return as_error_code(cudaStreamDestroy(stream));
  }
  error_code wait_event(stream_handle stream, event_handle event) noexcept override {
    return as_error_code(cudaStreamWaitEvent(stream, event, 0));
  }
  error_code synchronize_stream(stream_handle stream) noexcept override {
    return as_error_code(cudaStreamSynchronize(stream));
  }
  error_code is_capturing(stream_handle stream, bool& capturing) noexcept override {
    auto state = cudaStreamCaptureStatusNone;
    const auto answer = cudaStreamIsCapturing(stream, &state);
    const auto code = as_error_code(answer);
    // The legacy default stream belongs to any capture of a stream that it waits for.
    const bool is_drawn_in = answer == cudaErrorStreamCaptureImplicit;
    if (code != error_code::success && !is_drawn_in) return code;
    capturing = is_drawn_in || state != cudaStreamCaptureStatusNone;
    return error_code::success;
  }

  error_code create_event(event_handle& event) noexcept override {
    return write_on_success<event_handle>(event, [](event_handle* made) {
      return cudaEventCreateWithFlags(made, cudaEventDisableTiming);
    });
  }
  error_code destroy_event(event_handle event) noexcept override {
    return as_error_code(cudaEventDestroy(event));
  }
  error_code record_event(event_handle event, stream_handle stream) noexcept override {
    return as_error_code(cudaEventRecord(event, stream));
  }
  error_code query_event(event_handle event) noexcept override {
    return as_error_code(cudaEventQuery(event));
  }
  error_code synchronize_event(event_handle event) noexcept override {
    return as_error_code(cudaEventSynchronize(event));
  }

  [[nodiscard]] bool has_copy_batch() const noexcept override { return has_copy_batch_; }
  error_code copy(const copy_request& what, stream_handle stream) noexcept override {
    return as_error_code(
        cudaMemcpyAsync(what.to, what.from, what.bytes, cudaMemcpyHostToDevice, stream));
  }
  error_code copy_on_device(const copy_request& what, stream_handle stream) noexcept override {
    return as_error_code(
        cudaMemcpyAsync(what.to, what.from, what.bytes, cudaMemcpyDeviceToDevice, stream));
  }
  error_code copy_batch(std::span<void* const> to, std::span<const void* const> from,
                        std::span<const std::size_t> bytes,
                        stream_handle stream) noexcept override {
    if (to.size() != from.size() || to.size() != bytes.size()) return error_code::invalid_value;
    if (!has_copy_batch_) return error_code::not_supported;
    if (to.empty()) return error_code::success;
    if (!is_legacy_default(stream)) return submit_batch(to, from, bytes, stream);
    // The legacy default stream refuses batches; single copies are ordered as well.
    for (std::size_t i = 0; i < to.size(); ++i)
      if (const auto code = copy({to[i], from[i], bytes[i]}, stream); code != error_code::success)
        return code;
    return error_code::success;
  }

 private:
#if CUDART_VERSION >= 12080
  static error_code submit_batch(std::span<void* const> to, std::span<const void* const> from,
                                 std::span<const std::size_t> bytes,
                                 stream_handle stream) noexcept {
    // Page-locked sources stay until the stream has passed, so they are read in stream order.
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    return as_error_code(cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), to.size(),
                                              &attributes, &first, 1, stream));
#else
    // CUDA 12.8 and 12.9: arrays that are only read are not const, and the index of the failed copy is returned.
    std::size_t failed = 0;
    return as_error_code(cudaMemcpyBatchAsync(const_cast<void**>(to.data()),
                                              const_cast<void**>(from.data()),
                                              const_cast<std::size_t*>(bytes.data()), to.size(),
                                              &attributes, &first, 1, &failed, stream));
#endif
  }
  const bool has_copy_batch_ = driver_version() >= first_driver_with_batches;
#else
  static error_code submit_batch(std::span<void* const> /*to*/,
                                 std::span<const void* const> /*from*/,
                                 std::span<const std::size_t> /*bytes*/,
                                 stream_handle /*stream*/) noexcept {
    return error_code::not_supported;
  }
  const bool has_copy_batch_ = false;
#endif
};

}  // namespace

runtime& system_runtime() noexcept {
  static cudart table;
  return table;
}

}  // namespace hotset::cuda
