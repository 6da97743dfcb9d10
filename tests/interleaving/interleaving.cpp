// SPDX-License-Identifier: Apache-2.0
#include "interleaving.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/paging/residency/warm_start.hpp"
#include "kernel_ledger.hpp"
#include "lane.hpp"
#include "random_source.hpp"
#include "scenario.hpp"

namespace hotset::interleaving {
namespace {

using support::event_trail;
using support::random_source;
using support::tested_cache;
using support::unruly_backend;

/// Counts of the runs. A case with count 0 was not tested.
struct tally {
  std::uint64_t groups = 0, losses = 0, splits = 0, refused_next = 0, together = 0;
  std::uint64_t unfinished = 0, abandoned = 0, unfit = 0;
  std::uint64_t prefetch_hits = 0, late = 0, cancelled = 0, wasted = 0, failed = 0, host = 0;
  std::uint64_t versions = 0, quotas = 0, warmed = 0, compacted = 0, restarts = 0, upgrades = 0,
                low = 0;
  void add(const pager_stats& s) {
    splits += s.split_visits;
    prefetch_hits += s.prefetch_hits;
    late += s.late_prefetches;
    cancelled += s.cancelled_prefetches;
    wasted += s.wasted_prefetches;
    failed += s.failed_fills;
    host += s.bypasses;
    upgrades += s.precision_misses;
  }
};

/// One cache from its construction to its end.
class life {
 public:
  life(const subject& of, std::uint64_t seed, event_trail& trail, tally& seen)
      : of_(of),
        random_(seed),
        trail_(trail),
        seen_(seen),
        setup_(random_setup(random_, of.precisions)),
        backend_(shape(), setup_.layout.slots(), random_, trail),
        kernels_(backend_, trail),
        caller_(random_.one_in(6)),
        idle_(random_.one_in(4)),
        waits_(idle_ ? 32 : 1 + 7 * random_.below(2)),
        step_(random_.one_in(8) ? last_step - random_.below(20) : random_.below(2)),
        versions_(static_cast<std::size_t>(shape().layers), 0),
        rows_(static_cast<std::size_t>(shape().layers)) {
    backend_.habit = random_habits(random_, caller_, idle_);
    begin();
  }

  void run(std::uint64_t operations) {
    for (std::uint64_t n = 0; n < operations && !trail_.failed(); ++n) {
      operate();
      check_a_row();
      check_open_visits();
    }
    if (trail_.failed()) return;
    seen_.add(cache_->stats());
    lanes_.clear();
    cache_.reset();
    if (backend_.copies_under_way() != 0) trail_.fault("copies outlive their cache");
  }

 private:
  [[nodiscard]] const geometry& shape() const { return setup_.layout.shape(); }

  void begin() {
    cache_ = of_.make(setup_, backend_, trail_);
    for (int n = 0; n < 3; ++n) lanes_.emplace_back(cache_->make_visit());
    owner_ = nullptr;
    expected_ = {};
    for (auto& row : rows_) row.clear();
  }

  void operate() {
    auto& l = lanes_[random_.below(lanes_.size())];
    const auto choice = random_.below(100);
    if (choice < 25) return l.visit.is_open() ? release(l) : resolve(l);
    if (choice < 37) return resolve(l);
    if (choice < 53) return resolve_next(owner_ != nullptr && !random_.one_in(6) ? *owner_ : l);
    if (choice < 56) return launch(l);
    if (choice < 58) return random_.one_in(2) ? abandon(l) : drop(l);
    if (choice < 64) return release(l);
    if (choice < 76) return prefetch();
    if (choice < 78) return settle();
    if (choice < 79) return random_.one_in(2) ? misuse(l) : move_visit(l);
    if (choice < 80) return change_habits();
    const bool piled_up = backend_.copies_under_way() > 2 * setup_.layout.slots();
    if (piled_up && random_.one_in(2)) return warm();
    if (!random_.one_in(waits_)) return random_.one_in(2) ? prefetch() : resolve(l);
    if (choice < 84) return end_step();
    if (choice < 87) return drain();
    if (choice < 90) return invalidate();
    if (choice < 92) return set_quota();
    if (choice < 94) return warm();
    if (choice < 98) return let_happen();
    random_.one_in(4) ? restart() : compact();
  }

