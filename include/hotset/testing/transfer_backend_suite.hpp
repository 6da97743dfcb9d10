// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Conformance suite for transfer backends, the library's and your own. Needs GoogleTest.
///
///     HOTSET_TRANSFER_CONFORMANCE(mine, my_entry);
///
/// An entry builds the backend, blocks and inspects a stream of its kind, and reads back the bytes of a slot.
///
/// | entry member | meaning |
/// |---|---|
/// | `backend_type`, `backend`, `stream` | with 4 slots for 2 layers of 8 experts; `absent_expert` has no bytes |
/// | `why_not()` | the reason why the backend is not available here; empty if it is |
/// | `deferred` | enqueued work may still be waiting |
/// | `copies_beside` | copies run beside the stream's work, not in it |
/// | `hold_until_open(gate)` | enqueues work that waits for the gate |
/// | `look(slot, key)`, `saw_it()` | enqueues a check of a slot; true if the last drained check found the expert |
/// | `drain()` | waits for all enqueued work |
/// | `holds(slot, key)` | true if the slot has the expert's bytes now |
/// | `forgotten()` | optional, for sources that cache bytes: keys that were invalidated; a layer has `no_expert` |
/// | `moves_bytes` | optional; false: copies are only timed, so they cannot fail |

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/fill.hpp"
#include "hotset/testing/fills.hpp"
#include "hotset/testing/gate.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset::suites {

/// The model shape of the suite.
inline const geometry transfer_shape{.layers = 2, .experts = 8, .top_k = 2};
/// Number of slots of each layer.
inline constexpr std::int64_t transfer_slots = 4;
/// An expert without bytes in the source.
inline constexpr expert_key absent_expert{1_layer, 6_expert};

/// True if the entry's backend copies bytes; false if it only computes times.
template <class Entry>
constexpr bool moves_bytes() {
  if constexpr (requires { Entry::moves_bytes; })
    return Entry::moves_bytes;
  else
    return true;
}

/// The test fixture; entries build the backend.
template <class Entry>
class transfer_conformance : public testing::Test {
 protected:
  static_assert(is_transfer_backend<typename Entry::backend_type>());
  void SetUp() override {
    if (const std::string reason = Entry::why_not(); !reason.empty()) GTEST_SKIP() << reason;
    made_.emplace();
  }
  Entry& entry() { return *made_; }
  auto& backend() { return made_->backend; }
  submission submit(const std::vector<fill>& fills, urgency when = urgency::now) {
    return made_->backend.submit(fills, made_->stream, when);
  }

 private:
  std::optional<Entry> made_;
};
TYPED_TEST_SUITE_P(transfer_conformance);

TYPED_TEST_P(transfer_conformance, all_tensors_of_all_fills_arrive_under_one_ticket) {
  auto& backend = this->backend();
  const auto sent =
      this->submit({fill_of({0_layer, 1_expert}, 2_slot), fill_of({1_layer, 7_expert}, 0_slot)});
  EXPECT_EQ(sent.accepted, 2U);
  EXPECT_NE(sent.id, no_ticket);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(backend.poll(sent.id), transfer_state::arrived);
  EXPECT_TRUE(this->entry().holds(2_slot, {0_layer, 1_expert}));
  EXPECT_TRUE(this->entry().holds(0_slot, {1_layer, 7_expert}));
}

TYPED_TEST_P(transfer_conformance, no_ticket_has_arrived_and_no_fills_have_no_ticket) {
  auto& backend = this->backend();
  EXPECT_EQ(backend.poll(no_ticket), transfer_state::arrived);
  EXPECT_EQ(backend.wait(no_ticket), transfer_state::arrived);
  EXPECT_EQ(backend.fence(this->entry().stream, no_ticket), status::ok);
  EXPECT_FALSE(backend.cancel(no_ticket));
  const auto nothing = this->submit({});
  EXPECT_EQ(nothing.id, no_ticket);
  EXPECT_EQ(nothing.accepted, 0U);
}

TYPED_TEST_P(transfer_conformance, what_follows_a_fence_sees_the_bytes) {
  for (const auto when : {urgency::now, urgency::soon}) {
    const auto sent = this->submit({fill_of({0_layer, 5_expert}, 1_slot)}, when);
    ASSERT_EQ(this->backend().fence(this->entry().stream, sent.id), status::ok);
    this->entry().look(1_slot, {0_layer, 5_expert});
    this->entry().drain();
    EXPECT_TRUE(this->entry().saw_it());
  }
}

TYPED_TEST_P(transfer_conformance, a_failure_is_sticky_and_of_its_ticket_alone) {
  if (!moves_bytes<TypeParam>()) GTEST_SKIP() << "a copy that is not made cannot fail";
  auto& backend = this->backend();
  const auto bad =
      this->submit({fill_of({0_layer, 1_expert}, 0_slot), fill_of(absent_expert, 1_slot)});
  const auto good = this->submit({fill_of({0_layer, 2_expert}, 2_slot)});
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  EXPECT_EQ(backend.wait(good.id), transfer_state::arrived);
  EXPECT_EQ(backend.poll(bad.id), transfer_state::failed);
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  EXPECT_FALSE(backend.cancel(bad.id));
}

