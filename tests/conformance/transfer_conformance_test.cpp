// SPDX-License-Identifier: Apache-2.0
// Transfer backends that need no device; tests/gpu runs the suite for a real device.

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "host_experts.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/testing/transfer_backend_suite.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/inline_backend.hpp"
#include "lab/replay/clock_backend.hpp"
#include "lab/replay/emulated_link_backend.hpp"

namespace hotset::transfer_conformance_test {
namespace {

using support::device_experts;
using support::fake_cuda_runtime;
using support::gate;
using support::host_experts;

/// Keeps no bytes, but records invalidations as a source with kept bytes does.
class keeping_source {
 public:
  explicit keeping_source(const memory_expert_source& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key,
                                                      precision_id p) const noexcept {
    return inner_.tensors(key, p);
  }
  void invalidate(expert_key key) const noexcept { forgotten.push_back(key); }
  void invalidate(layer_id layer) const noexcept { forgotten.push_back({layer, no_expert}); }
  mutable std::vector<expert_key> forgotten{};

 private:
  const memory_expert_source& inner_;
};
static_assert(forgets_experts<const keeping_source>);

pool_layout pools() {
  return pool_layout::shared(suites::transfer_shape, suites::transfer_slots).value();
}

template <class Backend, std::size_t Threads>
Backend make_host_backend(const keeping_source& source, const host_experts& experts) {
  if constexpr (requires(typename Backend::config c) { c.link; })
    return Backend(source, experts.bank,
                   {.link = {.bytes_per_second = 1'000'000'000, .latency = 50, .chunk_bytes = 64}});
  else if constexpr (Threads > 1)
    return Backend(source, experts.bank, {.threads = Threads});
  else
    return Backend(source, experts.bank);
}

template <class Backend, host_stream::mode Mode, std::size_t Threads = 1>
struct host_entry {
  using backend_type = Backend;
  static constexpr bool deferred = Mode == host_stream::mode::worker;
  static constexpr bool copies_beside = true;
  host_experts experts{pools()};
  keeping_source source{(experts.source.remove(suites::absent_expert), experts.source)};
  backend_type backend{make_host_backend<Backend, Threads>(source, experts)};
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
  [[nodiscard]] const std::vector<expert_key>& forgotten() const { return source.forgotten; }
};

/// Nothing is enqueued: the stream is the calling thread.
struct inline_entry {
  using backend_type = inline_backend<keeping_source>;
  static constexpr bool deferred = false;
  static constexpr bool copies_beside = true;
  host_experts experts{pools()};
  keeping_source source{(experts.source.remove(suites::absent_expert), experts.source)};
  backend_type backend{source, experts.bank};
  inline_stream stream{};
  bool saw = false;

  static std::string why_not() { return ""; }
  void look(slot_id slot, expert_key key) { saw = holds(slot, key); }
  [[nodiscard]] bool saw_it() const { return saw; }
  void hold_until_open(gate&) {}
  void drain() {}
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const { return experts.holds(slot, key); }
  [[nodiscard]] const std::vector<expert_key>& forgotten() const { return source.forgotten; }
};

/// The completed copies of the link determine the content of slots. Enqueued work takes one second and ignores the
/// gate.
template <bool Instant>
struct clock_entry final : private link_observer {
  using backend_type = clock_backend;
  static constexpr bool deferred = true;
  static constexpr bool copies_beside = true;
  static constexpr bool moves_bytes = false;
  static constexpr std::uint64_t expert_bytes = 386;
  struct landed {
    ticks when = 0;
    slot_id slot = no_slot;
    expert_key key{};
  };
  backend_type backend{make()};
  clock_stream stream{};
  std::vector<landed> copies{};
  std::uint64_t bytes = 0;  ///< of the pending copy
  bool saw = false;

  clock_entry() { backend.watch(this); }
  clock_entry(const clock_entry&) = delete;
  clock_entry& operator=(const clock_entry&) = delete;
  static backend_type make() {
    auto shape = suites::transfer_shape;
    shape.expert_bytes = {expert_bytes};
    if (Instant) return clock_backend({.shape = shape});
    const link_model link({.bytes_per_second = 1'000'000'000, .latency = 50, .chunk_bytes = 64});
    return clock_backend({.link = link, .shape = shape});
  }
  void on_copy(ticks, ticks end, const fill& what, urgency, std::uint64_t moved) noexcept override {
    bytes += moved;
    if (bytes % expert_bytes == 0) copies.push_back({end, what.slot, what.key});
  }
  void on_wait(ticks, ticks) noexcept override {}
  [[nodiscard]] bool held(slot_id slot, expert_key key, ticks when) const {
    expert_key last = no_key;
    for (const auto& c : copies)
      if (c.slot == slot && c.when <= when) last = c.key;
    return last == key;
  }

  static std::string why_not() { return ""; }
  void look(slot_id slot, expert_key key) { saw = held(slot, key, stream.now()); }
  [[nodiscard]] bool saw_it() const { return saw; }
  void hold_until_open(gate&) { stream.run(1'000'000'000); }
  void drain() {
    stream.synchronise();
    backend.advance(stream.host());
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    return held(slot, key, backend.now());
  }
};

/// The CUDA backend over a runtime that needs no device.
template <cuda::copy_mode Mode, bool Pinned>
struct cuda_entry {
  using backend_type = cuda::cuda_backend<keeping_source>;
  static constexpr bool deferred = true;
  static constexpr bool copies_beside = Mode == cuda::copy_mode::side_stream;
  fake_cuda_runtime api{fake_cuda_runtime::pace::random};
  device_experts experts{api, pools(), Pinned};
  keeping_source source{experts.host.source};
  std::unique_ptr<backend_type> owned = make();
  backend_type& backend = *owned;
  cuda::stream stream = cuda::stream::create(api, 0).value();
  bool saw = false;

  std::unique_ptr<backend_type> make() {
    experts.host.source.remove(suites::absent_expert);
    typename backend_type::config setup{.mode = Mode, .chunk_bytes = 64, .chunks_ahead = 2};
    // In the engine's own stream, a submit waits for pieces behind the engine's work.
    if (!Pinned) setup.staging_pieces = copies_beside ? 3 : 32;
    setup.staging_piece_bytes = 64;
    return backend_type::create(api, source, experts.bank, experts.pages, setup).value();
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
  [[nodiscard]] const std::vector<expert_key>& forgotten() const { return source.forgotten; }
};
using cuda::copy_mode;
using entries = testing::Types<
    inline_entry, host_entry<host_backend<keeping_source>, host_stream::mode::caller>,
    host_entry<host_backend<keeping_source>, host_stream::mode::worker>,
    host_entry<host_backend<keeping_source>, host_stream::mode::worker, 3>,
    host_entry<emulated_link_backend<keeping_source>, host_stream::mode::caller>,
    host_entry<emulated_link_backend<keeping_source>, host_stream::mode::worker>,
    clock_entry<false>, clock_entry<true>, cuda_entry<copy_mode::side_stream, true>,
    cuda_entry<copy_mode::side_stream, false>, cuda_entry<copy_mode::same_stream, true>,
    cuda_entry<copy_mode::same_stream, false>>;

}  // namespace
}  // namespace hotset::transfer_conformance_test

HOTSET_TRANSFER_CONFORMANCE(library, hotset::transfer_conformance_test::entries);
