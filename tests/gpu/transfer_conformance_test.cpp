// SPDX-License-Identifier: Apache-2.0
// The suite of every transfer backend, for the CUDA backend on a device. Needs GoogleTest.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

#include "device_support.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/testing/transfer_backend_suite.hpp"
#include "paged_model.hpp"

namespace hotset::transfer_conformance_test {
namespace {

using suites::gate;

template <cuda::copy_mode Mode, bool Pinned>
struct device_entry {
  using backend_type = cuda::cuda_backend<memory_expert_source>;
  static constexpr bool deferred = true;
  static constexpr bool copies_beside = Mode == cuda::copy_mode::side_stream;
  cuda::runtime& api = cuda::system_runtime();
  gpu::paged_model model{
      pool_layout::shared(suites::transfer_shape, suites::transfer_slots).value(),
      {4096, 33, 70'001},
      Pinned};
  std::unique_ptr<backend_type> owned = make();
  backend_type& backend = *owned;
  cuda::stream stream = cuda::stream::create(api, 0).value();
  cuda::stream side = cuda::stream::create(api, 0).value();
  cuda::pinned_buffer seen = cuda::pinned_buffer::allocate(api, model.expert_bytes()).value();
  expert_key looked_for{};

  static std::string why_not() {
    const auto reason = gpu::why_no_device();
    return reason.empty() ? "" : "no device: " + reason;
  }
  std::unique_ptr<backend_type> make() {
    model.source.remove(suites::absent_expert);
    typename backend_type::config setup{.mode = Mode, .chunk_bytes = 10'000, .chunks_ahead = 2};
    // In the engine's own stream, a submit waits for pieces behind the engine's work.
    if (!Pinned) setup.staging_pieces = copies_beside ? 3 : 32;
    setup.staging_piece_bytes = 20'000;
    return backend_type::create(api, model.source, model.bank, model.pages, setup).value();
  }
  void hold_until_open(gate& closed) {
    const auto wait = [](void* held) {
      while (!static_cast<gate*>(held)->is_open())
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    HOTSET_REQUIRE(cudaLaunchHostFunc(stream.handle(), wait, &closed));
  }
  void look(slot_id slot, expert_key key) {
    looked_for = key;
    std::memset(seen.bytes().data(), 0, seen.bytes().size());
    model.read(slot, seen.bytes().data(), stream.handle());
  }
  [[nodiscard]] bool saw_it() const { return model.is_expert(seen.bytes().data(), looked_for); }
  void drain() { HOTSET_REQUIRE(api.synchronize_stream(stream.handle())); }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    return model.holds(slot, key, side.handle());
  }
};
using cuda::copy_mode;
using entries = testing::Types<
    device_entry<copy_mode::side_stream, true>, device_entry<copy_mode::side_stream, false>,
    device_entry<copy_mode::same_stream, true>, device_entry<copy_mode::same_stream, false>>;

}  // namespace
}  // namespace hotset::transfer_conformance_test

HOTSET_TRANSFER_CONFORMANCE(device, hotset::transfer_conformance_test::entries);