  static constexpr auto last_step = std::numeric_limits<step_id>::max();
  [[nodiscard]] step_id later(std::uint64_t steps) const {
    return step_ + std::min(steps, last_step - step_);
  }

  // --- answers --------------------------------------------------------------------------------------------

  /// True for fill_failed, which is valid only if a copy has failed, and means that the step is lost.
  bool lost(status got) {
    if (got != status::fill_failed) return false;
    if (backend_.reasons == 0)
      trail_.fault("fill_failed, though nothing failed that anybody waited for");
    else
      --backend_.reasons;
    kernels_.lost();
    ++seen_.losses;
    return true;
  }
  void expect(bool good, const char* call, status got) {
    trail_.note("= %", static_cast<int>(got));
    if (!good) trail_.fault(std::string(call) + " answered: " + std::string(describe(got)));
  }
  [[nodiscard]] bool any_open() const {
    return std::ranges::any_of(lanes_, [](const lane& l) { return l.visit.is_open(); });
  }

  // --- visits ---------------------------------------------------------------------------------------------

  void choose_visit(lane& l) {
    const auto [ids, weights] = l.next_arrays();
    const auto tokens = 1 + random_.below(static_cast<std::uint64_t>(shape().max_tokens_per_visit));
    ids->resize(tokens * static_cast<std::uint64_t>(shape().top_k));
    // Few experts, so that lost ones are soon requested again.
    const auto some = idle_ || random_.one_in(2) ? shape().experts : std::min(shape().experts, 4);
    for (auto& id : *ids) id = random_.one_in(20) ? no_expert : expert_id{random_.id_below(some)};
    weights->resize(random_.one_in(4) ? 0 : ids->size());
    for (auto& w : *weights) w = static_cast<float>(random_.below(100)) / 100.0F;
    l.view.layer = random_layer();
    l.view.step = later(random_.one_in(8) ? 1 : 0);
    l.view.kind = static_cast<request_class>(random_.below(3));
    l.view.ordinal = ++ordinal_;
    l.view.experts = *ids;
    l.view.weights = *weights;
  }
  /// Unread slots of the layer's pools. Pending speculative copies are no reason to refuse a visit.
  [[nodiscard]] std::size_t room_of(layer_id layer) const {
    const auto& layout = cache_->pages().layout();
    const auto serves = [&](pool_id p) {
      for (std::size_t q = 0; q < layout.precisions(); ++q)
        if (layout.pool_of(layer, static_cast<precision_id>(q)) == p) return true;
      return false;
    };
    auto room = cache_->pages().quota(layer);
    for (std::size_t q = 1; q < layout.precisions(); ++q)
      room += layout.at(layout.pool_of(layer, static_cast<precision_id>(q))).slots;
    for (std::size_t s = 0; s < layout.slots(); ++s) {
      const auto slot = static_cast<slot_id>(s);
      const auto& entry = cache_->pages().slot(slot);
      if (entry.pins == 0) continue;
      room -= serves(layout.pool_of(entry.key.layer, cache_->pages().precision_of(slot))) ? 1 : 0;
    }
    return static_cast<std::size_t>(std::max(room, 0));
  }
  /// Whether this status may refuse the visit.
  [[nodiscard]] bool may_be_refused(status got, const routing_view& view, std::size_t room) const {
    if (setup_.split == visit_split::leave_rest) return false;
    if (setup_.split != visit_split::refuse)
      return got == status::no_victim && room < shape().ranks();
    std::vector<expert_id> distinct;
    for (const auto id : view.experts)
      if (id >= 0 && std::ranges::find(distinct, id) == distinct.end()) distinct.push_back(id);
    return got == status::does_not_fit && room < distinct.size();
  }

