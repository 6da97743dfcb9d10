// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/maps/expert_maps.hpp"

#include <cstdint>
#include <limits>
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
using testing::IsEmpty;

/// Minimal registry for expert_maps.
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
  sticky_failure failures;
  stream work = stream::create(api, 0).value();
  two_layers registry;

  expert_maps make() { return expert_maps::create(api, registry, 2, 0, failures).value(); }
  void TearDown() override { EXPECT_THAT(api.violations(), IsEmpty()); }
  void update(expert_maps& maps) { ASSERT_EQ(maps.update(registry, work), error_code::success); }
  /// The rows as a kernel reads them.
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
  update(maps);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 5, 1, 6));
  EXPECT_THAT(rows(maps, 1_layer), ElementsAre(0, 3, 2, 0, 1, 2));
  registry.assign(0_layer, 1, {});
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 5, 1, 6));
  update(maps);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 2, 0, 1, 2));
}

// A second update must not overwrite rows that the first update's copy still reads.
TEST_F(expert_maps_test, a_kernel_between_two_updates_reads_the_first) {
  auto maps = make();
  std::vector<expert_id> seen;
  const auto r = maps.rows(0_layer);
  registry.assign(0_layer, 0, {1});
  update(maps);
  api.launch(work.handle(), [&] { seen.assign(r.rows, r.rows + 3); });
  registry.assign(0_layer, 0, {2});
  update(maps);
  EXPECT_THAT(rows(maps, 0_layer), ElementsAre(0, 1, 3, 0, 1, 2));
  EXPECT_THAT(seen, ElementsAre(0, 3, 2));
}

TEST_F(expert_maps_test, nothing_is_copied_while_the_version_is_the_same) {
  auto maps = make();
  const auto before = api.calls("cudaMemcpyAsync");
  update(maps);
  update(maps);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), before + 1) << "all layers by one copy";
  EXPECT_EQ(api.synchronous_copies(), 0U);
}

TEST_F(expert_maps_test, an_update_under_capture_is_made_by_the_next_call) {
  auto maps = make();
  registry.assign(1_layer, 1, {0});
  api.begin_capture(work.handle());
  EXPECT_EQ(maps.update(registry, work), error_code::stream_capture_unsupported);
  api.end_capture(work.handle());
  update(maps);
  EXPECT_THAT(rows(maps, 1_layer), ElementsAre(0, 1, 2, 5, 1, 2));
}

TEST_F(expert_maps_test, a_failed_construction_has_a_reason) {
  const auto layers = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(expert_maps::create(api, registry, layers, 0, failures).error().message,
            "layers x experts = 12884901882, accepted: at most 268435456");
}

}  // namespace
}  // namespace hotset::cuda::expert_maps_test
