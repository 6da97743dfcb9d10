// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/clock_backend.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "lab/replay/write_back_clock.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::clock_backend_test {
namespace {

using support::fill_of;
using testing::ElementsAre;
using enum transfer_state;

/// A link's activity, one line per run of chunks.
struct carried {
  ticks begin = 0;
  ticks end = 0;
  std::int32_t expert = -1;
  std::uint64_t bytes = 0;
  urgency when = urgency::now;
  friend bool operator==(const carried&, const carried&) = default;
  friend void PrintTo(const carried& c, std::ostream* out) {
    *out << "[" << c.begin << ", " << c.end << ") expert " << c.expert << ", " << c.bytes
         << " bytes" << (c.when == urgency::now ? "" : ", soon");
  }
};
class link_log : public link_observer {
 public:
  link_log() = default;
  virtual ~link_log() = default;
  link_log(const link_log&) = default;
  link_log& operator=(const link_log&) = default;
  std::vector<carried> copies{};
  std::vector<std::pair<ticks, ticks>> waits{};
  void on_copy(ticks begin, ticks end, const fill& what, urgency when,
               std::uint64_t bytes) noexcept override {
    copies.push_back({begin, end, number(what.key.expert), bytes, when});
  }
  void on_wait(ticks begin, ticks end) noexcept override { waits.emplace_back(begin, end); }
};
constexpr auto now = urgency::now;
constexpr auto soon = urgency::soon;

/// One byte takes one nanosecond, each copy 5 more: an expert of 100 bytes takes 105, its chunks end at 15, 25, ...
const link_model::config slow{.bytes_per_second = 1'000'000'000, .latency = 5, .chunk_bytes = 10};
const geometry shape{.layers = 2, .experts = 16, .top_k = 2, .expert_bytes = {100, 40}};

class clock_backend_times : public testing::Test {
 protected:
  explicit clock_backend_times(const link_model& link = link_model(slow))
      : backend({.link = link, .shape = shape}) {
    backend.watch(&log);
  }
  clock_backend backend;
  clock_stream stream;
  link_log log;

  submission submit(std::vector<fill> fills, urgency when = now) {
    return backend.submit(fills, stream, when);
  }
  /// Submits one expert of layer 0; its slot has the same number.
  ticket send(expert_id expert, urgency when = now, ticket after = no_ticket) {
    const auto sent = submit({fill_of({0_layer, expert}, slot_id{number(expert)}, after)}, when);
    EXPECT_EQ(sent.accepted, 1U);
    return sent.id;
  }
  /// A reader that ends at `time`.
  ticket reader_until(ticks time) {
    clock_stream other;
    other.run(time);
    return backend.record(other);
  }
  void run_to_the_end() { backend.advance(1'000'000); }
};

TEST_F(clock_backend_times, a_batch_arrives_when_its_last_copy_has_been_carried) {
  const auto sent =
      submit({fill_of({0_layer, 1_expert}, 1_slot), fill_of({1_layer, 2_expert}, 2_slot)});
  EXPECT_EQ(backend.poll(sent.id), pending);
  EXPECT_EQ(backend.fence(stream, sent.id), status::ok);
  EXPECT_EQ(stream.now(), 105U + 45);
  EXPECT_EQ(stream.blocked(), 150U);
  EXPECT_EQ(stream.host(), 0U) << "the host does not wait";
  EXPECT_EQ(backend.poll(sent.id), arrived);
  EXPECT_EQ(backend.now(), 150U);
  EXPECT_EQ(backend.busy(), 150U);
  EXPECT_EQ(backend.bytes_moved(), 140U);
  EXPECT_THAT(log.copies, ElementsAre(carried{0, 105, 1, 100}, carried{105, 150, 2, 40}));
  EXPECT_THAT(log.waits, ElementsAre(std::pair<ticks, ticks>{0, 150}));
}

TEST_F(clock_backend_times, a_fence_waits_only_for_copies_that_work_did_not_hide) {
  const auto sent = send(1_expert);
  stream.run(80);
  ASSERT_EQ(backend.fence(stream, sent), status::ok);
  EXPECT_EQ(stream.now(), 105U);
  EXPECT_EQ(stream.blocked(), 25U);
  ASSERT_EQ(backend.fence(stream, sent), status::ok);
  EXPECT_EQ(stream.blocked(), 25U);
  EXPECT_THAT(log.waits, ElementsAre(std::pair<ticks, ticks>{80, 105}));
}

TEST_F(clock_backend_times, a_copy_starts_no_earlier_than_it_is_submitted) {
  stream.issue_at(1000);
  (void)send(1_expert);
  EXPECT_EQ(backend.now(), 1000U);
  run_to_the_end();
  EXPECT_THAT(log.copies, ElementsAre(carried{1000, 1105, 1, 100}));
  EXPECT_EQ(backend.busy(), 105U) << "idle time is not busy";
}

TEST_F(clock_backend_times, demand_pre_empts_speculation_at_the_next_chunk_border) {
  const auto first = send(1_expert, soon);
  stream.issue_at(42);
  const auto second = send(2_expert);
  ASSERT_EQ(backend.fence(stream, second), status::ok);
  EXPECT_EQ(stream.now(), 150U);
  EXPECT_EQ(backend.wait(first), arrived);
  EXPECT_THAT(log.copies, ElementsAre(carried{0, 45, 1, 40, soon}, carried{45, 150, 2, 100},
                                      carried{150, 210, 1, 60, soon}))
      << "the latency is paid once";
  EXPECT_EQ(backend.busy(), 210U);
}

// Hazard 2: a slot is overwritten while a kernel still reads it.
TEST_F(clock_backend_times, a_copy_starts_no_earlier_than_the_reader_that_it_names) {
  const auto reader = reader_until(300);
  (void)send(1_expert, now, reader);
  (void)send(2_expert);
  (void)send(3_expert, soon);
  (void)send(4_expert, soon);
  run_to_the_end();
  EXPECT_THAT(log.copies, ElementsAre(carried{0, 105, 2, 100}, carried{105, 210, 3, 100, soon},
                                      carried{210, 305, 4, 90, soon}, carried{305, 410, 1, 100},
                                      carried{410, 420, 4, 10, soon}))
      << "others fill the time, and give way";
}

TEST_F(clock_backend_times, advance_to_stop_stops_at_the_end_of_a_copy) {
  const auto first = send(1_expert);
  const auto second = send(2_expert, soon);
  EXPECT_TRUE(backend.advance_to_stop(1000));
  EXPECT_EQ(backend.now(), 105U);
  EXPECT_EQ(backend.poll(first), arrived);
  EXPECT_EQ(backend.poll(second), pending);
  EXPECT_FALSE(backend.advance_to_stop(200)) << "the second ends at 210";
  EXPECT_EQ(backend.now(), 200U);
  EXPECT_TRUE(backend.advance_to_stop(1000));
  EXPECT_EQ(backend.now(), 210U);
  EXPECT_FALSE(backend.advance_to_stop(1000)) << "nothing is left";
  EXPECT_EQ(backend.now(), 1000U);
}

TEST_F(clock_backend_times, cancel_removes_copies_that_have_not_begun) {
  const auto first = send(1_expert);
  const auto second =
      submit({fill_of({0_layer, 2_expert}, 2_slot), fill_of({0_layer, 3_expert}, 3_slot)});
  const auto third = send(4_expert, soon);
  backend.advance(105);  // at 105 the copy that begins at 105 has not begun
  EXPECT_FALSE(backend.cancel(first));
  EXPECT_TRUE(backend.cancel(second.id));
  EXPECT_EQ(backend.poll(second.id), cancelled);
  EXPECT_EQ(backend.wait(second.id), cancelled);
  EXPECT_EQ(backend.fence(stream, second.id), status::fill_failed);
  EXPECT_EQ(stream.now(), 0U);
  EXPECT_FALSE(backend.cancel(second.id)) << "once";
  backend.advance(106);
  EXPECT_FALSE(backend.cancel(third));
  run_to_the_end();
  EXPECT_THAT(log.copies, ElementsAre(carried{0, 105, 1, 100}, carried{105, 210, 4, 100, soon}));
}

TEST_F(clock_backend_times, poll_is_judged_at_the_links_time) {
  const auto sent = send(1_expert);
  backend.advance(104);
  EXPECT_EQ(backend.poll(sent), pending);
  backend.advance(50);
  EXPECT_EQ(backend.now(), 104U) << "time does not run back";
  backend.advance(105);
  EXPECT_EQ(backend.poll(sent), arrived);
}

TEST_F(clock_backend_times, a_record_arrives_when_the_stream_has_run) {
  EXPECT_EQ(backend.record(stream), no_ticket) << "nothing is enqueued";
  stream.run(70);
  const auto reader = backend.record(stream);
  ASSERT_NE(reader, no_ticket);
  EXPECT_EQ(backend.poll(reader), pending);
  EXPECT_FALSE(backend.cancel(reader));
  clock_stream other;
  EXPECT_EQ(backend.fence(other, reader), status::ok);
  EXPECT_EQ(other.now(), 70U);
  EXPECT_EQ(backend.now(), 0U) << "one stream waits for another without the link";
  EXPECT_EQ(backend.wait(reader), arrived);
  EXPECT_EQ(backend.now(), 70U);
  EXPECT_EQ(backend.poll(reader), arrived);
  EXPECT_EQ(backend.record(stream), no_ticket);
}

// More than the initial capacity.
TEST_F(clock_backend_times, any_number_of_copies_and_tickets_may_be_pending) {
  std::vector<fill> fills;
  for (int n = 0; n < 500; ++n) fills.push_back(fill_of({1_layer, 0_expert}, slot_id{n}));
  const auto sent = submit(fills, soon);
  EXPECT_EQ(sent.accepted, 500U);
  std::vector<ticket> readers;
  for (int n = 0; n < 5000; ++n) readers.push_back(reader_until(100'000));
  const auto demand = send(1_expert);
  EXPECT_EQ(stream.host(), 0U) << "the host does not wait";
  EXPECT_EQ(backend.poll(readers.front()), pending);
  EXPECT_EQ(backend.wait(demand), arrived);
  EXPECT_EQ(backend.now(), 105U);
  EXPECT_EQ(backend.wait(sent.id), arrived);
  EXPECT_EQ(backend.now(), 105U + 500 * 45);
  EXPECT_EQ(backend.wait(readers.back()), arrived);
  for (const auto t : readers) EXPECT_EQ(backend.poll(t), arrived);
}

TEST_F(clock_backend_times, a_cancelled_copy_is_not_forgotten) {
  const auto taken_back = send(1_expert, soon, reader_until(100));
  ASSERT_TRUE(backend.cancel(taken_back));
  backend.advance(1000);
  for (int n = 0; n < 5000; ++n) EXPECT_EQ(backend.wait(send(2_expert)), arrived);
  EXPECT_EQ(backend.poll(taken_back), transfer_state::cancelled);
  EXPECT_EQ(backend.wait(taken_back), transfer_state::cancelled);
  EXPECT_EQ(backend.fence(stream, taken_back), status::fill_failed);
}

TEST_F(clock_backend_times, unknown_tickets_are_harmless) {
  for (const ticket t : {no_ticket, ticket{16}, ticket{99}}) {
    backend.promote(t);
    EXPECT_FALSE(backend.cancel(t));
    EXPECT_EQ(backend.poll(t), arrived);
    EXPECT_EQ(backend.wait(t), arrived);
    EXPECT_EQ(backend.fence(stream, t), status::ok);
  }
  (void)send(1_expert, now, 99);
  run_to_the_end();
  EXPECT_THAT(log.copies, ElementsAre(carried{0, 105, 1, 100}));
}

TEST(clock_backend, a_fill_has_the_bytes_of_its_layer_and_precision) {
  auto two = shape;
  two.lower_precisions = {{30, 20}};
  clock_backend backend({.link = link_model(slow), .shape = two});
  clock_stream stream;
  fill f = fill_of({1_layer, 3_expert}, 0_slot);
  f.precision = 1_precision;
  const auto sent = backend.submit(std::span(&f, 1), stream, now);
  EXPECT_EQ(backend.wait(sent.id), arrived);
  EXPECT_EQ(backend.now(), 25U);
  EXPECT_EQ(backend.bytes_moved(), 20U);
}

TEST(clock_backend, needs_a_shape) {
  EXPECT_THROW(clock_backend(clock_backend::config{}), invalid_config);
}

class clock_backend_instant : public clock_backend_times {
 protected:
  clock_backend_instant() : clock_backend_times(link_model::instant()) {}
};

TEST_F(clock_backend_instant, a_copy_arrives_when_it_may_start) {
  stream.issue_at(30);
  const auto reader = reader_until(500);
  const auto free = send(1_expert);
  EXPECT_EQ(backend.poll(free), arrived);
  const auto held = submit(
      {fill_of({0_layer, 2_expert}, 2_slot, reader), fill_of({0_layer, 3_expert}, 3_slot)}, soon);
  const auto chained = send(4_expert, now, held.id);
  EXPECT_EQ(backend.poll(held.id), pending);
  EXPECT_FALSE(backend.cancel(held.id)) << "it has begun";
  backend.promote(held.id);
  EXPECT_EQ(backend.fence(stream, chained), status::ok);
  EXPECT_EQ(stream.now(), 500U);
  EXPECT_EQ(stream.blocked(), 470U);
  EXPECT_EQ(backend.wait(held.id), arrived);
  EXPECT_EQ(backend.now(), 500U);
  EXPECT_EQ(backend.busy(), 0U);
  EXPECT_EQ(backend.bytes_moved(), 400U);
  EXPECT_THAT(log.copies, ElementsAre(carried{30, 30, 1, 100}, carried{500, 500, 2, 100, soon},
                                      carried{30, 30, 3, 100, soon}, carried{500, 500, 4, 100}));
}

TEST_F(clock_backend_instant, no_number_of_fills_is_too_large) {
  std::vector<fill> fills;
  for (const auto e : each<expert_id>(16))
    fills.push_back(fill_of({0_layer, e}, slot_id{number(e)}));
  EXPECT_EQ(submit(fills).accepted, 16U);
  EXPECT_EQ(submit({}).id, no_ticket);
}

/// Two layers, two experts each: miss, compute, and behind it a prefetch for the next layer.
TEST(clock_backend, a_slot_cache_overlaps_copies_and_work) {
  const geometry small{.layers = 2, .experts = 4, .top_k = 2, .expert_bytes = {100}};
  clock_backend backend({.link = link_model(slow), .shape = small});
  clock_stream stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::per_layer(small, 4).value()}), backend);
  auto visit = cache.make_visit();
  const std::vector<std::int32_t> ids{0, 1};
  const auto enter = [&](layer_id layer) {
    stream.run(10);  // the gate; the host waits for its result
    stream.synchronise();
    backend.advance(stream.host());
    routing_view view;
    view.layer = layer;
    view.experts = ids;
    ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  };
  enter(0_layer);
  EXPECT_EQ(stream.now(), 10U + 210);
  const std::vector<prefetch_request> requests{{{1_layer, 0_expert}, 0}, {{1_layer, 1_expert}, 0}};
  ASSERT_EQ(cache.prefetch({}, requests, stream), status::ok);
  stream.run(150);
  cache.release(visit, stream);
  EXPECT_EQ(stream.blocked(), 210U);
  enter(1_layer);  // at 380: one arrived at 325, the other is half done
  EXPECT_EQ(stream.now(), 220U + 210);
  EXPECT_EQ(stream.blocked(), 210U + 50);
  cache.release(visit, stream);
  EXPECT_EQ(cache.stats().misses, 2U);
  EXPECT_EQ(backend.bytes_moved(), 400U);
}

/// The link's rules, one nanosecond after the other, with a plain list.
class naive_link {
 public:
  naive_link(const link_model& link, const write_back_config& back)
      : link_(link), back_(back), ways_(back.way == write_back_way::duplex ? 2 : 1) {
    copies_.reserve(1000);
  }
  ticks now = 0;
  std::vector<carried> log{};
  std::vector<carried> log_back{};
  std::uint64_t bytes = 0;

