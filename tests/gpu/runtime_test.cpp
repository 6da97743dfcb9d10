// SPDX-License-Identifier: Apache-2.0
// The real table of CUDA calls. Two tests need no device: without one they check that calls fail.
#include "hotset/cuda/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "test_support.hpp"

namespace hotset::gpu::runtime_test {
namespace {

using cuda::error_code;

auto& api = cuda::system_runtime();

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] = static_cast<std::uint8_t>((i * 7 + seed * 31 + i / 251) & 0xffU);
  return values;
}

/// Keeps a stream busy until `open`.
class gate {
 public:
  explicit gate(cuda::stream_handle stream) : stream_(stream) {
    HOTSET_REQUIRE(cudaLaunchHostFunc(stream, wait, &is_open_));
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() {
    open();
    (void)cudaStreamSynchronize(stream_);
  }
  void open() { is_open_ = true; }

 private:
  static void CUDART_CB wait(void* flag) {
    const auto& is_open = *static_cast<std::atomic<bool>*>(flag);
    while (!is_open) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  cuda::stream_handle stream_;
  std::atomic<bool> is_open_{false};
};

struct page_locked {
  explicit page_locked(const std::vector<std::uint8_t>& values) {
    void* memory = nullptr;
    HOTSET_REQUIRE(api.allocate_host(memory, values.size()));
    data = static_cast<std::uint8_t*>(memory);
    std::copy(values.begin(), values.end(), data);
  }
  page_locked(const page_locked&) = delete;
  page_locked& operator=(const page_locked&) = delete;
  ~page_locked() { (void)api.free_host(data); }
  std::uint8_t* data = nullptr;
};

TEST(runtime, a_failed_call_leaves_its_output_unwritten) {
  int count = -7;
  const auto code = api.device_count(count);
  if (code == error_code::success) {
    EXPECT_GE(count, 0);
  } else {
    EXPECT_EQ(count, -7);
    EXPECT_FALSE(api.error_text(code).empty());
  }
}

// Without a device, the runtime answers every query of its last error with the reason.
TEST(runtime, a_failed_call_is_reported_once) {
  HOTSET_NEEDS_A_DEVICE();
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NE(api.set_device(1 << 20), error_code::success);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  void* memory = nullptr;
  EXPECT_NE(api.allocate(memory, std::size_t{1} << 60U), error_code::success);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(runtime, codes_have_the_names_of_the_toolkit) {
  EXPECT_EQ(api.error_name(error_code::insufficient_driver), "cudaErrorInsufficientDriver");
  EXPECT_EQ(api.error_name(error_code::not_ready), "cudaErrorNotReady");
  EXPECT_FALSE(api.error_text(error_code::invalid_device).empty());
}

TEST(runtime, an_error_of_the_host_application_stays_its_own) {
  HOTSET_NEEDS_A_DEVICE();
  ASSERT_NE(cudaSetDevice(1 << 20), cudaSuccess);
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(runtime, reports_device_and_memory) {
  HOTSET_NEEDS_A_DEVICE();
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  EXPECT_EQ(api.set_device(device), error_code::success);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(api.memory_info(free, total), error_code::success);
  EXPECT_GT(free, 0U);
  EXPECT_LE(free, total);
}

void copy_in_batches(cuda::stream_handle stream) {
  const auto values = pattern(300'000, 2);
  const page_locked source(values);
  const device_array<std::uint8_t> target(values.size());
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
  for (std::size_t at = 0; at < values.size(); at += 60'000) {
    to.push_back(target.data() + at);
    from.push_back(source.data + at);
    bytes.push_back(60'000);
  }
  ASSERT_EQ(api.copy_batch(to, from, bytes, stream), error_code::success);
  ASSERT_EQ(api.synchronize_stream(stream), error_code::success);
  EXPECT_TRUE(target.download() == values);
}

TEST(runtime, copies_a_batch_on_a_stream_and_on_the_default_stream) {
  HOTSET_NEEDS_A_DEVICE();
  if (!api.has_copy_batch()) GTEST_SKIP() << "this runtime or driver has no batched copies";
  const test_stream stream;
  copy_in_batches(stream.handle());
  copy_in_batches(nullptr);
}

TEST(runtime, an_empty_batch_is_one_and_lengths_that_differ_are_refused) {
  HOTSET_NEEDS_A_DEVICE();
  if (!api.has_copy_batch()) GTEST_SKIP() << "this runtime or driver has no batched copies";
  const test_stream stream;
  EXPECT_EQ(api.copy_batch({}, {}, {}, stream.handle()), error_code::success);
  const std::vector<std::size_t> bytes{16};
  EXPECT_EQ(api.copy_batch({}, {}, bytes, stream.handle()), error_code::invalid_value);
}

TEST(runtime, an_event_is_not_ready_before_its_work_and_reports_that_once) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  cuda::event_handle event = nullptr;
  ASSERT_EQ(api.create_event(event), error_code::success);
  {
    gate closed(stream.handle());
    EXPECT_EQ(api.record_event(event, stream.handle()), error_code::success);
    EXPECT_EQ(api.query_event(event), error_code::not_ready);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    closed.open();
    EXPECT_EQ(api.synchronize_event(event), error_code::success);
  }
  EXPECT_EQ(api.query_event(event), error_code::success);
  EXPECT_EQ(api.destroy_event(event), error_code::success);
}

TEST(runtime, a_stream_waits_for_an_event_and_not_for_the_default_stream) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream first;
  const test_stream second;
  cuda::event_handle before = nullptr;
  cuda::event_handle after = nullptr;
  ASSERT_EQ(api.create_event(before), error_code::success);
  ASSERT_EQ(api.create_event(after), error_code::success);
  {
    gate closed(first.handle());
    EXPECT_EQ(api.record_event(before, first.handle()), error_code::success);
    EXPECT_EQ(api.wait_event(second.handle(), before), error_code::success);
    EXPECT_EQ(api.record_event(after, second.handle()), error_code::success);
    EXPECT_EQ(api.query_event(after), error_code::not_ready);
    closed.open();
    second.synchronize();
    EXPECT_EQ(api.query_event(after), error_code::success);
  }
  {
    gate closed(nullptr);
    EXPECT_EQ(api.record_event(after, second.handle()), error_code::success);
    EXPECT_EQ(api.synchronize_event(after), error_code::success);
    closed.open();
    EXPECT_EQ(api.synchronize_stream(nullptr), error_code::success);
  }
  EXPECT_EQ(api.destroy_event(before), error_code::success);
  EXPECT_EQ(api.destroy_event(after), error_code::success);
}

TEST(runtime, registers_host_memory_as_it_is_and_once) {
  HOTSET_NEEDS_A_DEVICE();
  constexpr std::size_t bytes = 1 << 16;
  void* const memory = std::aligned_alloc(4096, bytes);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(api.register_host(memory, bytes, false), error_code::success);
  EXPECT_EQ(api.register_host(memory, bytes, false),
            static_cast<error_code>(cudaErrorHostMemoryAlreadyRegistered));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(api.unregister_host(memory), error_code::success);
  std::free(memory);
}

// Work for the legacy default stream would be added to the capture of a stream that waits for it.
TEST(runtime, the_default_stream_captures_with_a_stream_that_waits_for_it) {
  HOTSET_NEEDS_A_DEVICE();
  cudaStream_t waits = nullptr;
  HOTSET_REQUIRE(cudaStreamCreate(&waits));
  HOTSET_REQUIRE(cudaStreamBeginCapture(waits, cudaStreamCaptureModeThreadLocal));
  bool capturing = false;
  EXPECT_EQ(api.is_capturing(nullptr, capturing), error_code::success);
  EXPECT_TRUE(capturing);
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(waits, &graph);  // the query may have ended the capture
  (void)cudaGetLastError();
  (void)cudaGraphDestroy(graph);
  EXPECT_EQ(api.is_capturing(nullptr, capturing), error_code::success);
  EXPECT_FALSE(capturing);
  HOTSET_REQUIRE(cudaStreamDestroy(waits));
}

TEST(runtime, knows_a_stream_that_captures) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  const device_array<std::uint8_t> target(64);
  const page_locked source(pattern(64, 3));
  bool capturing = true;
  EXPECT_EQ(api.is_capturing(stream.handle(), capturing), error_code::success);
  EXPECT_FALSE(capturing);
  captured_graph::begin(stream);
  EXPECT_EQ(api.is_capturing(stream.handle(), capturing), error_code::success);
  EXPECT_TRUE(capturing);
  EXPECT_EQ(api.copy({target.data(), source.data, 64}, stream.handle()), error_code::success);
  const captured_graph graph(stream);
  graph.replay(stream);
  EXPECT_TRUE(target.download() == pattern(64, 3));
}

}  // namespace
}  // namespace hotset::gpu::runtime_test