TYPED_TEST_P(transfer_conformance, a_record_arrives_when_the_stream_has_run) {
  gate held;
  if (!TypeParam::deferred) held.open();
  this->entry().hold_until_open(held);
  const auto reader = this->backend().record(this->entry().stream);
  if (TypeParam::deferred && TypeParam::copies_beside) {
    EXPECT_EQ(this->backend().poll(reader), transfer_state::pending);
  }
  held.open();
  EXPECT_EQ(this->backend().wait(reader), transfer_state::arrived);
  this->entry().drain();
}

// Hazard 2.
TYPED_TEST_P(transfer_conformance, a_copy_waits_for_the_reader_that_it_names) {
  if (!TypeParam::deferred) GTEST_SKIP() << "on the caller's thread nothing is still reading";
  if (!TypeParam::copies_beside) GTEST_SKIP() << "copies run in the stream that reads";
  auto& backend = this->backend();
  ASSERT_EQ(backend.wait(this->submit({fill_of({0_layer, 1_expert}, 0_slot)}).id),
            transfer_state::arrived);
  gate held;
  this->entry().hold_until_open(held);
  const auto reader = backend.record(this->entry().stream);
  const auto sent = this->submit({fill_of({0_layer, 2_expert}, 0_slot, reader)});
  ASSERT_EQ(backend.wait(this->submit({fill_of({0_layer, 3_expert}, 1_slot)}).id),
            transfer_state::arrived)
      << "one that names no reader goes first";
  EXPECT_EQ(backend.poll(sent.id), transfer_state::pending);
  EXPECT_TRUE(this->entry().holds(0_slot, {0_layer, 1_expert})) << "overwritten while it was read";
  held.open();
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(this->entry().holds(0_slot, {0_layer, 2_expert}));
  this->entry().drain();
}

TYPED_TEST_P(transfer_conformance, a_cancelled_copy_moves_no_byte) {
  if (!TypeParam::deferred) GTEST_SKIP() << "nothing can be held back on the caller's thread";
  auto& backend = this->backend();
  ASSERT_EQ(backend.wait(this->submit({fill_of({0_layer, 1_expert}, 0_slot)}).id),
            transfer_state::arrived);
  gate held;
  this->entry().hold_until_open(held);
  const auto reader = backend.record(this->entry().stream);
  const auto sent = this->submit({fill_of({0_layer, 2_expert}, 0_slot, reader)}, urgency::soon);
  backend.promote(sent.id);
  // A backend may refuse to cancel if the copy has begun.
  const bool cancelled = backend.cancel(sent.id);
  held.open();
  EXPECT_EQ(backend.wait(sent.id), cancelled ? transfer_state::cancelled : transfer_state::arrived);
  this->entry().drain();
  ASSERT_EQ(backend.wait(this->submit({fill_of({0_layer, 3_expert}, 1_slot)}).id),
            transfer_state::arrived);
  EXPECT_TRUE(this->entry().holds(0_slot, {0_layer, cancelled ? 1_expert : 2_expert}));
}

TYPED_TEST_P(transfer_conformance, many_batches_arrive) {
  for (std::int32_t n = 0; n < 500; ++n) {
    const expert_key key{layer_id{n % 2}, expert_id{n % 6}};
    const slot_id slot{n % 4};
    const auto sent = this->submit({fill_of(key, slot)}, n % 3 == 0 ? urgency::soon : urgency::now);
    ASSERT_EQ(sent.accepted, 1U);
    if (n % 7 == 0) this->backend().promote(sent.id);
    ASSERT_EQ(this->backend().wait(sent.id), transfer_state::arrived);
    ASSERT_TRUE(this->entry().holds(slot, key));
  }
}

// Hazard 20.
TYPED_TEST_P(transfer_conformance, a_source_that_keeps_bytes_is_asked_to_forget_them) {
  if constexpr (requires { this->entry().forgotten(); }) {
    this->backend().invalidate(expert_key{1_layer, 3_expert});
    this->backend().invalidate(0_layer);
    const std::vector<expert_key> both{{1_layer, 3_expert}, {0_layer, no_expert}};
    EXPECT_EQ(this->entry().forgotten(), both);
  } else {
    GTEST_SKIP() << "its source keeps none";
  }
}

REGISTER_TYPED_TEST_SUITE_P(transfer_conformance, all_tensors_of_all_fills_arrive_under_one_ticket,
                            no_ticket_has_arrived_and_no_fills_have_no_ticket,
                            what_follows_a_fence_sees_the_bytes,
                            a_failure_is_sticky_and_of_its_ticket_alone,
                            a_record_arrives_when_the_stream_has_run,
                            a_copy_waits_for_the_reader_that_it_names,
                            a_cancelled_copy_moves_no_byte, many_batches_arrive,
                            a_source_that_keeps_bytes_is_asked_to_forget_them);

}  // namespace hotset::suites

/// Adds a backend to the suite. Use it at namespace scope, outside all namespaces. `entry` may be a
/// testing::Types<...> of several entries.
#define HOTSET_TRANSFER_CONFORMANCE(name, ...)                             \
  namespace hotset::suites {                                               \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, transfer_conformance, __VA_ARGS__); \
  }                                                                        \
  static_assert(true)