  std::size_t submit(const std::vector<fill>& fills, const std::vector<std::size_t>& after,
                     ticks host, urgency when) {
    advance(host);
    ends_.push_back({pending, 0, fills.size(), false});
    const auto batch = ends_.size() - 1;
    for (std::size_t i = 0; i < fills.size(); ++i) {
      const auto& f = fills[i];
      if (back_.way != write_back_way::none && when == urgency::now &&
          ends_[after[i]].state == pending)
        promote(after[i]);
      if (back_.way == write_back_way::none || f.victim == no_key) {
        copies_.push_back({f, batch, after[i], when});
        continue;
      }
      copies_.push_back({.what = {.key = f.victim},
                         .batch = batch,
                         .after = after[i],
                         .when = when,
                         .back = true,
                         .settles = false});
      copies_.push_back({f, batch, 0, when});
      if (back_.spares != 0)
        --back_.spares;
      else
        copies_.back().waits_for = copies_.size() - 2;
    }
    return batch;
  }
  std::size_t write_back(expert_key key, std::size_t after, ticks host) {
    advance(host);
    ends_.push_back({pending, 0, 1, false});
    copies_.push_back({.what = {.key = key},
                       .batch = ends_.size() - 1,
                       .after = after,
                       .when = soon,
                       .back = true});
    return ends_.size() - 1;
  }
  std::size_t record(ticks time) {
    ends_.push_back({arrived, time, 0, false});
    return ends_.size() - 1;
  }
  void promote(std::size_t batch) {
    for (auto& c : copies_)
      if (c.batch == batch) c.when = urgency::now;
  }
  bool cancel(std::size_t batch) {
    if (ends_[batch].state != pending || ends_[batch].begun) return false;
    ends_[batch].state = cancelled;
    ends_[batch].time = now;
    for (std::size_t n = 0; n < copies_.size(); ++n)
      if (copies_[n].batch == batch && copies_[n].back && !copies_[n].settles)
        back_.spares += waiting_for(n) == copies_.size() ? 1U : 0U;
    return true;
  }
  /// End of the batch or reader; runs until it is known.
  ticks end_of(std::size_t what) {
    while (ends_[what].state == pending) tick();
    return ends_[what].time;
  }
  transfer_state state(std::size_t what) const {
    return ends_[what].time > now ? pending : ends_[what].state;
  }
  void advance(ticks until) {
    while (now < until) tick();
  }
  /// Runs until all copies are made.
  void finish() {
    for (const auto& c : copies_)
      while (!is_over(c)) tick();
  }