  void resolve(lane& l) {
    if (l.visit.is_open()) {
      trail_.begin("resolve of an open visit");
      return expect(cache_->resolve(l.view, l.visit) == status::busy, "resolve", status::ok);
    }
    if (owner_ != nullptr) {
      trail_.begin("resolve by lane %, though lane % has groups left", number(l), number(*owner_));
      const auto got = cache_->resolve(owner_->view, l.visit);
      seen_.unfinished += got == status::visit_unfinished ? 1U : 0U;
      return expect(got == status::visit_unfinished || lost(got), "resolve", got);
    }
    choose_visit(l);
    trail_.begin("resolve by lane %: layer %, step %, % ids", number(l), l.view.layer, l.view.step,
                 l.view.experts.size());
    const auto room = room_of(l.view.layer);
    const auto got = cache_->resolve(l.view, l.visit);
    seen_.unfit += got == status::does_not_fit ? 1U : 0U;
    expect(got == status::ok || lost(got) || may_be_refused(got, l.view, room), "resolve", got);
    if (got == status::ok) return opened(l, true);
    if (l.visit.is_open()) trail_.fault("a visit that was refused is open");
    l.usable = false;
  }
  void resolve_next(lane& l) {
    trail_.begin("resolve_next by lane %", number(l));
    if (l.visit.is_open())
      return expect(cache_->resolve_next(l.visit) == status::busy, "resolve_next", status::ok);
    if (!l.usable) return;
    const auto got = cache_->resolve_next(l.visit);
    if (owner_ == &l) {
      expect(got == status::ok || lost(got), "resolve_next", got);
      if (got == status::ok) opened(l, false);
      return;
    }
    seen_.refused_next += got == status::no_plan ? 1U : 0U;
    expect(lost(got) || got == status::no_plan, "resolve_next", got);
  }
  void opened(lane& l, bool first) {
    ++seen_.groups;
    seen_.together +=
        std::ranges::count_if(lanes_, [](const lane& one) { return one.visit.is_open(); }) > 1 ? 1U
                                                                                               : 0U;
    l.usable = true;
    if (backend_.fenced_too_late == trail_.operations())
      trail_.fault("a visit is open whose copies had failed by their fence");
    const bool may_stay_on_host = of_.may_stay_on_host || setup_.split == visit_split::leave_rest;
    auto reads = l.opened(first, *cache_, backend_, may_stay_on_host, trail_);
    count(l.visit.plan());
    owner_ = l.visit.more() ? &l : nullptr;
    for (const auto& r : reads)
      trail_.note("expert %.% in slot %, version %", r.bytes.key.layer, r.bytes.key.expert, r.slot,
                  r.bytes.version);
    l.kernel = kernels_.resolved(std::move(reads));
    trail_.note("kernel % is to read it", l.kernel);
    l.launched = false;
    if (random_.one_in(4)) launch(l);
  }
  void launch(lane& l) {
    if (!l.visit.is_open() || l.launched) return;
    trail_.note("launch of kernel %", l.kernel);
    l.launched = true;
    backend_.launch(l.kernel);
  }
  /// An engine that knows that the step is lost may skip the launch.
  void launch_late(lane& l) {
    if (!l.launched && l.visit.is_open() && !(kernels_.is_lost(l.kernel) && random_.one_in(2)))
      launch(l);
  }
  void release(lane& l) {
    trail_.begin("release by lane %", number(l));
    launch_late(l);
    cache_->release(l.visit);
    if (l.visit.is_open()) trail_.fault("a released visit is open");
  }
  void abandon(lane& l) {
    trail_.begin("lane % abandons its visit", number(l));
    launch_late(l);
    cache_->abandon(l.visit);
    ended(l);
  }
  /// An engine forgets a release, or groups.
  void drop(lane& l) {
    trail_.begin("the visit of lane % goes away", number(l));
    launch_late(l);
    l.visit = cache_->make_visit();
    l.usable = false;
    ended(l);
  }
  void ended(lane& l) {
    if (l.visit.is_open()) trail_.fault("an abandoned visit is open");
    seen_.abandoned += owner_ == &l ? 1U : 0U;
    if (owner_ == &l) owner_ = nullptr;
  }
  [[nodiscard]] std::ptrdiff_t number(const lane& l) const { return &l - lanes_.data(); }

