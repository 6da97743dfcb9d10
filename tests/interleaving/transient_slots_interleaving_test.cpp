// SPDX-License-Identifier: Apache-2.0
// Random visits that stream experts through transient slots, over a backend with every permitted behaviour. A kernel
// reads the promised expert, precision and version, or a call reports that its step is lost.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "event_trail.hpp"
#include "hotset/transfer/memory/transient_slots.hpp"
#include "interleaving.hpp"
#include "kernel_ledger.hpp"
#include "random_source.hpp"
#include "scenario.hpp"
#include "unruly_backend.hpp"

namespace hotset::interleaving::transient_slots_test {
namespace {

using support::event_trail;
using support::random_source;
using support::unruly_backend;

/// Counts of the runs.
struct tally {
  std::uint64_t streamed = 0, found = 0, left = 0, losses = 0, versions = 0;
};

class transient_life {
 public:
  transient_life(std::uint64_t seed, event_trail& trail, tally& seen)
      : random_(seed),
        trail_(trail),
        seen_(seen),
        shape_(random_shape(random_, 2)),
        count_(1 + random_.below(4)),
        caller_(random_.one_in(6)),
        backend_(shape_, first + count_, random_, trail),
        kernels_(backend_, trail),
        slots_(backend_, slot_id{first}, count_) {
    backend_.habit = random_habits(random_, caller_, false);
  }

  void run(std::uint64_t operations) {
    for (std::uint64_t n = 0; n < operations && !trail_.failed(); ++n) operate();
    seen_.streamed += slots_.streamed();
    if (!trail_.failed()) end_step();
  }

 private:
  static constexpr std::int32_t first = 3;  ///< lower slots belong to a cache
  struct use {
    expert_key key{};
    precision_id precision{};
    slot_id slot = no_slot;
  };

  void operate() {
    const auto choice = random_.below(20);
    if (choice < 12) return visit();
    if (choice < 14) return settle();
    if (choice < 16) return end_step();
    if (choice < 17) return invalidate();
    if (choice < 18) backend_.habit = random_habits(random_, caller_, false);
    trail_.begin("time passes");
    for (auto n = random_.below(20); n != 0; --n) backend_.act();
  }
  void visit() {
    trail_.begin("a visit");
    slots_.begin_visit();
    std::vector<use> used;
    for (auto groups = 1 + random_.below(2); groups != 0; --groups) group(used);
  }
  void group(std::vector<use>& used) {
    std::vector<expected_read> reads;
    for (auto n = 1 + random_.below(4); n != 0; --n) {
      const use wanted{{layer_id{0}, expert_id{random_.id_below(shape_.experts)}},
                       static_cast<precision_id>(random_.below(2))};
      const auto slot = slots_.stream_in(wanted.key, wanted.precision, stream_);
      trail_.note("expert % at precision % in slot %", wanted.key.expert, wanted.precision, slot);
      if (slot == no_slot) {
        ++seen_.left;
        continue;
      }
      check_slot(slot, wanted, used);
      reads.push_back({slot, backend_.host_bytes(wanted.key, wanted.precision)});
    }
    backend_.launch(kernels_.resolved(std::move(reads)));
    slots_.record_readers(stream_);
  }
  void check_slot(slot_id slot, use wanted, std::vector<use>& used) {
    if (slot < first || index_of(slot) >= first + count_) trail_.fault("a slot of the cache");
    wanted.slot = slot;
    for (const auto& other : used) {
      const bool same = other.key == wanted.key && other.precision == wanted.precision;
      if (same != (other.slot == slot)) trail_.fault("two experts of a visit share a slot");
      if (same) {
        ++seen_.found;
        return;
      }
    }
    used.push_back(wanted);
  }

  bool lost(status got) {
    if (got == status::ok) return false;
    if (got != status::fill_failed || backend_.reasons == 0) trail_.fault("told of no failure");
    kernels_.lost();
    ++seen_.losses;
    return true;
  }
  void settle() {
    trail_.begin("settle");
    (void)lost(slots_.settle());
  }
  void end_step() {
    trail_.begin("the stream ends, settle");
    backend_.run_stream();
    if (!lost(slots_.settle())) kernels_.step_ends();
  }
  void invalidate() {
    trail_.begin("drain, and host bytes change");
    (void)lost(slots_.drain());
    if (backend_.copies_under_way() != 0) trail_.fault("host bytes change under a copy");
    for (auto& v : backend_.version) v += random_.one_in(2) ? 1U : 0U;
    ++seen_.versions;
  }

  random_source random_;
  event_trail& trail_;
  tally& seen_;
  geometry shape_;
  std::size_t count_;
  bool caller_;  ///< the stream is the calling thread
  unruly_backend backend_;
  kernel_ledger kernels_;
  unruly_backend::stream_type stream_;
  transient_slots<unruly_backend> slots_;
};

TEST(transient_slots_interleaving, every_kernel_reads_its_experts_or_the_loss_is_reported) {
  tally seen;
  const bool enough =
      run_lives([&](std::uint64_t seed, std::uint64_t operations, event_trail& trail) {
        transient_life(seed, trail, seen).run(operations);
      });
  if (!enough) return;
  EXPECT_GT(seen.streamed, 1000U);
  EXPECT_GT(seen.found, 100U);
  EXPECT_GT(seen.left, 100U);
  EXPECT_GT(seen.losses, 20U);
  EXPECT_GT(seen.versions, 100U);
}

}  // namespace
}  // namespace hotset::interleaving::transient_slots_test
