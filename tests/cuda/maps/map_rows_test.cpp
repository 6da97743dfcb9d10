// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/maps/map_rows.hpp"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/residency/slot_map.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "random_source.hpp"

namespace hotset::cuda::map_rows_test {
namespace {

using support::fake_cuda_runtime;
using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;

const geometry shape{.layers = 5, .experts = 6, .top_k = 2, .max_tokens_per_visit = 2};

/// Minimal cache for map_rows.
struct rows_of_a_map {
  slot_map map{shape};
  [[nodiscard]] std::span<const slot_id> row(layer_id l) const { return map.row(l); }
  [[nodiscard]] std::uint64_t row_version(layer_id l) const { return map.version(l); }
};

class map_rows_test : public testing::Test {
 protected:
  fake_cuda_runtime api;  // runs work as late as possible
  sticky_failure failures;
  stream engine = stream::create(api, 0).value();
  rows_of_a_map host;
  std::unique_ptr<map_rows> device = make({});

  std::unique_ptr<map_rows> make(const map_rows::config& setup) {
    return std::make_unique<map_rows>(map_rows::create(api, shape, setup, failures).value());
  }
  void TearDown() override {
    device.reset();
    EXPECT_THAT(api.violations(), testing::IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U);
  }
  [[nodiscard]] std::vector<slot_id> row(layer_id l) const {
    return {device->row(l), device->row(l) + shape.experts};
  }
  [[nodiscard]] std::size_t copies() const { return api.calls("cudaMemcpyAsync"); }
  void update(layer_id first, layer_id last) {
    ASSERT_EQ(device->update(host, first, last, engine), error_code::success);
  }
};

// Hazard 4: a map of zeros would name slot 0.
TEST_F(map_rows_test, everything_is_absent_before_the_first_update) {
  for (const auto l : each<layer_id>(shape.layers)) EXPECT_THAT(row(l), Each(-1));
}

TEST_F(map_rows_test, a_changed_row_is_uploaded_once_and_an_unchanged_one_never) {
  const auto before = copies();
  update(0_layer, layer_id{shape.layers});
  EXPECT_EQ(copies(), before);
  host.map.place_and_publish({2_layer, 3_expert}, 7_slot);
  update(1_layer, 2_layer);
  EXPECT_EQ(copies(), before) << "the change is in another layer";
  update(2_layer, 3_layer);
  update(2_layer, 3_layer);
  EXPECT_EQ(copies(), before + 1);
  api.run_all();
  EXPECT_THAT(row(2_layer), ElementsAreArray({-1, -1, -1, 7, -1, -1}));
  host.map.remove({2_layer, 3_expert});
  update(2_layer, 3_layer);
  api.run_all();
  EXPECT_THAT(row(2_layer), Each(-1));
}

TEST_F(map_rows_test, one_copy_takes_the_shortest_run_of_rows_with_all_changes) {
  host.map.place_and_publish({1_layer, 0_expert}, 4_slot);
  host.map.place_and_publish({3_layer, 5_expert}, 9_slot);
  const auto before = copies();
  update(0_layer, layer_id{shape.layers});
  EXPECT_EQ(copies(), before + 1);
  api.run_all();
  for (const auto l : each<layer_id>(shape.layers))
    EXPECT_THAT(row(l), ElementsAreArray(host.row(l)));
}

// Rows in the ring must not change before the device has read them.
TEST_F(map_rows_test, each_kernel_sees_the_row_as_it_was_when_it_was_enqueued) {
  for (const std::size_t ring : {5U, 7U, 20U}) {
    SCOPED_TRACE(ring);
    device = make({.ring_rows = ring});
    host = {};
    support::random_source random(ring);
    std::size_t wrong = 0;
    for (int n = 0; n < 300; ++n) {
      const layer_id first{random.id_below(shape.layers)};
      const auto last = first + 1 + random.id_below(shape.layers - number(first));
      const expert_key key{first + random.id_below(last - first), expert_id{random.id_below(6)}};
      host.map.locate(key) == no_slot
          ? host.map.place_and_publish(key, slot_id{random.id_below(99)})
          : host.map.remove(key);
      update(first, last);
      for (auto l = first; l < last; ++l) {
        const auto now = host.row(l);
        api.launch(engine.handle(), [&, l, now = std::vector<slot_id>(now.begin(), now.end())] {
          if (row(l) != now) ++wrong;
        });
      }
      if (random.one_in(9)) api.run_one();
    }
    api.run_all();
    EXPECT_EQ(wrong, 0U);
  }
}

// Hazard 13: a captured graph keeps what it saw.
TEST_F(map_rows_test, addresses_stay_and_a_capture_is_refused) {
  const auto* const before = device->row(1_layer);
  host.map.place_and_publish({1_layer, 0_expert}, 4_slot);
  api.begin_capture(engine.handle());
  EXPECT_EQ(device->update(host, 1_layer, engine), error_code::stream_capture_unsupported);
  api.end_capture(engine.handle());
  update(1_layer, 2_layer);
  const map_rows moved(std::move(*device));
  EXPECT_EQ(moved.row(1_layer), before);
  EXPECT_FALSE(failures.happened());
}

// Hazard 3: streams run without an order, and the row is uploaded on another one.
TEST_F(map_rows_test, a_second_stream_waits_for_the_upload_of_the_first) {
  const auto other = stream::create(api, 0).value();
  host.map.place_and_publish({0_layer, 0_expert}, 4_slot);
  update(0_layer, 1_layer);
  const auto before = copies();
  ASSERT_EQ(device->update(host, 0_layer, other), error_code::success);
  EXPECT_EQ(copies(), before) << "nothing is new";
  slot_id seen = no_slot;
  api.launch(other.handle(), [&] { seen = device->row(0_layer)[0]; });
  EXPECT_EQ(api.synchronize_stream(other.handle()), error_code::success);
  EXPECT_EQ(seen, 4_slot);
}

// Hazard 17: a failed call or copy counts as a success.
TEST_F(map_rows_test, a_failed_call_is_reported) {
  for (const auto* const name : {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamIsCapturing"}) {
    SCOPED_TRACE(name);
    sticky_failure own;
    auto rows = map_rows::create(api, shape, {}, own).value();
    host.map.place_and_publish({0_layer, 0_expert}, 1_slot);
    api.fail(name, 1);
    EXPECT_EQ(rows.update(host, 0_layer, engine), error_code::unknown);
    EXPECT_EQ(own.first().call, name);
    api.run_all();
  }
}

TEST(map_rows, has_no_effect_if_it_is_refused) {
  fake_cuda_runtime api;
  for (const auto* const name : {"cudaHostAlloc", "cudaEventCreateWithFlags", "cudaMalloc",
                                 "cudaStreamCreateWithPriority", "cudaMemcpyAsync"}) {
    SCOPED_TRACE(name);
    sticky_failure failures;
    api.fail(name, 1);
    EXPECT_THAT(map_rows::create(api, shape, {}, failures).error().message, HasSubstr(name));
    EXPECT_EQ(api.leaks(), 0U);
  }
  sticky_failure failures;
  EXPECT_THAT(map_rows::create(api, shape, {.ring_rows = 4}, failures).error().message,
              HasSubstr("a ring of 4 rows, accepted: 5 (one for each layer) or more"));
  EXPECT_FALSE(map_rows::create(api, {}, {}, failures).has_value());
}

// With a cache: a kernel that looks up its slots on the device reads the experts that the host promised.
TEST(map_rows, kernels_find_their_experts_through_the_device_row) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    support::random_source random(seed);
    fake_cuda_runtime api(fake_cuda_runtime::pace::random, seed);
    const auto layout = pool_layout::shared(shape, 9).value();
    const support::device_experts experts(api, layout);
    sticky_failure failures;
    auto engine = stream::create(api, 0).value();
    auto rows = map_rows::create(api, shape, {.ring_rows = 6}, failures).value();
    const auto copies = cuda_backend<memory_expert_source>::create(
                            api, experts.host.source, experts.bank, experts.pages, {.tickets = 64})
                            .value();
    slot_cache cache(pager<lru>({.layout = layout}), *copies);
    auto visit = cache.make_visit();
    std::size_t wrong = 0;
    for (step_id step = 0; step < 40; ++step)
      for (const auto layer : each<layer_id>(shape.layers)) {
        std::vector<expert_id> ids(4);
        for (auto& id : ids) id = expert_id{random.id_below(6)};
        const routing_view view{.layer = layer, .step = step, .experts = ids};
        ASSERT_EQ(cache.resolve(view, engine, visit), status::ok);
        ASSERT_EQ(rows.update(cache, layer, engine), error_code::success);
        for (const auto id : ids)
          api.launch(engine.handle(), [&, layer, id] {
            const auto slot = rows.row(layer)[index_of(id)];
            if (slot < 0 || !experts.holds(slot, {layer, id})) ++wrong;
          });
        cache.release(visit, engine);
      }
    EXPECT_EQ(api.synchronize_stream(engine.handle()), error_code::success);
    EXPECT_EQ(wrong, 0U);
    EXPECT_THAT(api.violations(), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace hotset::cuda::map_rows_test