  // --- ends of steps --------------------------------------------------------------------------------------

  void end_step() {
    trail_.begin("the stream ends, settle");
    backend_.run_stream();
    const auto got = cache_->settle();
    expect(got == status::ok || lost(got), "settle", got);
    if (got == status::ok) kernels_.step_ends();
    backend_.forget_failures();
    if (random_.one_in(2)) step_ = later(1);
  }
  void drain() {
    trail_.begin("drain");
    const auto got = cache_->drain();
    expect(got == status::ok || lost(got), "drain", got);
    if (backend_.copies_under_way() != 0) trail_.fault("copies are under way after drain");
    check_truth();
    backend_.run_stream();
    if (got == status::ok) kernels_.step_ends();
    backend_.forget_failures();
    if (random_.one_in(4)) check_books();
    if (random_.one_in(2)) step_ = later(1);
  }
  void settle() {
    trail_.begin("settle");
    const auto got = cache_->settle();
    expect(got == status::ok || lost(got), "settle", got);
  }
  void let_happen() {
    trail_.begin("time passes");
    for (auto n = random_.below(30); n != 0; --n) backend_.act();
  }
  void change_habits() {
    trail_.begin("the backend changes its habits");
    backend_.habit = random_habits(random_, caller_, idle_);
  }

  // --- speculation ----------------------------------------------------------------------------------------

  /// Prefetches on an idle backend accumulate, while other layers keep free slots.
  [[nodiscard]] layer_id random_layer() {
    return idle_ && !random_.one_in(24) ? 0_layer : layer_id{random_.id_below(shape().layers)};
  }
  [[nodiscard]] expert_key random_key() {
    return {layer_id{random_.id_below(shape().layers)},
            expert_id{random_.id_below(shape().experts)}};
  }
  void prefetch() {
    trail_.begin("prefetch");
    const visit_context context{.layer = layer_id{random_.id_below(shape().layers)},
                                .pool = cache_->pages().layout().pool_of_layer(context.layer),
                                .step = step_,
                                .kind = static_cast<request_class>(random_.below(3))};
    std::vector<prefetch_request> requests(random_.below(6));
    for (auto& r : requests) {
      r = {{random_layer(), expert_id{random_.id_below(shape().experts)}},
           later(random_.below(3)),
           static_cast<float>(random_.below(4)) / 4.0F};
      if (random_.one_in(40)) r.key.expert = expert_id{shape().experts};
      if (random_.one_in(40)) r.for_step = last_step;
      trail_.note("expert %.% for step %", r.key.layer, r.key.expert, r.for_step);
    }
    std::vector<float> scores(2 * static_cast<std::size_t>(shape().experts));
    for (auto& x : scores) x = static_cast<float>(random_.below(4)) / 4.0F;
    const auto got = cache_->prefetch(context, requests, {.probabilities = scores, .depth = 2});
    expect(got == status::ok || lost(got), "prefetch", got);
  }
  void warm() {
    trail_.begin("warm");
    std::vector<expert_key> keys(random_.below(8));
    for (auto& key : keys) key = random_key();
    const auto before = cache_->pages().residents();
    const auto failed = cache_->stats().failed_fills;
    const auto got = cache_->warm(keys);
    if (cache_->stats().failed_fills == failed)
      for (const auto key : before)
        if (cache_->pages().locate(key) == no_slot) trail_.fault("a warm start evicted an expert");
    const bool may_fill = keys.empty() || owner_ == nullptr;
    expect((got == status::ok && may_fill) || lost(got) ||
               (got == status::visit_unfinished && owner_ != nullptr),
           "warm", got);
    seen_.warmed += got == status::ok ? 1U : 0U;
  }

  // --- changes --------------------------------------------------------------------------------------------