 private:
  static constexpr std::size_t nothing = ~std::size_t{0};
  struct copy {
    fill what{};
    std::size_t batch = 0;
    std::size_t after = 0;
    urgency when = urgency::now;
    std::uint64_t chunks = 0;
    bool back = false;
    bool settles = true;
    std::size_t waits_for = nothing;  ///< a victim's write-back
  };
  struct end {
    transfer_state state = pending;
    ticks time = 0;
    std::size_t left = 0;
    bool begun = false;
  };
  struct way {
    copy* flying = nullptr;
    ticks left = 0;
    ticks begin = 0;
  };

  [[nodiscard]] static std::uint64_t size_of(const copy& c) {
    return shape.bytes_of(c.what.key.layer);
  }
  [[nodiscard]] const link_model& link_of(const copy& c) const {
    return c.back ? back_.link : link_;
  }
  [[nodiscard]] bool is_over(const copy& c) const {
    return ends_[c.batch].state == cancelled || c.chunks == link_of(c).chunks_of(size_of(c));
  }
  [[nodiscard]] std::size_t way_of(const copy& c) const { return c.back ? ways_.size() - 1 : 0; }
  /// Number of the fill that waits for a victim's write-back; the number of fills if there is none.
  [[nodiscard]] std::size_t waiting_for(std::size_t victim) const {
    std::size_t n = 0;
    while (n < copies_.size() && copies_[n].waits_for != victim) ++n;
    return n;
  }
  copy* choose(std::size_t on) {
    copy* best = nullptr;
    for (auto& c : copies_) {
      if (way_of(c) != on || is_over(c) || c.waits_for != nothing) continue;
      if (state(c.after) == pending) continue;
      if (best == nullptr || (best->when == soon && c.when == urgency::now)) best = &c;
    }
    return best;
  }
  /// Copies that take no time end at once, and others may then begin.
  void begin_all() {
    for (std::size_t n = 0; n < ways_.size(); ++n) {
      auto& w = ways_[n];
      if (w.flying == nullptr && (w.flying = choose(n)) != nullptr) {
        auto& c = *w.flying;
        ends_[c.batch].begun = true;
        const auto& link = link_of(c);
        w.left = link.time_until(size_of(c), c.chunks + 1) - link.time_until(size_of(c), c.chunks);
        w.begin = now;
      }
      if (w.flying == nullptr || w.left != 0) continue;
      land(w);
      n = nothing;  // starts again from the first
    }
  }
  void tick() {
    begin_all();
    ++now;
    for (auto& w : ways_)
      if (w.flying != nullptr && --w.left == 0) land(w);
  }
  void land(way& w) {
    auto& c = *w.flying;
    const auto& link = link_of(c);
    const auto size = size_of(c);
    const auto before = link.bytes_until(size, c.chunks);
    ++c.chunks;
    if (link.time_until(size, c.chunks) == link.time_of(size)) c.chunks = link.chunks_of(size);
    const auto moved = link.bytes_until(size, c.chunks) - before;
    bytes += c.back ? 0 : moved;
    (c.back ? log_back : log)
        .push_back(
            {w.begin, now, c.back ? number(c.what.key.layer) : number(c.what.slot), moved, c.when});
    w.flying = nullptr;
    if (c.chunks != link.chunks_of(size)) return;
    if (c.back && !c.settles) free_slot(static_cast<std::size_t>(&c - copies_.data()));
    auto& e = ends_[c.batch];
    if (c.settles && --e.left == 0) e = {arrived, now, 0, true};
  }
  void free_slot(std::size_t victim) {
    auto next = waiting_for(victim);
    for (const auto when : {urgency::now, soon})
      for (std::size_t n = 0; n < copies_.size() && next == copies_.size(); ++n)
        if (copies_[n].waits_for != nothing && copies_[n].when == when && !is_over(copies_[n]))
          next = n;
    if (next == copies_.size())
      ++back_.spares;
    else
      copies_[next].waits_for = nothing;
  }

