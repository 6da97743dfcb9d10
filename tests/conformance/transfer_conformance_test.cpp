// SPDX-License-Identifier: Apache-2.0
// Every transfer backend joins here with an entry: how it is built, how work is enqueued on its streams, and how
// a slot's bytes are read back when nothing moves any more.

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/transfer/host_backend.hpp"

namespace hotset {
namespace {

using support::device_experts;
using support::fake_cuda_runtime;
using support::fill_of;
using support::gate;
using support::host_experts;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
constexpr std::int64_t slots = 4;
constexpr expert_key missing{1, 6};  ///< an expert that the source does not have

template <host_stream::mode Mode>
struct host_entry {
  using backend_type = host_backend<memory_expert_source>;
  /// Enqueued work may still be waiting; copies run beside it.
  static constexpr bool deferred = Mode == host_stream::mode::worker;
  static constexpr bool copies_beside = true;
  host_experts experts{pool_layout::shared(shape, slots).value()};
  backend_type backend{(experts.source.remove(missing), experts.source), experts.bank};
  host_stream stream{Mode};

  void enqueue(host_stream::work what, void* context) { stream.run(what, context); }
  void hold_until_open(gate& closed) { stream.run(gate::pass, &closed); }
  void drain() { stream.drain(); }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const { return experts.holds(slot, key); }
};

/// The CUDA backend over a runtime that needs no device. tests/gpu has the same suite's twin on a real one.
template <cuda::copy_mode Mode, bool Pinned>
struct cuda_entry {
  using backend_type = cuda::cuda_backend<memory_expert_source>;
  static constexpr bool deferred = true;
  static constexpr bool copies_beside = Mode == cuda::copy_mode::side_stream;
  fake_cuda_runtime api{fake_cuda_runtime::pace::random};
  device_experts experts{api, pool_layout::shared(shape, slots).value(), Pinned};
  std::unique_ptr<backend_type> owned = make();
  backend_type& backend = *owned;
  cuda::stream stream = cuda::stream::create(api, 0).value();