  [[nodiscard]] bool is_pinned(expert_key key) const {
    const auto slot = cache_->pages().locate(key);
    return slot != no_slot && cache_->pages().slot(slot).pins != 0;
  }
  /// Host bytes change: from now on only kernels of earlier visits may read the old bytes.
  void invalidate() {
    const auto key = random_key();
    const bool layer = random_.one_in(4);
    trail_.begin(layer ? "invalidate layer %" : "invalidate expert %.%", key.layer, key.expert);
    const auto call = [&] {
      return layer ? cache_->invalidate(key.layer) : cache_->invalidate(key);
    };
    auto got = call();
    if (got == status::fill_failed) {
      expect(lost(got), "invalidate", got);
      got = call();
    }
    std::vector<expert_key> keys;
    for (const auto e : each<expert_id>(shape().experts))
      if (layer || e == key.expert) keys.push_back({key.layer, e});
    const bool read = std::ranges::any_of(keys, [this](expert_key k) { return is_pinned(k); });
    expect(got == (read ? status::busy : status::ok), "invalidate", got);
    if (backend_.copies_under_way() != 0) trail_.fault("host bytes change under a copy");
    if (got != status::ok) return;
    ++seen_.versions;
    for (const auto k : keys) {
      if (cache_->pages().locate(k) != no_slot) trail_.fault("an invalidated expert has a slot");
      ++backend_.version[shape().index(k)];
    }
    for (const auto& r : cache_->queue().requests())
      if (std::ranges::find(keys, r.key) != keys.end())
        trail_.fault("a request for host bytes that went away waits");
  }
  /// Slots of the layer's size class that no pool claims.
  [[nodiscard]] std::int32_t spare(layer_id layer) const {
    const auto& layout = cache_->pages().layout();
    const auto of_class = layout.at(layout.pool_of_layer(layer)).size_class;
    std::int32_t out = 0;
    for (std::size_t p = 0; p < layout.pools(); ++p) {
      const auto& pool = layout.at(static_cast<pool_id>(p));
      if (pool.size_class != of_class) continue;
      out += pool.slots;
      out -= pool.precision == 0 ? cache_->pages().quota(pool.layers.front()) : pool.slots;
    }
    return out;
  }
  void set_quota() {
    const bool drained = random_.one_in(2);
    if (drained) drain();
    const auto layer = layer_id{random_.id_below(shape().layers)};
    const auto slots = random_.id_below(shape().top_k + 5);
    const auto before = cache_->pages().quota(layer);
    const auto residents = cache_->pages().residents();
    trail_.begin("set_quota of layer %: % -> %", layer, before, slots);
    const auto& pool = cache_->pages().layout().at(cache_->pages().layout().pool_of_layer(layer));
    const bool sensible = slots >= cache_->pages().least_quota(layer) &&
                          slots <= static_cast<std::int32_t>(pool.layers.size()) * shape().experts;
    const bool there = slots - before <= spare(layer);
    const auto got = cache_->set_quota(layer, slots);
    const bool good =
        lost(got) || (got == status::invalid_argument && !sensible) ||
        (got == status::visit_unfinished && owner_ != nullptr) ||
        (sensible && owner_ == nullptr &&
         got == (slots < before ? status::ok : (there ? status::ok : status::exceeds_memory))) ||
        (got == status::busy && slots < before && any_open());
    expect(good, "set_quota", got);
    if (cache_->pages().quota(layer) != (got == status::ok ? slots : before))
      trail_.fault("the quota is not what was answered");
    if (drained && got != status::ok && cache_->pages().residents() != residents)
      trail_.fault("a quota that was refused evicted an expert");
    seen_.quotas += got == status::ok ? 1U : 0U;
  }
  void compact() {
    trail_.begin("compact");
    backend_.run_stream();
    const auto got = cache_->compact([this](slot_id from, slot_id to) {
      trail_.note("slot % moves to %", from, to);
      backend_.bytes(to) = backend_.bytes(from);
      backend_.bytes(from) = {};
    });
    expect((got == status::ok && owner_ == nullptr) || lost(got) ||
               (got == status::busy && (any_open() || owner_ != nullptr)),
           "compact", got);
    if (got != status::ok) return;
    ++seen_.compacted;
    check_truth();
  }
  /// Residents are saved and warm the next cache.
  void restart() {
    trail_.begin("restart");
    for (auto& l : lanes_) {
      release(l);
      abandon(l);
    }
    drain();
    if (trail_.failed()) return;
    seen_.add(cache_->stats());
    const residency_snapshot saved{shape().layers, shape().experts, cache_->pages().residents()};
    lanes_.clear();
    cache_.reset();
    begin();
    auto read = residency_snapshot::decode(saved.encode());
    if (!read || std::move(read).value().keys != saved.keys)
      return trail_.fault("a snapshot is not read back");
    const auto keys = warm_keys_that_fit(saved.keys, cache_->pages().layout());
    const auto got = cache_->warm(keys);
    expect(got == status::ok || lost(got), "warm", got);
    if (cache_->stats().failed_fills == 0 && got == status::ok &&
        cache_->pages().residents().size() != keys.size())
      trail_.fault("a restart lost experts");
    check_truth();
    ++seen_.restarts;
  }

