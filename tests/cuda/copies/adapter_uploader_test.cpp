// SPDX-License-Identifier: Apache-2.0
// A registry of adapters over a driver and a runtime without a device.
#include "hotset/cuda/copies/adapter_uploader.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_driver.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/adapters/adapter_registry.hpp"
#include "hotset/adapters/page_pool.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "written_ids.hpp"

namespace hotset::cuda::adapter_uploader_test {
namespace {

using support::expert_lists;
using support::fake_cuda_driver;
using support::fake_cuda_runtime;
using testing::HasSubstr;
using testing::IsEmpty;
using enum adapter_status;
using registry_type = adapter_registry<virtual_memory, adapter_uploader>;

constexpr auto page = std::size_t{65536};
constexpr std::size_t weight_bytes[] = {page + page / 2, page / 2 + page / 4};

std::byte content(std::string_view adapter, layer_id layer, std::size_t weight, expert_id expert) {
  return static_cast<std::byte>(adapter.back() * 31 + number(layer) * 17 +
                                static_cast<int>(weight) * 7 + number(expert) * 3 + 1);
}

/// Two layers of four experts, two weights; at most two tuned experts per layer, one adapter place.
class adapters_on_a_device : public testing::TestWithParam<fake_cuda_runtime::pace> {
 protected:
  fake_cuda_runtime api{GetParam()};
  fake_cuda_driver driver{page};
  virtual_memory memory = virtual_memory::create(driver, 0).value();
  page_pool<virtual_memory> pool =
      page_pool<virtual_memory>::create(memory, {.page_bytes = page, .most_pages = 64}).value();
  std::optional<stream> compute = stream::create(api, 0).value();
  std::unique_ptr<adapter_uploader> copies =
      adapter_uploader::create(api,
                               {.pieces = 3, .piece_bytes = 10000, .readers = {compute->handle()}})
          .value();
  std::optional<registry_type> registry;

  void SetUp() override {
    auto made = registry_type::create(
        pool, *copies,
        {.layers = 2,
         .experts = 4,
         .adapters = 1,
         .most_tuned = 2,
         .expert_bytes = {weight_bytes[0], weight_bytes[1]},
         .host_bytes = 64 * page,
         .most_known = 4},
        [](const adapter_part& part, std::span<std::byte> bytes) {
          std::ranges::fill(bytes, content(part.adapter, part.layer, part.weight, part.expert));
          return true;
        });
    registry.emplace(std::move(made).value());
    for (const auto l : each<layer_id>(2))
      for (std::size_t w = 0; w < 2; ++w) api.reserved(registry->tensor(l, w).addresses(), 0);
    ASSERT_FALSE(registry->add("a", expert_lists({{1, 3}, {0}})));
    ASSERT_FALSE(registry->add("b", expert_lists({{2}, {1, 2}})));
  }
  void TearDown() override {
    api.run_all();
    registry.reset();
    copies.reset();
    compute.reset();
    EXPECT_EQ(api.leaks(), 0U);
    EXPECT_THAT(api.violations(), IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U) << "all bytes go through page-locked memory";
    EXPECT_EQ(pool.in_use(), 0U);
  }

