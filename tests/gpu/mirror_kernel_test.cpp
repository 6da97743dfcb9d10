// SPDX-License-Identifier: Apache-2.0
// The mirror kernel writes the host's bytes: slots, list, counts, and nothing behind the list.
#include "hotset/cuda/maps/mirror_kernel.hpp"

#include <cstdint>
#include <span>
#include <vector>

#include "mirror_samples.hpp"
#include "test_support.hpp"
#include "written_ids.hpp"

namespace hotset::gpu::mirror_kernel_test {
namespace {

using cuda::error_code;
using cuda::mirror_counts;
using mirror_samples::visit;
using support::expert_ids;
using support::slot_ids;

/// Concatenated visits, so that one launch checks thousands. Arrays are aligned and have the same layout on host and
/// device; unwritten bytes are 0xab.
class visit_batch {
 public:
  void add(const visit& v) {
    const auto missing_at = missing_size_;
    visits_.push_back({ids_.size(), v.ids.size(), rows_.size(), v.row.size(), missing_at});
    ids_.insert(ids_.end(), v.ids.begin(), v.ids.end());
    rows_.insert(rows_.end(), v.row.begin(), v.row.end());
    missing_size_ += v.most_missing();
  }
  [[nodiscard]] std::size_t size() const { return visits_.size(); }
  [[nodiscard]] std::size_t bytes() const { return 8 * (ids_.size() + rows_.size()); }

  /// True if every array is the same on both sides.
  [[nodiscard]] bool same_on_both_sides(const test_stream& stream) const {
    std::vector<slot_id> slots(ids_.size(), slot_id{unwritten});
    std::vector<expert_id> missing(missing_size_, expert_id{unwritten});
    std::vector<mirror_counts> counts(visits_.size());
    const device_array<expert_id> device_ids(ids_);
    const device_array<slot_id> device_rows(rows_);
    const device_array<slot_id> device_slots(ids_.size());
    const device_array<expert_id> device_missing(missing_size_);
    const device_array<mirror_counts> device_counts(visits_.size());
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      const auto& v = visits_[i];
      HOTSET_REQUIRE(
          cuda::launch_mirror({device_ids.data() + v.ids, static_cast<std::int64_t>(v.count),
                               device_rows.data() + v.row, static_cast<std::int32_t>(v.experts),
                               device_slots.data() + v.ids, device_missing.data() + v.missing,
                               device_counts.data() + i},
                              stream.handle()));
      unique_ids unique(v.experts, v.count);
      counts[i] = cuda::mirror_on_host(unique, std::span(ids_).subspan(v.ids, v.count),
                                       std::span(rows_).subspan(v.row, v.experts),
                                       std::span(slots).subspan(v.ids, v.count),
                                       std::span(missing).subspan(v.missing));
    }
    stream.synchronize();
    return device_slots.download() == slots && device_missing.download() == missing &&
           device_counts.download() == counts;
  }

 private:
  static constexpr auto unwritten = static_cast<std::int32_t>(0xababababU);
  struct place {
    std::size_t ids;
    std::size_t count;
    std::size_t row;
    std::size_t experts;
    std::size_t missing;
  };
  std::vector<place> visits_;
  std::vector<expert_id> ids_;
  std::vector<slot_id> rows_;
  std::size_t missing_size_ = 0;
};

bool same_on_both_sides(const visit& v) {
  visit_batch batch;
  batch.add(v);
  return batch.same_on_both_sides(test_stream());
}

TEST(mirror_kernel, equals_the_host_on_random_visits) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  support::random_source random(0x111);
  const auto wanted = setting("HOTSET_GPU_VISITS", 1'000'000);
  for (long long done = 0; done < wanted;) {
    visit_batch batch;
    while (batch.size() < 20'000 && done + static_cast<long long>(batch.size()) < wanted)
      batch.add(mirror_samples::random_visit(random));
    ASSERT_TRUE(batch.same_on_both_sides(stream))
        << "between visits " << done << " and the next " << batch.size();
    done += static_cast<long long>(batch.size());
  }
}

TEST(mirror_kernel, takes_the_largest_layer_and_a_prefill_of_many_rounds) {
  HOTSET_NEEDS_A_DEVICE();
  visit v;
  for (std::int32_t e = cuda::mirror_most_experts; e-- > 0;)
    v.ids.insert(v.ids.end(), {expert_id{e}, no_expert, expert_id{e}});
  v.row.assign(cuda::mirror_most_experts, no_slot);
  EXPECT_TRUE(same_on_both_sides(v));
  for (std::size_t e = 0; e < v.row.size(); e += 3) v.row[e] = static_cast<slot_id>(e);
  EXPECT_TRUE(same_on_both_sides(v));
}

TEST(mirror_kernel, takes_a_visit_of_nothing) {
  HOTSET_NEEDS_A_DEVICE();
  EXPECT_TRUE(same_on_both_sides({{}, {4_slot, no_slot}}));
}

// Hazard 13: a graph keeps its captured pointers, but reads their memory again.
TEST(mirror_kernel, sees_a_changed_row_when_a_captured_graph_is_replayed) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  const device_array<expert_id> ids(expert_ids({2, 0, 2, 1}));
  device_array<slot_id> row(slot_ids({-1, 7, -1}));
  const device_array<slot_id> slots(4);
  const device_array<expert_id> missing(3);
  const device_array<mirror_counts> counts(1);
  captured_graph::begin(stream);
  ASSERT_EQ(cuda::launch_mirror(
                {ids.data(), 4, row.data(), 3, slots.data(), missing.data(), counts.data()},
                stream.handle()),
            error_code::success);
  const captured_graph graph(stream);
  graph.replay(stream);
  EXPECT_TRUE(slots.download() == slot_ids({-1, -1, -1, 7}));
  EXPECT_TRUE(counts.download().front() == (mirror_counts{2, 0}));
  const auto listed = missing.download();
  EXPECT_EQ(listed[0], 2);
  EXPECT_EQ(listed[1], 0);
  row.upload(slot_ids({5, -1, 6}));
  graph.replay(stream);
  EXPECT_TRUE(slots.download() == slot_ids({6, 5, 6, -1}));
  EXPECT_TRUE(counts.download().front() == (mirror_counts{1, 0}));
  EXPECT_EQ(missing.download()[0], 1);
}

TEST(mirror_kernel, a_refused_launch_does_not_run) {
  HOTSET_NEEDS_A_DEVICE();
  const test_stream stream;
  const device_array<expert_id> ids(expert_ids({0}));
  const device_array<slot_id> row(slot_ids({3}));
  const device_array<slot_id> slots(1);
  const auto before = slots.download();
  const device_array<expert_id> missing(1);
  const device_array<mirror_counts> counts(1);
  EXPECT_EQ(cuda::launch_mirror({ids.data(), 1, row.data(), cuda::mirror_most_experts + 1,
                                 slots.data(), missing.data(), counts.data()},
                                stream.handle()),
            error_code::invalid_value);
  stream.synchronize();
  EXPECT_TRUE(slots.download() == before);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace hotset::gpu::mirror_kernel_test
