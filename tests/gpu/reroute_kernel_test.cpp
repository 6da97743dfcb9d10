// SPDX-License-Identifier: Apache-2.0
// The fused reroute writes the same bytes as the host.
#include "hotset/cuda/maps/reroute_kernel.hpp"

#include <cstdint>
#include <vector>

#include "reroute_samples.hpp"
#include "test_support.hpp"

namespace hotset::gpu::reroute_kernel_test {
namespace {

using cuda::error_code;
using reroute_samples::batch;

struct answer {
  std::vector<expert_id> out;
  std::uint64_t refused = 0;
  friend bool operator==(const answer&, const answer&) = default;
};

answer on_host(const batch& b) {
  std::vector<std::int32_t> numbers(b.ids.size());
  const auto refused = reroute(b.rows(), b.ids, b.adapter_of_token, numbers).refused;
  const id_view<expert_id> out(numbers);
  return {{out.begin(), out.end()}, refused};
}

/// A batch in device memory.
struct device_batch {
  explicit device_batch(const batch& b)
      : map(b.map),
        ids(b.ids),
        adapter_of_token(b.adapter_of_token),
        out(b.ids.size()),
        refused(std::vector<std::uint64_t>{0}),
        arguments{{map.data(), b.adapters, b.experts},
                  ids.data(),
                  adapter_of_token.data(),
                  b.tokens,
                  b.top_k,
                  out.data(),
                  refused.data()} {}
  [[nodiscard]] answer result() const { return {out.download(), refused.download().front()}; }

  device_array<expert_id> map;
  device_array<expert_id> ids;
  device_array<std::int32_t> adapter_of_token;
  device_array<expert_id> out;
  device_array<std::uint64_t> refused;
  cuda::reroute_arguments arguments;
};

answer fused(const batch& b, const test_stream& stream) {
  const device_batch device(b);
  HOTSET_REQUIRE(cuda::launch_reroute(device.arguments, stream.handle()));
  stream.synchronize();
  return device.result();
}
TEST(reroute_kernel, is_figure_4) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  const auto b = reroute_samples::figure_4();
  EXPECT_TRUE(fused(b, stream).out == reroute_samples::figure_4_rerouted());
}

TEST(reroute_kernel, equals_the_host_on_random_batches) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  support::random_source random(0x9e);
  const auto rounds = setting("HOTSET_GPU_BATCHES", 2000);
  for (long long round = 0; round < rounds; ++round) {
    const auto b = reroute_samples::random_batch(random);
    const auto expected = on_host(b);
    ASSERT_TRUE(fused(b, stream) == expected) << "round " << round;
  }
}

TEST(reroute_kernel, takes_a_prefill_of_many_blocks_in_place) {
  HOTSET_NEEDS_A_DEVICE();
  auto b = reroute_samples::figure_4();
  const auto token = b.ids;
  const auto adapters = b.adapter_of_token;
  for (int copy = 1; copy < 700; ++copy) {
    b.ids.insert(b.ids.end(), token.begin(), token.end());
    b.adapter_of_token.insert(b.adapter_of_token.end(), adapters.begin(), adapters.end());
    b.tokens += 10;
  }
  const test_stream stream;
  device_batch device(b);
  device.arguments.out = device.ids.data();
  ASSERT_EQ(cuda::launch_reroute(device.arguments, stream.handle()), error_code::success);
  stream.synchronize();
  EXPECT_TRUE(device.ids.download() == on_host(b).out);
}

TEST(reroute_kernel, adds_to_earlier_counts) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  auto b = reroute_samples::figure_4();
  b.ids[7] = 64_expert;
  b.ids[8] = expert_id{-3};
  b.adapter_of_token[9] = 2;
  const device_batch device(b);
  for (std::uint64_t launches = 1; launches <= 3; ++launches) {
    ASSERT_EQ(cuda::launch_reroute(device.arguments, stream.handle()), error_code::success);
    stream.synchronize();
    EXPECT_EQ(device.refused.download().front(), launches * 7);
  }
}

TEST(reroute_kernel, reads_its_arrays_anew_when_a_captured_graph_is_replayed) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  const auto b = reroute_samples::figure_4();
  device_batch device(b);
  captured_graph::begin(stream);
  ASSERT_EQ(cuda::launch_reroute(device.arguments, stream.handle()), error_code::success);
  const captured_graph graph(stream);
  graph.replay(stream);
  EXPECT_TRUE(device.out.download() == reroute_samples::figure_4_rerouted());
  device.adapter_of_token.upload(std::vector<std::int32_t>(10, -1));
  graph.replay(stream);
  EXPECT_TRUE(device.out.download() == b.ids);
}

TEST(reroute_kernel, a_refused_launch_does_not_run) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  device_batch device(reroute_samples::figure_4());
  const auto before = device.out.download();
  device.arguments.map.experts = 0;
  EXPECT_EQ(cuda::launch_reroute(device.arguments, stream.handle()), error_code::invalid_value);
  stream.synchronize();
  EXPECT_TRUE(device.out.download() == before);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace hotset::gpu::reroute_kernel_test