  const link_model& link_;
  write_back_config back_;
  std::vector<end> ends_{{arrived, 0, 0, false}};  // 0: no ticket
  std::vector<copy> copies_{};                     // never moves: references into it may exist
  std::vector<way> ways_;
};

/// Consecutive runs without a gap are one run.
std::vector<carried> merged(const std::vector<carried>& runs) {
  std::vector<carried> out;
  for (const auto& r : runs) {
    if (!out.empty() && out.back().expert == r.expert && out.back().end == r.begin) {
      out.back().end = r.end;
      out.back().bytes += r.bytes;
      out.back().when = r.when;
    } else {
      out.push_back(r);
    }
  }
  return out;
}
/// A copy's slot is its number; the backend does not use the slot.
class slot_log final : public link_log {
 public:
  void on_copy(ticks begin, ticks end, const fill& what, urgency when,
               std::uint64_t bytes) noexcept override {
    if (what.slot == no_slot)
      back.push_back({begin, end, number(what.key.layer), bytes, now});
    else
      copies.push_back({begin, end, number(what.slot), bytes, when});
  }
  std::vector<carried> back{};
};

void walk_both(std::uint64_t seed, write_back_way mode) {
  SCOPED_TRACE(testing::Message() << seed << ", way back " << static_cast<int>(mode));
  splitmix64 random(seed);
  const auto some_link = [&random] {
    return link_model({.bytes_per_second = 200'000'000 + random.below(4'000'000'000),
                       .latency = random.below(3) * random.below(8),
                       .chunk_bytes = random.below(4) * random.below(13)});
  };
  const auto link = some_link();
  write_back_config back{.way = mode};
  if (mode != write_back_way::none) {
    back.link = some_link();
    back.spares = random.below(3);
  }
  const clock_backend::config setup{.link = link, .shape = shape};
  std::unique_ptr<clock_backend> made;
  write_back_clock* returning = nullptr;
  if (mode == write_back_way::none)
    made = std::make_unique<clock_backend>(setup);
  else
    made.reset(returning = new write_back_clock(setup, back));
  clock_backend& fast = *made;
  slot_log log;
  fast.watch(&log);
  naive_link slow_one(link, back);
  clock_stream stream;
  clock_stream naive_stream;
  std::vector<ticket> tickets{no_ticket};
  std::vector<std::size_t> names{0};  // the same tickets, numbered as in the naive link
  slot_id copies{};
  for (int n = 0; n < 60; ++n) {
    const auto some = [&] { return random.below(tickets.size()); };
    const auto what = random.below(mode == write_back_way::none ? 12 : 13);
    if (what == 12) {
      const auto reader = some();
      const expert_key key{static_cast<layer_id>(random.below(2)), 2_expert};
      tickets.push_back(returning->write_back(key, 0_precision, tickets[reader], stream));
      names.push_back(slow_one.write_back(key, names[reader], naive_stream.host()));
    } else if (what < 4) {
      std::vector<fill> fills;
      std::vector<std::size_t> after;
      for (auto left = 1 + random.below(3); left-- > 0;) {
        const auto reader = random.below(3) == 0 ? some() : 0;
        fills.push_back(
            fill_of({static_cast<layer_id>(random.below(2)), 0_expert}, copies++, tickets[reader]));
        after.push_back(names[reader]);
        if (mode != write_back_way::none && random.below(2) == 0)
          fills.back().victim = {static_cast<layer_id>(random.below(2)), 1_expert};
      }
      const auto when = random.below(2) == 0 ? now : soon;
      const auto sent = fast.submit(fills, stream, when);
      ASSERT_EQ(sent.accepted, fills.size());
      tickets.push_back(sent.id);
      names.push_back(slow_one.submit(fills, after, naive_stream.host(), when));
    } else if (what == 4) {
      const auto ahead = random.below(120);
      stream.issue_at(stream.host() + ahead);
      naive_stream.issue_at(naive_stream.host() + ahead);
    } else if (what == 5) {
      const auto work = random.below(200);
      stream.run(work);
      naive_stream.run(work);
      if (random.below(2) == 0) {
        stream.synchronise();
        naive_stream.synchronise();
      }
    } else if (what == 6) {
      const auto t = fast.record(stream);
      ASSERT_EQ(t == no_ticket, naive_stream.now() <= slow_one.now);
      if (t != no_ticket) {
        tickets.push_back(t);
        names.push_back(slow_one.record(naive_stream.now()));
      }
    } else if (what == 7) {
      const auto t = some();
      const auto done = fast.fence(stream, tickets[t]);
      const auto end = slow_one.end_of(names[t]);
      ASSERT_EQ(done != status::ok, slow_one.state(names[t]) == cancelled);
      if (done == status::ok) (void)naive_stream.wait_until(end);
    } else if (what == 8) {
      const auto t = some();
      fast.promote(tickets[t]);
      slow_one.promote(names[t]);
    } else if (what == 9) {
      const auto t = some();
      ASSERT_EQ(fast.cancel(tickets[t]), slow_one.cancel(names[t]));
    } else if (what == 10) {
      const auto until = fast.now() + random.below(90);
      fast.advance(until);
      slow_one.advance(until);
    } else {
      const auto t = some();
      (void)fast.wait(tickets[t]);
      slow_one.advance(slow_one.end_of(names[t]));
    }
    ASSERT_EQ(fast.now(), slow_one.now) << n;
    ASSERT_EQ(stream.now(), naive_stream.now());
    for (std::size_t t = 0; t < tickets.size(); ++t)
      ASSERT_EQ(fast.poll(tickets[t]), slow_one.state(names[t])) << n << ", ticket " << t;
  }
  fast.advance(1'000'000);
  slow_one.finish();
  ASSERT_EQ(merged(log.copies), merged(slow_one.log));
  for (auto& run : slow_one.log_back) run.when = now;  // not reported
  ASSERT_EQ(merged(log.back), merged(slow_one.log_back));
  ASSERT_EQ(fast.bytes_moved(), slow_one.bytes);
  ticks busy = 0;
  for (const auto& c : slow_one.log) busy += c.end - c.begin;
  ASSERT_EQ(fast.busy(), busy);
  busy = 0;
  for (const auto& c : slow_one.log_back) busy += c.end - c.begin;
  ASSERT_EQ(returning == nullptr ? 0 : returning->busy_back(), busy);
  ASSERT_EQ(stream.blocked(), naive_stream.blocked());
}

TEST(clock_backend, every_copy_runs_when_a_walk_through_every_nanosecond_runs_it) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed)
    for (const auto mode : {write_back_way::none, write_back_way::serial, write_back_way::duplex}) {
      walk_both(seed, mode);
      if (testing::Test::HasFatalFailure()) return;
    }
}

/// Fences know their end before the host continues; this must not change the link's other copies.
TEST(clock_backend, fencing_demand_at_once_changes_nothing_that_the_link_does) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<std::vector<carried>> logs;
    for (const bool fences : {false, true}) {
      splitmix64 random(seed);
      clock_backend backend({.link = link_model(slow), .shape = shape});
      slot_log log;
      backend.watch(&log);
      clock_stream stream;
      for (const auto n : each<slot_id>(60)) {
        stream.issue_at(stream.host() + random.below(130));  // after the link's time and before it
        const auto when = random.below(3) == 0 ? now : soon;
        const std::vector fills{fill_of({static_cast<layer_id>(random.below(2)), 0_expert}, n)};
        const auto sent = backend.submit(fills, stream, when);
        if (fences && when == now) {
          ASSERT_EQ(backend.fence(stream, sent.id), status::ok);
        }
      }
      backend.advance(1'000'000);
      logs.push_back(merged(log.copies));
    }
    ASSERT_EQ(logs[0], logs[1]);
  }
}

}  // namespace
}  // namespace hotset::clock_backend_test
