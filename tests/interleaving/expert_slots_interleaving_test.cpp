// SPDX-License-Identifier: Apache-2.0
// Random resizes of a serving cache: its copies fail, its bank refuses memory, copies and waits, and other users take
// from the budget. A row must always name slots that have memory and the bytes of their expert, and a refused resize
// must keep the earlier quotas.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "event_trail.hpp"
#include "hotset/cache/expert_slots.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "interleaving.hpp"
#include "kernel_ledger.hpp"
#include "random_source.hpp"
#include "scenario.hpp"
#include "unruly_backend.hpp"

namespace hotset::interleaving::expert_slots_test {
namespace {

using support::event_trail;
using support::random_source;
using support::unruly_backend;

/// Memory of an unruly backend's slots, from a budget. Copies between slots run in the stream.
class unruly_bank {
 public:
  /// Each happens once in this many times; 0: never.
  struct habits {
    std::uint64_t refuse_memory = 0;
    std::uint64_t refuse_copy = 0;
    std::uint64_t lose_copy = 0;  ///< enqueued, but wrong; `finish` reports it
    std::uint64_t fail_finish = 0;
  };
  habits habit{};
  bool disturbed = false;  ///< a refusal since the test's last check

  unruly_bank(const pool_layout& layout, unruly_backend& backend, memory_budget& budget,
              random_source& random, event_trail& trail)
      : layout_(layout),
        backend_(backend),
        budget_(budget),
        random_(random),
        trail_(trail),
        byte_(1),
        classes_(layout.slots()) {
    for (const auto s : each<slot_id>(layout.slots())) {
      const auto c = index_of(layout.at(layout.pool_of_slot(s)).size_class);
      classes_[index_of(s)] = c;
      if (c >= of_class_.size()) of_class_.resize(c + 1);
      of_class_[c].push_back(s);
    }
    held_.resize(of_class_.size());
    for (const auto& pool : each<pool_id>(layout.pools())) {
      const auto c = index_of(layout.at(pool).size_class);
      bytes_.resize(std::max(bytes_.size(), c + 1));
      bytes_[c] = layout.shape().bytes_of(layout.at(pool).layers.front(), {});
    }
  }

  // --- called by expert_slots
  [[nodiscard]] std::size_t slots() const noexcept { return layout_.slots(); }
  [[nodiscard]] std::size_t tensors(slot_id) const noexcept { return 1; }
  [[nodiscard]] std::span<std::byte> bytes(slot_id, std::size_t) const noexcept { return byte_; }
  [[nodiscard]] std::uint64_t slot_bytes(std::size_t size_class) const noexcept {
    return bytes_[size_class];
  }
  [[nodiscard]] std::size_t held(std::size_t size_class) const noexcept {
    return held_[size_class];
  }
  status hold(std::size_t size_class, std::size_t wanted) noexcept {
    auto& now = held_[size_class];
    if (wanted > now) {
      if (refuses(habit.refuse_memory) || !budget_.take((wanted - now) * bytes_[size_class])) {
        trail_.note("memory for % slots of class % is refused", wanted - now, size_class);
        return status::exceeds_memory;
      }
    } else {
      budget_.give_back((now - wanted) * bytes_[size_class]);
    }
    for (auto n = wanted; n < now; ++n) backend_.bytes(of_class_[size_class][n]) = {};
    now = wanted;
    return status::ok;
  }
  status copy_slot(slot_id from, slot_id to, unruly_backend::stream_type&) noexcept {
    if (!has_memory(from) || !has_memory(to)) trail_.fault("a copy of slots without memory");
    if (classes_[index_of(from)] != classes_[index_of(to)]) trail_.fault("slots of two classes");
    if (refuses(habit.refuse_copy)) return status::fill_failed;
    const bool lost = refuses(habit.lose_copy);
    lost_copy_ = lost_copy_ || lost;
    moves_.push_back({from, to, lost});
    backend_.launch(first_move + moves_.size() - 1);
    return status::ok;
  }
  status finish(unruly_backend::stream_type&) noexcept {
    backend_.run_stream();
    const bool lost = std::exchange(lost_copy_, false);
    return lost || refuses(habit.fail_finish) ? status::fill_failed : status::ok;
  }

