// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/maps/expert_maps.hpp"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"
#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/cuda/stream.hpp"
#include "written_ids.hpp"

namespace hotset::cuda::expert_maps_test {
namespace {

using support::fake_cuda_runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What expert_maps asks of a registry.
struct two_layers {
  std::vector<expert_redirect> maps{};
  std::uint64_t now = 0;

  two_layers() {
    for (int l = 0; l < 2; ++l)
      maps.push_back(
          expert_redirect::create({.experts = 3, .adapters = 2, .most_tuned = 2}).value());
  }
  [[nodiscard]] const expert_redirect& map(layer_id layer) const {
    return maps[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] std::uint64_t version() const { return now; }
  void assign(layer_id layer, std::int32_t adapter, support::routed_ids tuned) {
    EXPECT_EQ(maps[static_cast<std::size_t>(layer)].assign(adapter, tuned.ids), status::ok);
    ++now;
  }
};

struct expert_maps_test : testing::Test {
  fake_cuda_runtime api;
  stream work = stream::create(api, 0).value();
  two_layers registry;

  expert_maps make() {
    return expert_maps::create(api, {.layers = 2, .experts = 3, .adapters = 2}).value();
  }
  void TearDown() override { EXPECT_THAT(api.violations(), IsEmpty()); }
  /// As a kernel finds them.
  std::vector<expert_id> rows(const expert_maps& maps, layer_id layer) {
    std::vector<expert_id> seen;
    const auto r = maps.rows(layer);
    api.launch(work.handle(), [&] { seen.assign(r.rows, r.rows + r.adapters * r.experts); });
    (void)api.synchronize_stream(work.handle());
    return seen;
  }
};

TEST_F(expert_maps_test, kernels_read_the_maps_of_the_last_update) {
  auto maps = make();
  registry.assign(0_layer, 1, {0, 2});
  registry.assign(1_layer, 0, {1});
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 5, 1, 6));
  EXPECT_THAT(rows(maps, 1_layer), ElementsAre(0, 3, 2, 0, 1, 2));
  registry.assign(0_layer, 1, {});
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 5, 1, 6));
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 0, 1, 2));
}

// A second update must not overwrite what the first one's copy still reads.
TEST_F(expert_maps_test, a_kernel_between_two_updates_reads_the_first) {
  auto maps = make();
  std::vector<expert_id> seen;
  const auto r = maps.rows(0_layer);
  registry.assign(0_layer, 0, {1});
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  api.launch(work.handle(), [&] { seen.assign(r.rows, r.rows + 3); });
  registry.assign(0_layer, 0, {2});
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 3, 0, 1, 2));
  EXPECT_THAT(seen, ElementsAre(0, 3, 2));
}

TEST_F(expert_maps_test, nothing_is_copied_while_the_version_is_the_same) {
  auto maps = make();
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  const auto copies = api.calls("cudaMemcpyAsync");
  EXPECT_EQ(copies, 1U);
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), copies);
  EXPECT_EQ(api.synchronous_copies(), 0U);
}

TEST_F(expert_maps_test, an_update_that_fails_is_made_by_the_next_call) {
  auto maps = make();
  ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  for (const char* call : {"cudaGetDevice", "cudaStreamIsCapturing", "cudaEventSynchronize",
                           "cudaMemcpyAsync", "cudaEventRecord"}) {
    SCOPED_TRACE(call);
    registry.assign(1_layer, 1, {0});
    api.fail(call, 1);
    EXPECT_EQ(maps.update(registry, work.handle()), error_code::unknown);
    ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
    EXPECT_THAT(rows(maps, 1_layer), ElementsAre(0, 1, 2, 5, 1, 2));
    registry.assign(1_layer, 1, {});
    ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
  }
}

TEST_F(expert_maps_test, a_capture_and_maps_of_another_shape_are_refused) {
  auto maps = make();
  api.begin_capture(work.handle());
  EXPECT_EQ(maps.update(registry, work.handle()), error_code::stream_capture_unsupported);
  api.end_capture(work.handle());
  auto other = expert_maps::create(api, {.layers = 2, .experts = 4, .adapters = 2}).value();
  EXPECT_EQ(other.update(registry, work.handle()), error_code::invalid_value);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 0U);
}

TEST_F(expert_maps_test, gives_back_what_it_took_and_moves) {
  {
    auto maps = make();
    ASSERT_EQ(maps.update(registry, work.handle()), error_code::success);
    auto moved = std::move(maps);
    EXPECT_THAT(rows(moved, 0_layer), ElementsAre(0, 1, 2, 0, 1, 2));
    registry.assign(0_layer, 0, {0});
    ASSERT_EQ(moved.update(registry, work.handle()), error_code::success);
  }
  EXPECT_EQ(api.leaks(), 1U) << "the test's stream";
}

TEST_F(expert_maps_test, what_cannot_be_made_has_a_reason_and_leaves_nothing) {
  const auto reason = [&](expert_maps_config setup) {
    return expert_maps::create(api, setup).error().message;
  };
  EXPECT_EQ(reason({.layers = 0, .experts = 3, .adapters = 2}),
            "expert maps of 0 layers, 3 experts and 2 adapters, accepted: 1 or more of each");
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reason({.layers = 3, .experts = most, .adapters = most}),
            "expert maps of 3 x 4611686014132420609 ids, accepted: at most 2147483647");
  for (const char* call : {"cudaHostAlloc", "cudaMalloc", "cudaEventCreateWithFlags"}) {
    api.fail(call, 1);
    EXPECT_THAT(reason({.layers = 2, .experts = 3, .adapters = 2}), HasSubstr(call));
    EXPECT_EQ(api.leaks(), 1U);
  }
}

}  // namespace
}  // namespace hotset::cuda::expert_maps_test