  // --- misuse ---------------------------------------------------------------------------------------------

  /// Refused without effect: a split visit continues.
  void misuse(lane& l) {
    trail_.begin("misuse of lane %", number(l));
    if (l.visit.is_open()) return;
    const auto most = static_cast<std::size_t>(shape().max_tokens_per_visit * shape().top_k);
    const std::vector<expert_id> many(most + 1, 0_expert);
    auto view = l.view;
    auto wanted = status::invalid_visit;
    switch (random_.below(4)) {
      case 0: view.layer = layer_id{shape().layers}; break;
      case 1: view.layer = layer_id{-1}; break;
      case 2:
        view.layer = 0_layer;
        view.experts = many;
        view.weights = {};
        wanted = status::visit_too_large;
        break;
      default:
        if (shape().top_k == 1) return;
        view.layer = 0_layer;
        view.experts = std::span(many).first(most - 1);
        view.weights = {};
    }
    const auto got = cache_->resolve(view, l.visit);
    if (owner_ != nullptr) wanted = status::visit_unfinished;
    expect(got == wanted || lost(got), "resolve", got);
  }
  /// A moved-from visit is closed and harmless in every call.
  void move_visit(lane& l) {
    trail_.begin("the visit of lane % moves", number(l));
    cache_visit moved(std::move(l.visit));
    auto& empty = l.visit;
    if (empty.is_open() || empty.more()) trail_.fault("a visit that was moved from is open");
    cache_->release(empty);
    auto got = cache_->resolve(l.view, empty);
    expect(got == status::invalid_argument || lost(got) ||
               (got == status::visit_unfinished && owner_ != nullptr),
           "resolve", got);
    got = cache_->resolve_next(empty);
    expect(got == status::no_plan || got == status::invalid_argument || lost(got), "resolve_next",
           got);
    l.visit = std::move(moved);
  }

  // --- required properties -------------------------------------------------------------------------------