  // --- called by the test
  [[nodiscard]] bool has_memory(slot_id slot) const {
    const auto& of = of_class_[classes_[index_of(slot)]];
    return std::ranges::find(of, slot) - of.begin() <
           static_cast<std::ptrdiff_t>(held_[classes_[index_of(slot)]]);
  }
  [[nodiscard]] std::uint64_t bytes_held() const {
    std::uint64_t out = 0;
    for (std::size_t c = 0; c < held_.size(); ++c) out += held_[c] * bytes_[c];
    return out;
  }
  /// A kernel of the stream that is a copy of `copy_slot`.
  [[nodiscard]] static bool is_move(std::size_t kernel) { return kernel >= first_move; }
  void run_move(std::size_t kernel) {
    const auto& m = moves_[kernel - first_move];
    backend_.bytes(m.to) = m.lost ? support::slot_bytes{} : backend_.bytes(m.from);
  }

 private:
  static constexpr std::size_t first_move = std::size_t{1} << 40U;
  struct move {
    slot_id from = no_slot;
    slot_id to = no_slot;
    bool lost = false;
  };
  bool refuses(std::uint64_t one_in) noexcept {
    const bool now = one_in != 0 && random_.one_in(one_in);
    disturbed = disturbed || now;
    return now;
  }

  const pool_layout& layout_;
  unruly_backend& backend_;
  memory_budget& budget_;
  random_source& random_;
  event_trail& trail_;
  mutable std::vector<std::byte> byte_;
  std::vector<std::size_t> classes_;            ///< by slot
  std::vector<std::vector<slot_id>> of_class_;  ///< ascending
  std::vector<std::size_t> held_;               ///< by class
  std::vector<std::uint64_t> bytes_;            ///< by class, of a slot
  std::vector<move> moves_;
  bool lost_copy_ = false;
};

/// Counts of the runs.
struct tally {
  std::uint64_t served = 0, losses = 0, resized = 0, undone = 0, busy = 0, refused = 0;
  std::uint64_t spoilt = 0;  ///< resizes after which nothing was resident
};

template <class Eviction>
class elastic_life {
  using cache_type = slot_cache<pager<Eviction>, unruly_backend>;
  using pool_type = expert_slots<cache_type, unruly_bank>;

 public:
  elastic_life(std::uint64_t seed, event_trail& trail, tally& seen)
      : random_(seed),
        trail_(trail),
        seen_(seen),
        layout_(pool_layout::per_layer(random_elastic_shape(), most_experts).value()),
        budget_(random_.below(3) * 400 + 900),
        backend_(shape(), layout_.slots(), random_, trail),
        kernels_(backend_, trail),
        bank_(layout_, backend_, budget_, random_, trail),
        cache_(pager<Eviction>({.layout = layout_}), backend_),
        pool_(cache_, bank_, stream_),
        visit_(cache_.make_visit()),
        caller_(random_.one_in(6)) {
    backend_.on_kernel = [this, read = backend_.on_kernel](std::size_t kernel) {
      unruly_bank::is_move(kernel) ? bank_.run_move(kernel) : read(kernel);
    };
  }

  void run(std::uint64_t operations) {
    trail_.begin("open");
    if (pool_.open(static_cast<std::uint64_t>(shape().top_k)) != status::ok)
      return trail_.fault("no memory for the least that a token needs");
    change_habits();
    for (std::uint64_t n = 0; n < operations && !trail_.failed(); ++n) {
      operate();
      check_memory();
    }
  }

 private:
  static constexpr std::int32_t most_experts = 6;

  geometry random_elastic_shape() {
    geometry out{.layers = 1 + random_.id_below(3),
                 .experts = most_experts,
                 .top_k = 1 + random_.id_below(2),
                 .max_tokens_per_visit = 1 + random_.id_below(4),
                 .expert_bytes = {},
                 .lower_precisions = {}};
    for (std::int32_t l = 0; l < out.layers; ++l)
      out.expert_bytes.push_back(random_.one_in(2) ? 100 : 60);
    return out;
  }
  [[nodiscard]] const geometry& shape() const { return layout_.shape(); }
  [[nodiscard]] layer_id random_layer() { return layer_id{random_.id_below(shape().layers)}; }

  void operate() {
    const auto choice = random_.below(40);
    if (choice < 18) return serve();
    if (choice < 22) return prefetch();
    if (choice < 25) return end_step();
    if (choice < 27) return invalidate();
    if (choice < 36) return resize();
    if (choice < 37) return change_habits();
    if (choice < 39) return change_budget();
    trail_.begin("time passes");
    for (auto n = random_.below(20); n != 0; --n) backend_.act();
  }

  bool lost(status got) {
    if (got != status::fill_failed) return false;
    if (backend_.reasons == 0) trail_.fault("fill_failed, though nothing failed");
    kernels_.lost();
    ++seen_.losses;
    return true;
  }
  void expect(bool good, const char* call, status got) {
    if (!good) trail_.fault(std::string(call) + " answered: " + std::string(describe(got)));
  }