  std::unique_ptr<backend_type> make() {
    experts.host.source.remove(missing);
    typename backend_type::config setup{.mode = Mode, .chunk_bytes = 64, .chunks_ahead = 2};
    // In the engine's own stream a submit waits for pieces that stand behind the engine's work.
    if (!Pinned) setup.staging_pieces = copies_beside ? 3 : 32;
    setup.staging_piece_bytes = 64;
    return backend_type::create(api, experts.host.source, experts.bank, experts.pages, setup)
        .value();
  }
  ~cuda_entry() {
    EXPECT_THAT(api.violations(), testing::IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U);
  }
  void enqueue(host_stream::work what, void* context) {
    api.launch(stream.handle(), [=] { what(context); });
  }
  void hold_until_open(gate& closed) {
    api.hold(stream.handle(), [&closed] { return closed.is_open(); });
  }
  void drain() { (void)api.synchronize_stream(stream.handle()); }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const { return experts.holds(slot, key); }
};
using cuda::copy_mode;
using entries = testing::Types<
    host_entry<host_stream::mode::caller>, host_entry<host_stream::mode::worker>,
    cuda_entry<copy_mode::side_stream, true>, cuda_entry<copy_mode::side_stream, false>,
    cuda_entry<copy_mode::same_stream, true>, cuda_entry<copy_mode::same_stream, false>>;

template <class Entry>
class transfer_conformance : public testing::Test {
 protected:
  static_assert(transfer_backend<typename Entry::backend_type>);
  submission submit(const std::vector<fill>& fills, urgency when = urgency::now) {
    return entry.backend.submit(fills, entry.stream, when);
  }
  Entry entry;
};
TYPED_TEST_SUITE(transfer_conformance, entries);

TYPED_TEST(transfer_conformance, all_tensors_of_all_fills_arrive_under_one_ticket) {
  auto& backend = this->entry.backend;
  const auto sent = this->submit({fill_of({0, 1}, 2), fill_of({1, 7}, 0)});
  EXPECT_EQ(sent.accepted, 2U);
  EXPECT_NE(sent.id, no_ticket);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(backend.poll(sent.id), transfer_state::arrived);
  EXPECT_TRUE(this->entry.holds(2, {0, 1}));
  EXPECT_TRUE(this->entry.holds(0, {1, 7}));
}

TYPED_TEST(transfer_conformance, no_ticket_has_arrived_and_no_fills_have_no_ticket) {
  auto& backend = this->entry.backend;
  EXPECT_EQ(backend.poll(no_ticket), transfer_state::arrived);
  EXPECT_EQ(backend.wait(no_ticket), transfer_state::arrived);
  EXPECT_EQ(backend.fence(this->entry.stream, no_ticket), status::ok);
  EXPECT_FALSE(backend.cancel(no_ticket));
  const auto nothing = this->submit({});
  EXPECT_EQ(nothing.id, no_ticket);
  EXPECT_EQ(nothing.accepted, 0U);
}

TYPED_TEST(transfer_conformance, what_follows_a_fence_sees_the_bytes) {
  struct look {
    TypeParam* entry;
    bool seen = false;
    static void at(void* self) noexcept {
      auto& l = *static_cast<look*>(self);
      l.seen = l.entry->holds(1, {0, 5});
    }
  } look{&this->entry};
  for (const auto when : {urgency::now, urgency::soon}) {
    look.seen = false;
    const auto sent = this->submit({fill_of({0, 5}, 1)}, when);
    ASSERT_EQ(this->entry.backend.fence(this->entry.stream, sent.id), status::ok);
    this->entry.enqueue(look::at, &look);
    this->entry.drain();
    EXPECT_TRUE(look.seen);
  }
}

TYPED_TEST(transfer_conformance, a_failure_is_sticky_and_of_its_ticket_alone) {
  auto& backend = this->entry.backend;
  const auto bad = this->submit({fill_of({0, 1}, 0), fill_of(missing, 1)});
  const auto good = this->submit({fill_of({0, 2}, 2)});
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  EXPECT_EQ(backend.wait(good.id), transfer_state::arrived);
  EXPECT_EQ(backend.poll(bad.id), transfer_state::failed);
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  EXPECT_FALSE(backend.cancel(bad.id));
}

TYPED_TEST(transfer_conformance, a_record_arrives_when_the_stream_has_run) {
  gate held;
  if (!TypeParam::deferred) held.open();
  this->entry.hold_until_open(held);
  const auto reader = this->entry.backend.record(this->entry.stream);
  if (TypeParam::deferred && TypeParam::copies_beside) {
    EXPECT_EQ(this->entry.backend.poll(reader), transfer_state::pending);
  }
  held.open();
  EXPECT_EQ(this->entry.backend.wait(reader), transfer_state::arrived);
  this->entry.drain();
}

// Hazard 2.
TYPED_TEST(transfer_conformance, a_copy_waits_for_the_reader_that_it_names) {
  if (!TypeParam::deferred) GTEST_SKIP() << "on the caller's thread nothing is still reading";
  if (!TypeParam::copies_beside) GTEST_SKIP() << "copies run in the stream that reads";
  auto& backend = this->entry.backend;
  ASSERT_EQ(backend.wait(this->submit({fill_of({0, 1}, 0)}).id), transfer_state::arrived);
  gate held;
  this->entry.hold_until_open(held);
  const auto reader = backend.record(this->entry.stream);
  const auto sent = this->submit({fill_of({0, 2}, 0, reader)});
  ASSERT_EQ(backend.wait(this->submit({fill_of({0, 3}, 1)}).id), transfer_state::arrived)
      << "one that names no reader goes first";
  EXPECT_EQ(backend.poll(sent.id), transfer_state::pending);
  EXPECT_TRUE(this->entry.holds(0, {0, 1})) << "overwritten while it was read";
  held.open();
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(this->entry.holds(0, {0, 2}));
  this->entry.drain();
}

TYPED_TEST(transfer_conformance, a_cancelled_copy_moves_no_byte) {
  if (!TypeParam::deferred) GTEST_SKIP() << "nothing can be held back on the caller's thread";
  auto& backend = this->entry.backend;
  ASSERT_EQ(backend.wait(this->submit({fill_of({0, 1}, 0)}).id), transfer_state::arrived);
  gate held;
  this->entry.hold_until_open(held);
  const auto reader = backend.record(this->entry.stream);
  const auto sent = this->submit({fill_of({0, 2}, 0, reader)}, urgency::soon);
  backend.promote(sent.id);
  const bool cancelled = backend.cancel(sent.id);  // a backend may also have passed the point
  held.open();
  EXPECT_EQ(backend.wait(sent.id), cancelled ? transfer_state::cancelled : transfer_state::arrived);
  this->entry.drain();
  ASSERT_EQ(backend.wait(this->submit({fill_of({0, 3}, 1)}).id), transfer_state::arrived);
  EXPECT_TRUE(this->entry.holds(0, {0, cancelled ? 1 : 2}));
}

TYPED_TEST(transfer_conformance, many_batches_arrive) {
  for (expert_id n = 0; n < 500; ++n) {
    const expert_key key{n % 2, n % 6};
    const auto sent =
        this->submit({fill_of(key, n % 4)}, n % 3 == 0 ? urgency::soon : urgency::now);
    ASSERT_EQ(sent.accepted, 1U);
    if (n % 7 == 0) this->entry.backend.promote(sent.id);
    ASSERT_EQ(this->entry.backend.wait(sent.id), transfer_state::arrived);
    ASSERT_TRUE(this->entry.holds(n % 4, key));
  }
}

}  // namespace
}  // namespace hotset
