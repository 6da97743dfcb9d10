// SPDX-License-Identifier: Apache-2.0
// Transfer backends that need no device; tests/gpu has the same suite for one that does.

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "host_experts.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "transfer_suite.hpp"

namespace hotset {
namespace {

using support::device_experts;
using support::fake_cuda_runtime;
using support::gate;
using support::host_experts;

pool_layout pools() {
  return pool_layout::shared(support::transfer_shape, support::transfer_slots).value();
}

template <host_stream::mode Mode>
struct host_entry {
  using backend_type = host_backend<memory_expert_source>;
  static constexpr bool deferred = Mode == host_stream::mode::worker;
  static constexpr bool copies_beside = true;
  host_experts experts{pools()};
  backend_type backend{(experts.source.remove(support::absent_expert), experts.source),
                       experts.bank};
  host_stream stream{Mode};

  struct looking {
    const host_entry* entry = nullptr;
    slot_id slot = no_slot;
    expert_key key{};
    bool saw = false;
    static void run(void* self) noexcept {
      auto& l = *static_cast<looking*>(self);
      l.saw = l.entry->holds(l.slot, l.key);
    }
  } last;

  static std::string why_not() { return ""; }
  void look(slot_id slot, expert_key key) {
    last = {this, slot, key, false};
    stream.run(looking::run, &last);
  }
  [[nodiscard]] bool saw_it() const { return last.saw; }
  void hold_until_open(gate& closed) { stream.run(gate::pass, &closed); }
  void drain() { stream.drain(); }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const { return experts.holds(slot, key); }
};

/// The CUDA backend over a runtime that needs no device.
template <cuda::copy_mode Mode, bool Pinned>
struct cuda_entry {
  using backend_type = cuda::cuda_backend<memory_expert_source>;
  static constexpr bool deferred = true;
  static constexpr bool copies_beside = Mode == cuda::copy_mode::side_stream;
  fake_cuda_runtime api{fake_cuda_runtime::pace::random};
  device_experts experts{api, pools(), Pinned};
  std::unique_ptr<backend_type> owned = make();
  backend_type& backend = *owned;
  cuda::stream stream = cuda::stream::create(api, 0).value();
  bool saw = false;

  std::unique_ptr<backend_type> make() {
    experts.host.source.remove(support::absent_expert);
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
  static std::string why_not() { return ""; }
  void look(slot_id slot, expert_key key) {
    saw = false;
    api.launch(stream.handle(), [=, this] { saw = holds(slot, key); });
  }
  [[nodiscard]] bool saw_it() const { return saw; }
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

}  // namespace

namespace support {
INSTANTIATE_TYPED_TEST_SUITE_P(transfer_conformance, transfer_conformance, entries);
}  // namespace support
}  // namespace hotset