  // --- serving
  [[nodiscard]] routing_view random_view() {
    ids_.resize(static_cast<std::size_t>(shape().top_k) *
                (1 + random_.below(static_cast<std::uint64_t>(shape().max_tokens_per_visit))));
    for (auto& id : ids_) id = expert_id{random_.id_below(shape().experts)};
    const routing_view view{.layer = random_layer(), .step = step_, .experts = ids_};
    return view;
  }
  void serve() {
    const auto view = random_view();
    trail_.begin("serve layer %, % ids", view.layer, ids_.size());
    const auto got = cache_.serve(
        view, stream_, visit_, [&](const visit_group& group) { launch(view.layer, group.plan()); });
    expect(got == status::ok || lost(got), "serve", got);
    seen_.served += got == status::ok ? 1U : 0U;
  }
  void launch(layer_id layer, const visit_plan& plan) {
    std::vector<expected_read> reads;
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const auto slot = plan.slots()[i];
      if (slot == no_slot) return trail_.fault("an expert was left on the host");
      reads.push_back({slot, backend_.host_bytes({layer, plan.experts()[i]}, {})});
    }
    backend_.launch(kernels_.resolved(std::move(reads)));
  }
  void prefetch() {
    trail_.begin("prefetch");
    const visit_context context{
        .layer = random_layer(), .pool = layout_.pool_of_layer(context.layer), .step = step_};
    std::vector<prefetch_request> requests(random_.below(4));
    for (auto& r : requests)
      r = {{random_layer(), expert_id{random_.id_below(shape().experts)}},
           step_ + random_.below(2),
           0.5F};
    const auto got = cache_.prefetch(context, requests, stream_);
    expect(got == status::ok || lost(got), "prefetch", got);
  }
  void end_step() {
    trail_.begin("drain, the stream ends");
    const auto got = cache_.drain();
    expect(got == status::ok || lost(got), "drain", got);
    backend_.run_stream();
    if (got == status::ok) kernels_.step_ends();
    backend_.forget_failures();
    check_truth();
    ++step_;
  }
  void invalidate() {
    const auto layer = random_layer();
    trail_.begin("invalidate layer %", layer);
    auto got = cache_.invalidate(layer);
    expect(got == status::ok || lost(got), "invalidate", got);
    for (const auto e : each<expert_id>(shape().experts))
      ++backend_.version[shape().index({layer, e})];
  }

  // --- memory
  void change_habits() {
    trail_.begin("the backend and the bank change their habits");
    backend_.habit = random_habits(random_, caller_, false);
    const auto seldom = [&] { return random_.one_in(2) ? std::uint64_t{0} : 2 + random_.below(8); };
    bank_.habit = {seldom(), seldom(), seldom(), seldom()};
  }
  void change_budget() {
    budget_.set_limit(600 + random_.below(1400));
    trail_.begin("the budget is % bytes", budget_.limit());
  }
  void resize() {
    std::vector<std::int32_t> quotas(shape().layer_count());
    std::vector<std::int32_t> before;
    for (const auto l : each<layer_id>(shape().layers)) before.push_back(cache_.pager().quota(l));
    for (auto& q : quotas) q = random_.id_below(most_experts + 2);
    const auto units = random_.below(most_experts + 2);
    const auto how = random_.below(4);
    const bool keeps_open = random_.one_in(12) && open();
    trail_.begin("resize by way %, to % or % % %", how, units, quotas[0], quotas.back(),
                 keeps_open);
    bank_.disturbed = false;
    const auto held_before = bank_.bytes_held();
    const auto got = how == 0   ? pool_.set_quotas(quotas)
                     : how == 1 ? pool_.shrink(units)
                     : how == 2 ? pool_.grow(units)
                                : pool_.undo();
    trail_.note("= %", static_cast<int>(got));
    if (how == 1 || how == 2) std::ranges::fill(quotas, static_cast<std::int32_t>(units));
    if (keeps_open) {
      expect(got == status::busy || got == status::invalid_argument || lost(got), "resize", got);
      seen_.busy += got == status::busy ? 1U : 0U;
      cache_.release(visit_, stream_);
    }
    answered(got, how == 3 ? nullptr : &quotas, before, held_before);
  }
  /// A visit that stays open.
  bool open() {
    const auto got = cache_.resolve(random_view(), stream_, visit_);
    if (got != status::ok) {
      expect(lost(got), "resolve", got);
      return false;
    }
    launch(visit_.plan().context().layer, visit_.plan());
    if (!visit_.more()) return true;
    cache_.abandon(visit_, stream_);
    return false;
  }
  void answered(status got, const std::vector<std::int32_t>* wanted,
                const std::vector<std::int32_t>& before, std::uint64_t held_before) {
    std::vector<std::int32_t> now;
    for (const auto l : each<layer_id>(shape().layers)) now.push_back(cache_.pager().quota(l));
    if (got == status::ok) {
      ++(wanted == nullptr ? seen_.undone : seen_.resized);
      if (wanted != nullptr && now != *wanted)
        trail_.fault("the quotas are not what was asked for");
    } else if (now != before) {
      trail_.fault("a resize that was refused changed a quota");
    }
    seen_.refused += got == status::exceeds_memory ? 1U : 0U;
    // A bank that fails again during the undo may keep the larger memory until a resize succeeds.
    const auto held = bank_.bytes_held();
    if (held != bytes_of(now) && (got == status::ok || (!bank_.disturbed && held > held_before)))
      trail_.fault("the bank does not hold the slots of the quotas");
    if (got == status::fill_failed && !bank_.disturbed) (void)lost(got);
    if (got == status::ok || got == status::fill_failed || got == status::exceeds_memory)
      if (backend_.copies_under_way() == 0) check_truth();
    seen_.spoilt += got == status::fill_failed && bank_.disturbed && is_empty() ? 1U : 0U;
  }
  [[nodiscard]] std::uint64_t bytes_of(const std::vector<std::int32_t>& quotas) const {
    std::uint64_t out = 0;
    for (const auto l : each<layer_id>(shape().layers))
      out += static_cast<std::uint64_t>(quotas[index_of(l)]) * shape().bytes_of(l, {});
    return out;
  }