  [[nodiscard]] bool holds(slot_id slot, expert_key key) {
    return backend_.bytes(slot) == backend_.host_bytes(key, cache_->pages().precision_of(slot));
  }
  /// No copy is pending: a row's slots hold the host's bytes.
  void check_truth() {
    for (const auto l : each<layer_id>(shape().layers))
      for (const auto e : each<expert_id>(shape().experts)) {
        const auto slot = cache_->row(l)[static_cast<std::size_t>(e)];
        if (slot == no_slot) continue;
        if (holds(slot, {l, e})) continue;
        trail_.fault("the row of layer " + to_string(l) + " names slot " + to_string(slot) +
                     " for expert " + to_string(e) + ", whose bytes are not there");
        return;
      }
  }
  /// The cache keeps the experts that an open visit reads, except failed copies.
  void check_open_visits() {
    for (const auto& l : lanes_) {
      if (!l.visit.is_open() || kernels_.is_lost(l.kernel)) continue;
      for (const auto& r : kernels_.reads(l.kernel))
        if (!backend_.is_disputed(r.slot) && !lane::is_held(r.slot, r.bytes.key, *cache_))
          trail_.fault("slot " + to_string(r.slot) + " was taken from an open visit");
    }
  }
  /// An engine uploads a row when its version changes, and may use every slot in it.
  void check_a_row() {
    const auto layer = layer_id{random_.id_below(shape().layers)};
    const auto at = index_of(layer);
    const auto row = cache_->row(layer);
    for (const auto e : each<expert_id>(shape().experts))
      if (const auto slot = row[static_cast<std::size_t>(e)];
          slot != no_slot && !backend_.is_awaited(slot) && !backend_.is_disputed(slot) &&
          !holds(slot, {layer, e}))
        trail_.fault("a row names a slot whose bytes nobody waits for");
    const auto now = cache_->row_version(layer);
    if (!rows_[at].empty() && versions_[at] == now && !std::ranges::equal(rows_[at], row))
      trail_.fault("a row changed and its version did not");
    rows_[at].assign(row.begin(), row.end());
    versions_[at] = now;
  }
  void count(const visit_plan& plan) {
    expected_.groups += plan.groups() > 1 && plan.group() == 0 ? plan.groups() : 0;
    expected_.visits += plan.group() == 0 ? 1U : 0U;
    expected_.split_visits += plan.groups() > 1 && plan.group() == 0 ? 1U : 0U;
    expected_.fills += plan.fills().size();
    for (const auto& f : plan.fills()) seen_.low += f.precision != 0 ? 1U : 0U;
    for (const auto& f : plan.fills())
      expected_.bytes_demand += shape().bytes_of(f.key.layer, f.precision);
  }
  void check_books() {
    const auto s = cache_->stats();
    const auto& waiting = cache_->queue();
    const auto& q = waiting.stats();
    std::uint64_t unused = 0;
    for (std::size_t n = 0; n < cache_->pages().layout().slots(); ++n) {
      const auto slot = static_cast<slot_id>(n);
      const auto& entry = cache_->pages().slot(slot);
      if (entry.unused_prefetch)
        unused += shape().bytes_of(entry.key.layer, cache_->pages().precision_of(slot));
    }
    const auto same = [this](const char* what, std::uint64_t a, std::uint64_t b) {
      if (a != b)
        trail_.fault(std::string(what) + ": " + std::to_string(a) + " and " + std::to_string(b));
    };
    same("visits", s.visits, expected_.visits);
    same("split visits", s.split_visits, expected_.split_visits);
    same("groups", s.groups, expected_.groups);
    same("fills", s.fills, expected_.fills);
    same("bytes of demand", s.bytes_demand, expected_.bytes_demand);
    same("bytes prefetched and not used yet", s.bytes_prefetch_pending(), unused);
    same("bytes filled", s.bytes_filled,
         s.bytes_demand + s.bytes_prefetched + s.bytes_warm - s.bytes_prefetch_cancelled);
    same("accesses", s.accesses, s.hits + s.misses);
    same("requests", q.added, q.issued + q.expired + q.displaced + waiting.size());
    if (s.compulsory_misses + s.collision_misses + s.precision_misses > s.misses)
      trail_.fault("misses have more causes than there are");
    if (s.split_visits == 0) same("misses", s.misses, s.fills + s.bypasses);
    support::expect_consistent(cache_->pages());
    if (testing::Test::HasFailure()) trail_.fault("the pager contradicts itself");
  }

