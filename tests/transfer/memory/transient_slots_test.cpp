// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/transient_slots.hpp"

#include <cstddef>
#include <iterator>

#include <gtest/gtest.h>

#include "scripted_backend.hpp"

namespace transient_slots_test {
namespace {

using namespace hotset;
using support::scripted_backend;
constexpr expert_key first{0_layer, 5_expert};
constexpr expert_key second{0_layer, 6_expert};
constexpr expert_key third{1_layer, 5_expert};

struct transient_slots_of_two : testing::Test {
  scripted_backend backend{6};
  scripted_backend::stream_type stream;
  transient_slots<scripted_backend> slots{backend, 4_slot, 2};  // the cache has 0 to 3

  slot_id stream_in(expert_key key) { return slots.stream_in(key, 0_precision, stream); }
  /// A visit that reads one expert.
  slot_id visit(expert_key key) {
    slots.begin_visit();
    const auto slot = stream_in(key);
    slots.record_readers(stream);
    return slot;
  }
  expert_key content(slot_id slot) const { return backend.content[static_cast<std::size_t>(slot)]; }
  ticket waits_for(std::size_t fill) const {
    auto batch = backend.batches.begin();
    std::advance(batch, fill);
    return batch->second.fills.front().after;
  }
};

TEST_F(transient_slots_of_two, an_expert_is_ready_for_work_enqueued_next) {
  slots.begin_visit();
  const auto slot = stream_in(first);
  EXPECT_EQ(slot, 4);
  expert_key seen = no_key;
  backend.launch(stream, [&] { seen = content(slot); });
  slots.record_readers(stream);
  backend.run(stream);
  EXPECT_EQ(seen, first);
  EXPECT_EQ(slots.streamed(), 1U);
  EXPECT_EQ(slots.settle(), status::ok);
}

TEST_F(transient_slots_of_two, a_second_group_of_the_visit_finds_it_without_a_copy) {
  EXPECT_EQ(visit(first), 4);
  EXPECT_EQ(stream_in(first), 4);
  EXPECT_EQ(stream_in(second), 5);
  slots.record_readers(stream);
  EXPECT_EQ(backend.submits, 2U);
}

TEST_F(transient_slots_of_two, another_precision_is_another_copy) {
  slots.begin_visit();
  EXPECT_EQ(slots.stream_in(first, 0_precision, stream), 4);
  EXPECT_EQ(slots.stream_in(first, 1_precision, stream), 5);
  EXPECT_EQ(slots.stream_in(first, 1_precision, stream), 5);
  EXPECT_EQ(backend.submits, 2U);
}

// Hazard 20: host bytes change while copies read them.
TEST_F(transient_slots_of_two, drain_waits_for_copies_that_read_host_bytes) {
  EXPECT_EQ(visit(first), 4);
  const auto sent = backend.batches.begin()->first;
  EXPECT_EQ(backend.poll(sent), transfer_state::pending);
  EXPECT_EQ(slots.drain(), status::ok);
  EXPECT_EQ(backend.poll(sent), transfer_state::arrived);
}

TEST_F(transient_slots_of_two, the_next_visit_does_not_find_it) {
  for (int n = 0; n < 2; ++n) EXPECT_EQ(visit(first), 4);
  EXPECT_EQ(backend.submits, 2U);
}

TEST_F(transient_slots_of_two, an_expert_without_a_slot_stays_on_the_host) {
  slots.begin_visit();
  EXPECT_EQ(stream_in(first), 4);
  EXPECT_EQ(stream_in(second), 5);
  EXPECT_EQ(stream_in(third), no_slot);
  EXPECT_EQ(stream_in(second), 5);
  EXPECT_EQ(slots.streamed(), 2U);
}

TEST_F(transient_slots_of_two, without_slots_all_is_the_hosts) {
  transient_slots<scripted_backend> none(backend, 4_slot, 0);
  none.begin_visit();
  EXPECT_EQ(none.stream_in(first, 0_precision, stream), no_slot);
  none.record_readers(stream);
  EXPECT_EQ(backend.submits, 0U);
  EXPECT_TRUE(stream.commands.empty());
}

TEST_F(transient_slots_of_two, a_copy_waits_for_the_readers_of_the_visit_before) {
  expert_key seen = no_key;
  slots.begin_visit();
  const auto slot = stream_in(first);
  backend.launch(stream, [&] { seen = content(slot); });
  slots.record_readers(stream);
  slots.begin_visit();
  EXPECT_EQ(stream_in(third), slot);
  EXPECT_FALSE(backend.may_start(backend.fenced.back()));
  backend.finish(backend.fenced.back());  // first runs the stream up to the reader
  EXPECT_EQ(seen, first);
  EXPECT_EQ(content(slot), third);
}

TEST_F(transient_slots_of_two, a_failed_copy_leaves_the_expert_to_the_host) {
  backend.blocking = true;
  backend.failing = {1};
  slots.begin_visit();
  EXPECT_EQ(stream_in(first), no_slot);
  EXPECT_EQ(stream_in(first), no_slot) << "asked again in the visit";
  EXPECT_EQ(backend.submits, 1U);
  EXPECT_EQ(stream_in(second), 5);
  EXPECT_EQ(slots.streamed(), 1U);
  slots.record_readers(stream);
  slots.begin_visit();
  EXPECT_EQ(stream_in(first), 4);
}

// Hazard 2: a copy that is refused at once has waited for no reader of its slot.
TEST_F(transient_slots_of_two, readers_outlive_a_refused_copy_into_their_slot) {
  slots.begin_visit();
  const auto slot = stream_in(first);
  backend.launch(stream, [] {});
  slots.record_readers(stream);
  const auto reader = backend.last();
  backend.fails_at_once = true;
  EXPECT_EQ(visit(second), no_slot);
  backend.fails_at_once = false;
  EXPECT_EQ(visit(third), slot);
  EXPECT_EQ(waits_for(2), reader);
}

TEST_F(transient_slots_of_two, later_copies_wait_for_a_copy_with_a_failed_fence) {
  backend.refuse_fences = 1;
  EXPECT_EQ(visit(first), no_slot);
  const auto lost = backend.last();
  EXPECT_EQ(visit(second), 4);
  EXPECT_EQ(waits_for(1), lost) << "its bytes may still move";
}

TEST_F(transient_slots_of_two, a_late_copy_failure_is_reported_once) {
  backend.failing = {1};
  slots.begin_visit();
  EXPECT_EQ(stream_in(first), 4) << "nobody knows yet";
  EXPECT_EQ(slots.settle(), status::ok) << "it is under way";
  slots.record_readers(stream);
  backend.run(stream);
  EXPECT_EQ(slots.settle(), status::fill_failed);
  EXPECT_EQ(slots.settle(), status::ok);
}

TEST_F(transient_slots_of_two, nor_is_it_forgotten_when_the_slot_is_used_again) {
  backend.failing = {1};
  EXPECT_EQ(visit(first), 4);
  EXPECT_EQ(visit(second), 4);
  backend.run(stream);
  EXPECT_EQ(content(4_slot), second);
  EXPECT_EQ(slots.settle(), status::fill_failed);
}

TEST_F(transient_slots_of_two, a_refusing_backend_leaves_the_slot_unchanged) {
  EXPECT_EQ(visit(first), 4);
  backend.accept = 0;
  EXPECT_EQ(visit(second), no_slot);
  backend.accept = scripted_backend::all;
  EXPECT_EQ(visit(third), 4);
  EXPECT_NE(waits_for(1), no_ticket) << "the readers of the first visit";
}

}  // namespace
}  // namespace transient_slots_test