  /// First byte of an expert, as a kernel finds it that redirects by the current rows.
  [[nodiscard]] std::byte* first_byte(layer_id layer, std::size_t weight, expert_id expert) {
    const auto place =
        static_cast<std::size_t>(registry->map(layer).row(0)[static_cast<std::size_t>(expert)]);
    return registry->tensor(layer, weight).addresses().data() + place * weight_bytes[weight];
  }
  void expect_content(const std::string& name, layer_id layer, expert_id expert) {
    for (std::size_t w = 0; w < 2; ++w) {
      auto* const first = first_byte(layer, w, expert);
      for (std::size_t i = 0; i < weight_bytes[w]; i += 997) {
        auto* const byte = driver.touch(first + i);
        ASSERT_NE(byte, nullptr);
        ASSERT_EQ(*byte, content(name, layer, w, expert)) << name << " " << w << " " << i;
      }
    }
  }
};

TEST_P(adapters_on_a_device, bytes_have_arrived_when_the_maps_name_them) {
  ASSERT_EQ(registry->acquire("a").code, ok);
  expect_content("a", 0_layer, 1_expert);
  expect_content("a", 0_layer, 3_expert);
  expect_content("a", 1_layer, 0_expert);
  EXPECT_EQ(copies->first_failure().happened(), false);
}

TEST_P(adapters_on_a_device, each_weight_of_a_layer_is_given_access_by_one_call) {
  const auto before = driver.calls(fake_cuda_driver::call::set_access);
  ASSERT_EQ(registry->acquire("a").code, ok);
  EXPECT_EQ(driver.calls(fake_cuda_driver::call::set_access) - before, 4U);
}

TEST_P(adapters_on_a_device, an_earlier_kernel_still_reads_the_unloaded_adapter) {
  ASSERT_EQ(registry->acquire("a").code, ok);
  ASSERT_EQ(registry->release("a"), ok);
  std::byte seen{};
  // Without the wait, the page is unmapped or holds another adapter when this runs.
  api.launch(compute->handle(), [this, at = first_byte(1_layer, 0, 0_expert), &seen] {
    if (const auto* const byte = driver.touch(at); byte != nullptr) seen = *byte;
  });
  ASSERT_EQ(registry->acquire("b").code, ok);
  EXPECT_EQ(registry->index_of("a"), -1);
  EXPECT_EQ(seen, content("a", 1_layer, 0, 0_expert));
  expect_content("b", 1_layer, 1_expert);
  expect_content("b", 1_layer, 2_expert);
  EXPECT_THAT(driver.violations(), IsEmpty());
}

TEST_P(adapters_on_a_device, work_on_other_streams_is_not_waited_for) {
  auto other = stream::create(api, 0).value();
  bool open = false;
  api.hold(other.handle(), [&open] { return open; });
  ASSERT_EQ(registry->acquire("a").code, ok);
  ASSERT_EQ(registry->release("a"), ok);
  EXPECT_EQ(registry->acquire("b").code, ok);
  open = true;
  api.run_all();  // held kernels call `open`, which ends here
}

TEST_P(adapters_on_a_device, a_failed_load_has_no_effect_and_can_be_retried) {
  for (const char* call : {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamSynchronize"})
    for (const std::size_t nth : {1U, 2U}) {
      if (nth == 2 && std::string_view(call) == "cudaStreamSynchronize") continue;
      SCOPED_TRACE(call);
      api.fail(call, nth);
      EXPECT_EQ(registry->acquire("a").code, not_copied);
      api.run_all();
      EXPECT_EQ(registry->index_of("a"), -1);
      EXPECT_EQ(pool.in_use(), 0U);
      ASSERT_EQ(registry->acquire("a").code, ok);
      expect_content("a", 0_layer, 3_expert);
      ASSERT_EQ(registry->release("a"), ok);
      ASSERT_EQ(registry->unload("a"), ok);
    }
  EXPECT_EQ(copies->first_failure().call, "cudaMemcpyAsync");
}

TEST_P(adapters_on_a_device, readers_that_cannot_be_waited_for_keep_the_adapter) {
  ASSERT_EQ(registry->acquire("a").code, ok);
  ASSERT_EQ(registry->release("a"), ok);
  for (const char* call : {"cudaStreamIsCapturing", "cudaEventRecord", "cudaEventSynchronize"}) {
    SCOPED_TRACE(call);
    api.fail(call, 1);
    EXPECT_EQ(registry->unload("a"), not_drained);
    api.run_all();
    EXPECT_EQ(registry->index_of("a"), 0);
    expect_content("a", 0_layer, 1_expert);
  }
  EXPECT_EQ(registry->unload("a"), ok);
}

TEST_P(adapters_on_a_device, nothing_is_unloaded_while_a_reader_is_being_captured) {
  ASSERT_EQ(registry->acquire("a").code, ok);
  ASSERT_EQ(registry->release("a"), ok);
  api.begin_capture(compute->handle());
  EXPECT_EQ(registry->unload("a"), not_drained);
  api.end_capture(compute->handle());
  EXPECT_EQ(registry->unload("a"), ok);
}

INSTANTIATE_TEST_SUITE_P(paces, adapters_on_a_device,
                         testing::Values(fake_cuda_runtime::pace::late,
                                         fake_cuda_runtime::pace::soon,
                                         fake_cuda_runtime::pace::random),
                         testing::PrintToStringParamName());

TEST(adapter_uploader, a_failed_construction_has_a_reason_and_no_effect) {
  fake_cuda_runtime api;
  EXPECT_THAT(adapter_uploader::create(api, {.pieces = 0}).error().message,
              HasSubstr("a staging ring of 0 pieces"));
  auto reader = stream::create(api, 0).value();
  for (const char* call : {"cudaStreamCreateWithPriority", "cudaHostAlloc"}) {
    api.fail(call, 1);
    EXPECT_THAT(adapter_uploader::create(api, {.readers = {reader.handle()}}).error().message,
                HasSubstr("fakeError"))
        << call;
    EXPECT_EQ(api.leaks(), 1U) << call;
  }
  api.fail("cudaEventCreateWithFlags", 5);  // the ring has four
  EXPECT_THAT(adapter_uploader::create(api, {.readers = {reader.handle()}}).error().message,
              HasSubstr("cudaEventCreateWithFlags"));
  EXPECT_EQ(api.leaks(), 1U);
}

}  // namespace
}  // namespace hotset::cuda::adapter_uploader_test
