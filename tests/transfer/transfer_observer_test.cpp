// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/transfer_observer.hpp"

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/inline_backend.hpp"
#include "seen_transfers.hpp"

namespace hotset::transfer_observer_test {
namespace {

using support::fill_of;
using support::gate;
using support::host_experts;
using support::seen_transfers;

constexpr std::uint64_t expert_bytes = 96 + 33 + 257;

class transfer_observers : public testing::Test {
 protected:
  seen_transfers seen;
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  host_stream reader{host_stream::mode::worker};
  host_backend<memory_expert_source> backend{experts.source, experts.bank, {.observer = &seen}};
  host_stream caller;
  /// A ticket that arrives when the gate opens.
  ticket until_open(gate& opens) {
    reader.run(gate::pass, &opens);
    return backend.record(reader);
  }
  /// Submits copies until the stream has waited for one. A busy machine may end a copy before the stream waits.
  ticket submit_until_waited(host_stream& stream) {
    for (auto pause = std::chrono::milliseconds(1);; pause *= 2) {
      gate opens;
      const auto sent =
          backend.submit(std::array{fill_of({0_layer, 3_expert}, 1_slot, until_open(opens))},
                         stream, urgency::now);
      std::thread opener([&] {
        std::this_thread::sleep_for(pause);
        opens.open();
      });
      EXPECT_EQ(backend.fence(stream, sent.id), status::ok);
      stream.drain();
      opener.join();
      reader.drain();
      if (!seen.waits().empty()) return sent.id;
    }
  }
};

TEST_F(transfer_observers, see_each_copy_with_its_times_in_order) {
  auto prefetch = fill_of({1_layer, 4_expert}, 2_slot);
  prefetch.speculative = true;
  const auto sent = backend.submit(
      std::array{fill_of({0_layer, 3_expert}, 1_slot), fill_of({0_layer, 4_expert}, 0_slot)},
      caller, urgency::now);
  const auto later = backend.submit(std::array{prefetch}, caller, urgency::soon);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(later.id), transfer_state::arrived);
  const auto copies = seen.copies();
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_EQ(copies[0].what.key, (expert_key{0_layer, 3_expert}));
  EXPECT_EQ(copies[1].batch, sent.id);
  EXPECT_EQ(copies[2].batch, later.id);
  EXPECT_FALSE(copies[0].is_ahead());
  EXPECT_TRUE(copies[2].is_ahead());
  for (const auto& copy : copies) {
    EXPECT_TRUE(copy.arrived);
    EXPECT_EQ(copy.bytes, expert_bytes);
    EXPECT_LE(copy.submitted, copy.begin);
    EXPECT_LE(copy.begin, copy.end);
  }
}

TEST_F(transfer_observers, see_a_failed_copy_and_no_cancelled_one) {
  experts.source.remove({0_layer, 5_expert});
  const auto bad =
      backend.submit(std::array{fill_of({0_layer, 5_expert}, 1_slot)}, caller, urgency::now);
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  gate held;
  const auto dropped = backend.submit(
      std::array{fill_of({0_layer, 3_expert}, 1_slot, until_open(held))}, caller, urgency::soon);
  EXPECT_TRUE(backend.cancel(dropped.id));
  held.open();
  reader.drain();  // it waits at the gate, which this test owns
  const auto copies = seen.copies();
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_FALSE(copies[0].arrived);
  EXPECT_EQ(copies[0].bytes, 0U);
}

TEST_F(transfer_observers, see_a_wait_for_pending_copies_only) {
  const auto sent = submit_until_waited(caller);
  EXPECT_EQ(backend.fence(caller, sent), status::ok);  // has arrived
  const auto waits = seen.waits();
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].batch, sent);
  EXPECT_EQ(waits[0].backend, seen.copies().back().backend);
  EXPECT_LE(waits[0].begin, seen.copies().back().end);
  EXPECT_LE(seen.copies().back().end, waits[0].end);
}

TEST_F(transfer_observers, see_the_waits_of_a_workers_stream) {
  host_stream worker{host_stream::mode::worker};
  const auto sent = submit_until_waited(worker);
  ASSERT_EQ(seen.waits().size(), 1U);
  EXPECT_EQ(seen.waits()[0].batch, sent);
}

TEST(transfer_observer, sees_the_copies_of_an_inline_backend_as_waits) {
  seen_transfers seen;
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  inline_backend<memory_expert_source> backend(experts.source, experts.bank, &seen);
  inline_stream stream;
  const auto sent = backend.submit(
      std::array{fill_of({0_layer, 3_expert}, 1_slot), fill_of({1_layer, 4_expert}, 2_slot)},
      stream, urgency::now);
  ASSERT_EQ(seen.copies().size(), 2U);
  ASSERT_EQ(seen.waits().size(), 1U);
  EXPECT_EQ(seen.waits()[0].batch, sent.id);
  EXPECT_EQ(seen.copies()[1].batch, sent.id);
  EXPECT_EQ(seen.copies()[1].bytes, expert_bytes);
  EXPECT_LE(seen.waits()[0].begin, seen.copies()[0].begin);
  EXPECT_LE(seen.copies()[1].end, seen.waits()[0].end);
}

}  // namespace
}  // namespace hotset::transfer_observer_test
