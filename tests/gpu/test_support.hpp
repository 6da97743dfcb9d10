// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by device tests: GoogleTest or the part of it that they use, memory, and streams.

#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "device_support.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/virtual_memory.hpp"

#if !defined(HOTSET_WITHOUT_GTEST) && __has_include(<gtest/gtest.h>)
#include <gtest/gtest.h>
#else
#include "gtest_shim.hpp"
#endif

namespace hotset::gpu {

#define HOTSET_NEEDS_A_DEVICE()                                                \
  do {                                                                         \
    if (const auto reason = ::hotset::gpu::why_no_device(); !reason.empty()) { \
      GTEST_SKIP() << "no device: " << reason;                                 \
    }                                                                          \
  } while (false)

/// Device memory of `count` values, every byte 0xab at first.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) : count_(count) {
    void* memory = nullptr;
    HOTSET_REQUIRE(cuda::system_runtime().allocate(memory, bytes_of(count + 1)));
    data_ = static_cast<T*>(memory);
    HOTSET_REQUIRE(cudaMemset(data_, 0xab, bytes_of(count + 1)));
    settle();
  }
  explicit device_array(const std::vector<T>& values) : device_array(values.size()) {
    upload(values);
  }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() { (void)cuda::system_runtime().free(data_); }

  [[nodiscard]] T* data() const noexcept { return data_; }
  /// Pre: not longer than the array.
  void upload(const std::vector<T>& values) {
    if (values.empty()) return;
    HOTSET_REQUIRE(cudaMemcpy(data_, values.data(), bytes_of(values.size()), cudaMemcpyDefault));
    settle();
  }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(count_);
    if (count_ != 0)
      HOTSET_REQUIRE(cudaMemcpy(values.data(), data_, bytes_of(count_), cudaMemcpyDefault));
    return values;
  }

 private:
  /// Both calls may return before the device is done, and no test_stream waits for the default stream.
  static void settle() { HOTSET_REQUIRE(cudaStreamSynchronize(nullptr)); }
  static std::size_t bytes_of(std::size_t count) { return count * sizeof(T); }
  std::size_t count_;
  T* data_ = nullptr;
};

/// A stream that waits for no other stream.
class test_stream {
 public:
  test_stream() {
    HOTSET_REQUIRE(cuda::system_runtime().create_stream(handle_, cuda::stream_priority::high));
  }
  test_stream(const test_stream&) = delete;
  test_stream& operator=(const test_stream&) = delete;
  ~test_stream() { (void)cuda::system_runtime().destroy_stream(handle_); }
  [[nodiscard]] cuda::stream_handle handle() const noexcept { return handle_; }
  void synchronize() const { HOTSET_REQUIRE(cuda::system_runtime().synchronize_stream(handle_)); }

 private:
  cuda::stream_handle handle_ = nullptr;
};

/// A graph of the work enqueued to a stream between `begin_capture` and here.
class captured_graph {
 public:
  static void begin(const test_stream& stream) {
    HOTSET_REQUIRE(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
  }
  explicit captured_graph(const test_stream& stream) {
    HOTSET_REQUIRE(cudaStreamEndCapture(stream.handle(), &graph_));
    HOTSET_REQUIRE(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  captured_graph(const captured_graph&) = delete;
  captured_graph& operator=(const captured_graph&) = delete;
  ~captured_graph() {
    (void)cudaGraphExecDestroy(executable_);
    (void)cudaGraphDestroy(graph_);
  }
  void replay(const test_stream& stream) const {
    HOTSET_REQUIRE(cudaGraphLaunch(executable_, stream.handle()));
    stream.synchronize();
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

inline cuda::virtual_memory virtual_memory_of_device_0() {
  cuda::failure why;
  auto* const driver = cuda::system_driver(why);
  if (driver == nullptr) throw std::runtime_error(std::string(why.call));
  return cuda::virtual_memory::create(*driver, 0).value();
}

/// A number from the environment: a run under a sanitizer uses a smaller one.
inline long long setting(const char* name, long long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace hotset::gpu