  const subject& of_;
  random_source random_;
  event_trail& trail_;
  tally& seen_;
  support::cache_setup setup_;
  unruly_backend backend_;
  kernel_ledger kernels_;
  bool caller_;          ///< the stream is the calling thread, for the whole run
  bool idle_;            ///< so is the backend
  std::uint64_t waits_;  ///< one of this many operations waits for copies
  std::unique_ptr<tested_cache> cache_;
  std::vector<lane> lanes_;
  lane* owner_ = nullptr;  ///< of the remaining groups
  step_id step_;
  std::uint64_t ordinal_ = 0;
  pager_stats expected_{};
  std::vector<std::uint64_t> versions_;     ///< by layer: version of the last seen row
  std::vector<std::vector<slot_id>> rows_;  ///< by layer: that row
};

// --- runs -------------------------------------------------------------------------------------------------

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const auto number = std::strtoull(text, &end, 10);
  if (*end == '\0') return number;
  ADD_FAILURE() << variable << " = " << text << ", accepted: a number";
  return otherwise;
}

std::uint64_t operations_of_a_run() {
  constexpr std::uint64_t runs = 10;
  return number_from("HOTSET_INTERLEAVING_OPERATIONS", 100'000) / runs;
}

/// Trail that an aborting precondition prints.
struct story {
  std::uint64_t seed = 0;
  const event_trail* trail = nullptr;
};
story running;
std::string tell(const story& s) {
  return "seed " + std::to_string(s.seed) + ", operation " + std::to_string(s.trail->operations()) +
         ": " + s.trail->what() + "\nagain: HOTSET_INTERLEAVING_SEED=" + std::to_string(s.seed) +
         "\nthe last operations, and what happened in them:\n" + s.trail->last(40);
}
extern "C" void on_abort(int signal) {
  std::fputs(tell(running).c_str(), stderr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}
class telling_aborts {
 public:
  telling_aborts() : before_(std::signal(SIGABRT, on_abort)) {}
  telling_aborts(const telling_aborts&) = delete;
  telling_aborts& operator=(const telling_aborts&) = delete;
  ~telling_aborts() { std::signal(SIGABRT, before_); }

 private:
  void (*before_)(int);
};

}  // namespace

bool run_lives(const life_of_seed& life) {
  const auto first = number_from("HOTSET_INTERLEAVING_SEED", 1);
  const auto operations = operations_of_a_run();
  const telling_aborts guard;
  auto seed = first;
  for (std::uint64_t done = 0; done < operations; ++seed) {
    event_trail trail;
    running = {seed, &trail};
    random_source random(seed);
    const auto share = std::min(operations - done, 200 + random.below(800));
    life(seed, share, trail);
    done += share;
    if (!trail.failed()) continue;
    ADD_FAILURE() << tell(running);
    return false;
  }
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(seed - 1));
  return operations >= 10'000;
}

void run(const subject& of) {
  tally seen;
  const bool enough =
      run_lives([&](std::uint64_t seed, std::uint64_t operations, event_trail& trail) {
        life(of, seed, trail, seen).run(operations);
      });
  if (!enough) return;
  const auto operations = operations_of_a_run();
  EXPECT_GT(seen.groups, operations / 10);
  EXPECT_GT(seen.together, operations / 100);
  const std::initializer_list<std::pair<const char*, std::uint64_t>> cases{
      {"steps that were lost", seen.losses},
      {"groups of other visits", seen.refused_next},
      {"prefetches that were used", seen.prefetch_hits},
      {"prefetches that were late", seen.late},
      {"prefetches that were taken back", seen.cancelled},
      {"prefetches that were of no use", seen.wasted},
      {"copies that failed", seen.failed},
      {"host bytes that changed", seen.versions},
      {"quotas that changed", seen.quotas},
      {"warm starts", seen.warmed},
      {"compactions", seen.compacted},
      {"restarts", seen.restarts}};
  for (const auto& [what, count] : cases) EXPECT_NE(count, 0U) << what;
  // Misses that stay on the host need no room.
  EXPECT_TRUE(seen.splits != 0 || of.may_stay_on_host) << "visits in groups";
  EXPECT_EQ(seen.unfinished != 0, seen.splits != 0) << "visits refused for the groups of others";
  // Over a ladder of three precisions nearly everything fits.
  EXPECT_TRUE(seen.abandoned != 0 || seen.splits == 0 || of.precisions > 2)
      << "groups that were given up";
  EXPECT_TRUE(seen.unfit != 0 || of.precisions > 2) << "visits that may not be split";
  EXPECT_NE(seen.host, 0U);
  EXPECT_EQ(seen.upgrades != 0, of.upgrades);
  EXPECT_EQ(seen.low != 0, of.precisions > 1);
}

}  // namespace hotset::interleaving