  // --- required properties
  [[nodiscard]] bool is_empty() const {
    for (const auto l : each<layer_id>(shape().layers))
      if (!std::ranges::all_of(cache_.row(l), [](slot_id s) { return s == no_slot; })) return false;
    return true;
  }
  void check_memory() {
    if (budget_.in_use() != bank_.bytes_held()) trail_.fault("the budget counts other bytes");
    for (const auto s : each<slot_id>(layout_.slots())) {
      if (bank_.has_memory(s)) continue;
      if (cache_.pager().slot(s).state != slot_state::free)
        trail_.fault("slot " + to_string(s) + " is in use and has no memory");
      if (backend_.bytes(s).key != no_key)
        trail_.fault("something was copied to slot " + to_string(s) + ", which has no memory");
    }
  }
  /// No copy is pending: a row's slots hold the host's bytes.
  void check_truth() {
    for (const auto l : each<layer_id>(shape().layers))
      for (const auto e : each<expert_id>(shape().experts)) {
        const auto slot = cache_.row(l)[index_of(e)];
        if (slot == no_slot || backend_.is_disputed(slot)) continue;
        if (backend_.bytes(slot) != backend_.host_bytes({l, e}, {}))
          trail_.fault("slot " + to_string(slot) + " does not hold expert " + to_string(l) + "." +
                       to_string(e));
      }
  }

  random_source random_;
  event_trail& trail_;
  tally& seen_;
  pool_layout layout_;
  memory_budget budget_;
  unruly_backend backend_;
  kernel_ledger kernels_;
  unruly_bank bank_;
  unruly_backend::stream_type stream_;
  cache_type cache_;
  pool_type pool_;
  cache_visit visit_;
  bool caller_;  ///< the stream is the calling thread
  std::vector<expert_id> ids_;
  step_id step_ = 0;
};

template <class Eviction>
void run_elastic() {
  tally seen;
  const bool enough =
      run_lives([&](std::uint64_t seed, std::uint64_t operations, event_trail& trail) {
        elastic_life<Eviction>(seed, trail, seen).run(operations);
      });
  if (!enough) return;
  EXPECT_GT(seen.served, 1000U);
  EXPECT_GT(seen.losses, 20U);
  EXPECT_GT(seen.resized, 100U);
  EXPECT_GT(seen.undone, 20U);
  EXPECT_GT(seen.busy, 10U);
  EXPECT_GT(seen.refused, 100U);
  EXPECT_GT(seen.spoilt, 20U);
}
TEST(expert_slots_interleaving, lru) { run_elastic<lru>(); }
TEST(expert_slots_interleaving, least_stale) { run_elastic<least_stale>(); }

}  // namespace
}  // namespace hotset::interleaving::expert_slots_test
