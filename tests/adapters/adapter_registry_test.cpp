// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/adapter_registry.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failing_memory.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::adapter_registry_test {
namespace {

using support::expert_lists;
using testing::ElementsAre;
using testing::HasSubstr;
using enum adapter_status;
using events = std::vector<std::string>;

TEST(adapter_status, every_status_has_a_text_of_its_own) {
  std::set<std::string_view> texts;
  for (const auto s :
       {ok, unknown, pinned, not_pinned, no_room, not_read, not_mapped, not_copied, not_drained})
    EXPECT_TRUE(texts.insert(describe(s)).second) << describe(s);
}

using memory_type = support::failing_memory<host_virtual_memory>;

/// Records consecutive calls of one kind as one event.
void note(events& log, std::string_view what) {
  if (log.empty() || log.back() != what) log.emplace_back(what);
}

/// Copies when it is fenced, not before. Fails on request.
struct noting_uploader {
  struct order {
    std::span<std::byte> to;
    std::span<const std::byte> from;
  };
  events* log;
  std::function<void()> on_wait{};
  std::function<void(const char*)> on_event{};
  std::size_t fail_copy = 0;
  bool fail_fence = false;
  bool fail_wait = false;
  std::vector<order> begun{};

  void tell(const char* what) {
    note(*log, what);
    if (on_event) on_event(what);
  }
  bool copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
    tell("copy");
    EXPECT_EQ(to.size(), from.size());
    if (fail_copy != 0 && --fail_copy == 0) return false;
    begun.push_back({to, from});
    return true;
  }
  bool fence() noexcept {
    tell("fence");
    for (const auto& o : begun) std::ranges::copy(o.from, o.to.begin());
    begun.clear();
    return !std::exchange(fail_fence, false);
  }
  bool wait_for_readers() noexcept {
    tell("wait");
    if (std::exchange(fail_wait, false)) return false;
    if (on_wait) on_wait();
    return true;
  }
};
using registry_type = adapter_registry<memory_type, noting_uploader>;

/// Two layers of four experts with two weights; adapters tune at most three experts of a layer.
class adapter_registry_steps : public testing::Test {
 protected:
  using layers = std::vector<std::vector<expert_id>>;

  events log{};
  memory_type memory{host_virtual_memory::create().value()};
  const std::size_t page = memory.granularity();
  noting_uploader copies{&log};
  bool fail_read = false;
  const layers law = expert_lists({{2, 0}, {1}});
  std::map<std::string, int, std::less<>> numbers{};

  adapter_registry_steps() {
    memory.on_call = [this](std::string_view call) {
      if (call == "map" || call == "unmap") note(log, call);
    };
  }
  ~adapter_registry_steps() override { EXPECT_EQ(memory.behind().physical_bytes(), 0U); }

  page_pool<memory_type> pool(std::uint32_t most, memory_budget* budget = nullptr) {
    return page_pool<memory_type>::create(memory, {.page_bytes = page, .most_pages = most}, budget)
        .value();
  }
  [[nodiscard]] adapter_registry_config shape(std::int32_t adapters = 2) const {
    return {.layers = 2,
            .experts = 4,
            .adapters = adapters,
            .most_tuned = 3,
            .expert_bytes = {page + page / 2, page / 2 + page / 4},
            .host_bytes = 14 * page,
            .most_known = 6};
  }
  /// `known`: adapters and the experts that each tunes.
  registry_type registry(page_pool<memory_type>& from, const adapter_registry_config& setup,
                         const std::vector<std::pair<std::string, layers>>& known = {}) {
    const auto read = [this](const adapter_part& part, std::span<std::byte> bytes) {
      if (fail_read && part.layer == 1) return false;
      std::ranges::fill(bytes, content(part.adapter, part.layer, part.weight, part.expert));
      return true;
    };
    auto made = registry_type::create(from, copies, setup, read).value();
    for (const auto& [name, tuned] : known) EXPECT_FALSE(made.add(name, tuned));
    return made;
  }
  /// Loads an adapter and releases it: it is on the device and unused.
  static void load(registry_type& r, const char* name) {
    ASSERT_EQ(r.acquire(name).code, ok);
    ASSERT_EQ(r.release(name), ok);
  }
  /// Value of every byte of an adapter's expert.
  std::byte content(std::string_view name, layer_id layer, std::size_t weight, expert_id expert) {
    const auto nth =
        numbers.try_emplace(std::string(name), static_cast<int>(numbers.size()) + 1).first->second;
    return static_cast<std::byte>(1 + nth * 17 + number(layer) * 8 + static_cast<int>(weight) * 4 +
                                  number(expert));
  }
  /// Whether a token of the adapter finds the adapter's experts, and the base model's where the adapter tuned none.
  bool serves(const registry_type& r, std::string_view name, std::int32_t index,
              const layers& tuned) {
    for (const auto l : each<layer_id>(2))
      for (const auto e : each<expert_id>(4)) {
        const auto& own = tuned[index_of(l)];
        const auto place = r.map(l).row(index)[index_of(e)];
        const bool is_own = std::ranges::find(own, e) != own.end();
        if (is_own != (place >= 4)) return false;
        if (!is_own && place != e) return false;
        for (std::size_t w = 0; is_own && w < 2; ++w) {
          if (!r.tensor(l, w).is_backed(place)) return false;
          const auto bytes = r.tensor(l, w).bytes(place);
          const auto expected = content(name, l, w, e);
          if (bytes.front() != expected || bytes.back() != expected ||
              bytes[bytes.size() / 2] != expected)
            return false;
        }
      }
    return true;
  }
  static bool redirects_nothing(const registry_type& r, std::int32_t index) {
    for (const auto l : each<layer_id>(2))
      for (const auto e : each<expert_id>(4))
        if (r.map(l).row(index)[index_of(e)] != e) return false;
    return true;
  }
  /// Counts places behind the base model's experts that have memory, in both layers. Both weights must have the same
  /// places.
  static std::size_t backed_places(const registry_type& r) {
    std::size_t count = 0;
    for (const auto l : each<layer_id>(2))
      for (auto e = 4_expert; e < r.map(l).virtual_experts(); ++e) {
        EXPECT_EQ(r.tensor(l, 0).is_backed(e), r.tensor(l, 1).is_backed(e));
        count += r.tensor(l, 0).is_backed(e) ? 1U : 0U;
      }
    return count;
  }
  /// Whether the adapter index redirects no expert and has no memory.
  static bool is_empty(const registry_type& r, std::int32_t index) {
    if (!redirects_nothing(r, index)) return false;
    for (const auto l : each<layer_id>(2)) {
      for (std::size_t w = 0; w < 2; ++w)
        for (const auto e : each<expert_id>(3))
          if (r.tensor(l, w).is_backed(e + 4 + index * 3)) return false;
    }
    return true;
  }
};

TEST_F(adapter_registry_steps, is_mapped_copied_and_fenced_before_the_maps_name_it) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"law", law}});
  EXPECT_EQ(r.index_of("law"), -1);
  log.clear();
  copies.on_event = [&](const char*) { EXPECT_TRUE(r.map(0_layer).row(0)[0] == 0); };
  const auto got = r.acquire("law");
  EXPECT_EQ(got.code, ok);
  EXPECT_EQ(got.index, 0);
  EXPECT_EQ(r.index_of("law"), 0);
  EXPECT_THAT(log, ElementsAre("map", "copy", "fence"));
  EXPECT_THAT(r.map(0_layer).row(0), ElementsAre(4, 1, 5, 3)) << "by ascending expert";
  EXPECT_THAT(r.map(1_layer).row(0), ElementsAre(0, 4, 2, 3));
  EXPECT_TRUE(serves(r, "law", 0, law));
  copies.on_event = nullptr;
}

TEST_F(adapter_registry_steps, unload_clears_the_maps_then_waits_for_readers_then_unmaps) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"law", law}});
  ASSERT_EQ(r.acquire("law").code, ok);
  EXPECT_EQ(r.unload("law"), pinned);
  EXPECT_TRUE(serves(r, "law", 0, law));
  ASSERT_EQ(r.release("law"), ok);
  EXPECT_EQ(r.release("law"), not_pinned);
  log.clear();
  int waits = 0;
  const auto version = r.version();
  copies.on_wait = [&] {
    ++waits;
    EXPECT_THAT(r.map(0_layer).row(0), ElementsAre(0, 1, 2, 3));
    EXPECT_GT(r.version(), version);
    EXPECT_EQ(r.tensor(0_layer, 0).bytes(5_expert).front(), content("law", 0_layer, 0, 2_expert))
        << "a reader still reads";
  };
  ASSERT_EQ(r.unload("law"), ok);
  EXPECT_EQ(waits, 1);
  EXPECT_THAT(log, ElementsAre("wait", "unmap"));
  EXPECT_TRUE(is_empty(r, 0));
  EXPECT_EQ(p.in_use(), 0U);
  EXPECT_EQ(r.unload("law"), ok) << "it is not there";
  EXPECT_TRUE(r.is_cached("law"));
}

TEST_F(adapter_registry_steps, unloading_fails_while_readers_do_not_end) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"law", law}});
  load(r, "law");
  copies.fail_wait = true;
  EXPECT_EQ(r.unload("law"), not_drained);
  EXPECT_EQ(r.index_of("law"), 0);
  EXPECT_TRUE(serves(r, "law", 0, law));
}

TEST_F(adapter_registry_steps, a_forgotten_adapter_is_gone_and_its_name_can_be_reused) {
  auto p = pool(40);
  auto setup = shape();
  setup.most_known = 2;
  auto r = registry(p, setup, {{"law", law}, {"read", expert_lists({{1}, {}})}});
  EXPECT_EQ(r.forget("nobody"), unknown);
  ASSERT_EQ(r.acquire("read").code, ok);
  ASSERT_EQ(r.acquire("law").index, 1);
  const auto both = r.host_bytes();
  EXPECT_EQ(r.forget("law"), pinned);
  EXPECT_TRUE(serves(r, "law", 1, law));
  ASSERT_EQ(r.release("law"), ok);
  log.clear();
  ASSERT_EQ(r.forget("law"), ok);
  EXPECT_THAT(log, ElementsAre("wait", "unmap")) << "in the order of unload";
  EXPECT_TRUE(is_empty(r, 1));
  EXPECT_EQ(r.release("law"), unknown);
  EXPECT_FALSE(r.is_cached("law"));
  EXPECT_EQ(r.host_bytes(), both / 4) << "one expert of four";
  EXPECT_EQ(r.forget("law"), unknown);
  EXPECT_EQ(r.acquire("law").code, unknown);
  EXPECT_TRUE(serves(r, "read", 0, expert_lists({{1}, {}})));
  ASSERT_FALSE(r.add("law", expert_lists({{3}, {}}))) << "there is room for a name again";
  EXPECT_FALSE(r.is_cached("law"));
  EXPECT_EQ(r.acquire("law").index, 1);
  EXPECT_TRUE(serves(r, "law", 1, expert_lists({{3}, {}})));
}

TEST_F(adapter_registry_steps, an_adapter_not_on_the_device_is_forgotten_without_waiting) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"law", law}, {"never read", law}});
  load(r, "law");
  ASSERT_EQ(r.unload("law"), ok);
  log.clear();
  const auto version = r.version();
  EXPECT_EQ(r.forget("law"), ok);
  EXPECT_EQ(r.forget("never read"), ok);
  EXPECT_EQ(r.host_bytes(), 0U);
  EXPECT_THAT(log, ElementsAre());
  EXPECT_EQ(r.version(), version);
}

TEST_F(adapter_registry_steps, forgetting_fails_while_readers_do_not_end) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"law", law}});
  load(r, "law");
  const auto bytes = r.host_bytes();
  copies.fail_wait = true;
  EXPECT_EQ(r.forget("law"), not_drained);
  EXPECT_EQ(r.release("law"), not_pinned);
  EXPECT_TRUE(r.is_cached("law"));
  EXPECT_EQ(r.host_bytes(), bytes);
  EXPECT_EQ(r.index_of("law"), 0);
  EXPECT_TRUE(serves(r, "law", 0, law));
  EXPECT_EQ(r.forget("law"), ok);
}

TEST_F(adapter_registry_steps, the_least_recently_used_unpinned_adapter_is_evicted) {
  auto p = pool(40);
  auto r = registry(p, shape(), {{"a", law}, {"b", law}, {"c", law}});
  ASSERT_EQ(r.acquire("a").index, 0);
  ASSERT_EQ(r.acquire("b").index, 1);
  EXPECT_EQ(r.acquire("c").code, no_room);
  EXPECT_EQ(r.index_of("a"), 0);
  ASSERT_EQ(r.release("a"), ok);
  ASSERT_EQ(r.release("b"), ok);
  load(r, "a");
  EXPECT_EQ(r.acquire("c").index, 1) << "b was used before a";
  EXPECT_EQ(r.index_of("b"), -1);
  EXPECT_TRUE(serves(r, "a", 0, law));
  EXPECT_TRUE(serves(r, "c", 1, law));
  EXPECT_EQ(r.stats().loads, 3U);
  EXPECT_EQ(r.stats().evictions, 1U);
  EXPECT_EQ(r.stats().refusals, 1U);
}

TEST_F(adapter_registry_steps, nothing_is_evicted_if_that_would_not_make_room) {
  auto p = pool(12);  // three experts of a layer take 5 + 3 pages
  const auto large = expert_lists({{0, 1, 2}, {0, 1, 2}});
  auto r = registry(p, shape(), {{"small", expert_lists({{1}, {}})}, {"large", large}});
  load(r, "small");
  log.clear();
  EXPECT_EQ(r.acquire("large").code, no_room);
  EXPECT_THAT(log, ElementsAre());
  EXPECT_EQ(r.index_of("small"), 0);
  EXPECT_FALSE(r.is_cached("large")) << "not even read";
}

TEST_F(adapter_registry_steps, the_host_keeps_the_most_recently_used) {
  auto p = pool(60);
  // An expert is 2.25 pages: two of these fit into fourteen.
  auto r = registry(p, shape(3), {{"a", law}, {"b", law}, {"c", law}});
  ASSERT_EQ(r.acquire("a").code, ok);
  ASSERT_EQ(r.acquire("b").code, ok);
  EXPECT_EQ(r.host_bytes(), 2 * 3 * (2 * page + page / 4));
  ASSERT_EQ(r.acquire("a").code, ok);
  ASSERT_EQ(r.acquire("c").code, ok);
  EXPECT_TRUE(r.is_cached("a"));
  EXPECT_FALSE(r.is_cached("b"));
  EXPECT_TRUE(r.is_cached("c"));
  EXPECT_EQ(r.host_bytes(), 2 * 3 * (2 * page + page / 4));
  EXPECT_TRUE(serves(r, "b", 1, law)) << "the device has it";
  for (const auto* const name : {"a", "a", "b"}) ASSERT_EQ(r.release(name), ok);
  ASSERT_EQ(r.unload("a"), ok);
  ASSERT_EQ(r.unload("b"), ok);
  ASSERT_EQ(r.acquire("a").code, ok);
  EXPECT_EQ(r.stats().reads, 3U);
  ASSERT_EQ(r.acquire("b").code, ok);
  EXPECT_EQ(r.stats().reads, 4U);
}

TEST_F(adapter_registry_steps, an_invalid_adapter_is_refused_by_name) {
  auto p = pool(40);
  auto r = registry(p, shape());
  const auto reason = [&](const std::string& name, layers tuned) {
    const auto refused = r.add(name, std::move(tuned));
    return refused ? refused->message : std::string("added");
  };
  EXPECT_EQ(reason("a", expert_lists({{0}, {1}})), "added");
  EXPECT_THAT(reason("", expert_lists({{0}, {1}})), HasSubstr("without a name"));
  EXPECT_THAT(reason("a", expert_lists({{0}, {1}})), HasSubstr("adapter a: known already"));
  EXPECT_THAT(reason("b", expert_lists({{0}})), HasSubstr("layers = 1, accepted: 2"));
  EXPECT_THAT(reason("b", expert_lists({{0}, {4}})),
              HasSubstr("layer 1: expert = 4, accepted: 0..3"));
  EXPECT_THAT(reason("b", expert_lists({{-1}, {}})), HasSubstr("layer 0: expert = -1"));
  EXPECT_THAT(reason("b", expert_lists({{2, 1, 2}, {}})), HasSubstr("expert 2 is named twice"));
  EXPECT_THAT(reason("b", expert_lists({{0, 1, 2, 3}, {}})),
              HasSubstr("tuned experts = 4, accepted: at most 3"));
  EXPECT_EQ(r.release("b"), unknown);
  for (const auto* const name : {"b", "c", "d", "e", "f"})
    EXPECT_EQ(reason(name, {{}, {}}), "added");
  EXPECT_THAT(reason("g", expert_lists({{}, {}})),
              HasSubstr("known adapters = 7, accepted: at most 6"));
  EXPECT_EQ(r.acquire("g").code, unknown);
  EXPECT_EQ(r.release("g"), unknown);
  EXPECT_EQ(r.unload("g"), unknown);
  EXPECT_EQ(r.acquire("f").code, ok) << "it tunes nothing";
}

TEST_F(adapter_registry_steps, an_adapter_that_the_host_cannot_keep_is_refused) {
  auto p = pool(40);
  auto setup = shape();
  setup.host_bytes = 2 * page;
  auto r = registry(p, setup);
  const auto refused = r.add("a", expert_lists({{0}, {1}}));
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("accepted: at most " + std::to_string(2 * page)));
}

TEST_F(adapter_registry_steps, a_shape_that_cannot_be_has_a_reason) {
  auto p = pool(40);
  const auto reason = [&](auto change) {
    auto setup = shape();
    change(setup);
    const auto made = registry_type::create(p, copies, setup, {});
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(reason([](auto& s) { s.layers = 0; }), HasSubstr("layers = 0"));
  EXPECT_THAT(reason([](auto& s) { s.adapters = 0; }), HasSubstr("adapters = 0"));
  EXPECT_THAT(reason([](auto& s) { s.most_tuned = 5; }), HasSubstr("most_tuned = 5"));
  EXPECT_THAT(reason([](auto& s) { s.expert_bytes.clear(); }), HasSubstr("weights = 0"));
  EXPECT_THAT(reason([](auto& s) { s.expert_bytes[1] = 0; }), HasSubstr("expert_bytes = 0"));
  EXPECT_THAT(reason([](auto& s) { s.host_bytes = ~std::uint64_t{0}; }), HasSubstr("host_bytes"));
  EXPECT_THAT(reason([](auto& s) { s.most_known = 1U << 21U; }), HasSubstr("most_known"));
}

TEST_F(adapter_registry_steps, a_failed_load_has_no_effect_at_any_step) {
  auto p = pool(40);
  const auto of_a = expert_lists({{1, 3}, {0, 1, 2}});
  const auto of_b = expert_lists({{0, 1, 2}, {2}});
  auto r = registry(p, shape(), {{"a", of_a}, {"b", of_b}});
  ASSERT_EQ(r.acquire("a").code, ok);
  const auto version = r.version();
  const auto expect_as_before = [&] {
    EXPECT_EQ(r.index_of("b"), -1);
    EXPECT_TRUE(is_empty(r, 1));
    EXPECT_TRUE(serves(r, "a", 0, of_a));
    EXPECT_EQ(r.version(), version);
    EXPECT_EQ(r.release("b"), not_pinned);
  };
  const auto pages = p.in_use();
  fail_read = true;
  EXPECT_EQ(r.acquire("b").code, not_read);
  fail_read = false;
  EXPECT_FALSE(r.is_cached("b"));
  expect_as_before();
  for (std::size_t nth = 1; nth <= 4; ++nth) {
    copies.fail_copy = nth;
    EXPECT_EQ(r.acquire("b").code, not_copied) << nth;
    EXPECT_TRUE(copies.begun.empty()) << "nothing is copied into memory that is gone";
    expect_as_before();
  }
  copies.fail_fence = true;
  EXPECT_EQ(r.acquire("b").code, not_copied);
  expect_as_before();
  ASSERT_EQ(p.trim(0), memory_status::ok);
  std::size_t steps = 0;
  for (;; ++steps) {
    memory.fail(steps + 1);
    const auto got = r.acquire("b");
    memory.fail(0);
    if (got.code == ok) break;
    ASSERT_EQ(got.code, not_mapped);
    expect_as_before();
    ASSERT_EQ(p.in_use(), pages);
    ASSERT_EQ(p.trim(0), memory_status::ok);
  }
  EXPECT_EQ(steps, 18U) << "nine pages are created and mapped, two are shared";
  EXPECT_TRUE(serves(r, "b", 1, of_b));
  EXPECT_TRUE(serves(r, "a", 0, of_a));
}

/// Expected state of a registry, computed from the definitions.
class registry_model {
 public:
  struct adapter {
    std::vector<std::vector<expert_id>> tuned{};
    std::int32_t index = -1;
    std::uint32_t pins = 0;
    std::uint64_t used = 0;
    std::vector<expert_id> first{4_expert, 4_expert};  ///< place in each layer
  };
  struct room {
    events leaving{};
    std::int32_t index = -1;
    std::vector<expert_id> first{};
  };
  std::map<std::string, adapter, std::less<>> known{};
  std::size_t page = 0;
  std::uint64_t bound = 0;
  std::int32_t places = 0;
  std::int32_t dense_places = 0;  ///< per layer; 0: strided

  /// Adapters to unload for a new adapter, and its index and places. Nothing if unloading cannot make room.
  std::optional<room> room_for(const std::string& name) {
    auto& wanted = known.find(name)->second;
    const auto before = wanted.first;
    auto there = there_now();
    room out;
    for (;;) {
      out.index = 0;
      while (there.contains(out.index)) ++out.index;
      if (out.index < places && find_places(there, out.index, wanted)) {
        auto with = there;
        with[out.index] = name;
        out.first = wanted.first;
        const bool fits = pages(with) <= bound;
        wanted.first = before;
        if (fits) return out;
      }
      auto oldest = there.end();
      for (auto t = there.begin(); t != there.end(); ++t)
        if (known.find(t->second)->second.pins == 0 &&
            (oldest == there.end() ||
             known.find(t->second)->second.used < known.find(oldest->second)->second.used))
          oldest = t;
      if (oldest == there.end()) return std::nullopt;
      out.leaving.push_back(oldest->second);
      there.erase(oldest);
    }
  }
  [[nodiscard]] std::uint64_t pages_now() const { return pages(there_now()); }
  [[nodiscard]] std::size_t places_in_use() const {
    std::size_t count = 0;
    for (const auto& [index, name] : there_now())
      for (const auto& layer : known.find(name)->second.tuned) count += layer.size();
    return count;
  }

 private:
  using names = std::map<std::int32_t, std::string>;

  [[nodiscard]] names there_now() const {
    names there;
    for (const auto& [n, a] : known)
      if (a.index >= 0) there[a.index] = n;
    return there;
  }
  /// Finds the first gap in each layer, or the index's own places.
  bool find_places(const names& there, std::int32_t index, adapter& wanted) const {
    std::vector<expert_id> found;
    for (std::size_t l = 0; l < 2; ++l) {
      const auto count = static_cast<std::int32_t>(wanted.tuned[l].size());
      if (dense_places == 0) found.push_back(4_expert + 3 * index);
      if (dense_places == 0) continue;
      std::set<expert_id> taken;
      for (const auto& [i, name] : there) {
        const auto& other = known.find(name)->second;
        for (std::size_t k = 0; k < other.tuned[l].size(); ++k)
          taken.insert(other.first[l] + static_cast<std::int32_t>(k));
      }
      auto at = 4_expert;
      const auto is_free = [&] {
        for (std::int32_t k = 0; k < count; ++k)
          if (taken.contains(at + k)) return false;
        return true;
      };
      while (at + count <= 4 + dense_places && !is_free()) ++at;
      if (at + count > 4 + dense_places) return false;
      found.push_back(at);
    }
    wanted.first = found;
    return true;
  }
  [[nodiscard]] std::uint64_t pages(const names& there) const {
    std::uint64_t count = 0;
    for (std::size_t l = 0; l < 2; ++l)
      for (const auto bytes : {page + page / 2, page / 2 + page / 4}) {
        std::set<std::size_t> touched;
        for (const auto& [index, name] : there) {
          const auto& a = known.find(name)->second;
          for (std::size_t e = 0; e < a.tuned[l].size(); ++e) {
            const auto first = (static_cast<std::size_t>(a.first[l]) + e) * bytes;
            for (auto p = first / page; p <= (first + bytes - 1) / page; ++p) touched.insert(p);
          }
        }
        const auto base = (4 * bytes + page - 1) / page;
        count += static_cast<std::uint64_t>(
            std::ranges::count_if(touched, [&](auto p) { return p >= base; }));
      }
    return count;
  }
};

/// Strided places, or dense ones with so many places that a layer can run out although pages are left. Pages belong
/// to a fixed pool, or to a resizable one, or come from a budget whose limit changes and that others use.
struct walk_of {
  adapter_placement placement = adapter_placement::strided;
  bool shares = false;
};
class adapter_registry_walk : public adapter_registry_steps,
                              public testing::WithParamInterface<walk_of> {};
INSTANTIATE_TEST_SUITE_P(placements, adapter_registry_walk,
                         testing::Values(walk_of{adapter_placement::strided},
                                         walk_of{adapter_placement::dense},
                                         walk_of{adapter_placement::strided, true},
                                         walk_of{adapter_placement::dense, true}),
                         [](const auto& chosen) {
                           const bool dense = chosen.param.placement == adapter_placement::dense;
                           return std::string(dense ? "dense" : "strided") +
                                  (chosen.param.shares ? "_within_a_budget" : "");
                         });

TEST_P(adapter_registry_walk, agrees_with_a_simple_model_after_each_of_100000_operations) {
  const bool is_dense = GetParam().placement == adapter_placement::dense;
  support::random_source random(5);
  const std::uint32_t most_pages = is_dense ? 22 : 26;
  memory_budget budget(most_pages * page);
  std::uint64_t others = 0;  // bytes that other users have taken
  auto p = pool(most_pages, GetParam().shares ? &budget : nullptr);
  std::map<status, std::size_t> resizes;
  /// Other users take or return bytes, the limit changes, or the pool is resized.
  const auto change_memory = [&] {
    const auto before = p.bound();
    const auto some = random.below(8) * page;
    switch (random.below(5)) {
      case 0: return budget.set_limit((10 + random.below(most_pages)) * page);
      case 1:
        if (budget.take(some)) others += some;
        return;
      case 2: budget.give_back(std::exchange(others, 0)); return;
      case 3: ASSERT_EQ(p.trim(random.below(4)), memory_status::ok); return;
      default: break;
    }
    const auto units = random.below(most_pages + 2);
    const auto got = random.one_in(2) ? p.shrink(units) : p.grow(units);
    ++resizes[got];
    ASSERT_EQ(p.bound(), got == status::ok ? units : before);
  };
  auto setup = shape(3);
  setup.most_known = 8;
  setup.placement = GetParam().placement;
  setup.places = is_dense ? 6 : 0;
  auto r = registry(p, setup);
  registry_model model{{}, page, most_pages, 3, is_dense ? 6 : 0};
  std::size_t moved = 0;  // to places that no stride gives
  const auto add = [&](const std::string& name) {
    std::vector<std::vector<expert_id>> tuned(2);
    for (auto& layer : tuned)
      for (const auto e : each<expert_id>(4))
        if (layer.size() < 3 && random.one_in(2)) layer.push_back(e);
    EXPECT_FALSE(r.add(name, tuned));
    model.known[name].tuned = tuned;
  };
  for (const auto* const name : {"a", "b", "c", "d", "e", "f", "g", "h"}) add(name);
  /// A kernel that started with earlier maps and has not ended.
  struct reader {
    std::string name;
    std::vector<std::vector<expert_id>> rows;
  };
  std::vector<reader> readers;
  std::size_t reads = 0;
  copies.on_wait = [&] {
    for (const auto& one : readers)
      for (std::size_t l = 0; l < 2; ++l)
        for (const auto e : each<expert_id>(4))
          for (std::size_t w = 0; w < 2; ++w) {
            const auto place = one.rows[l][index_of(e)];
            if (place < 4) continue;
            const auto layer = static_cast<layer_id>(l);
            EXPECT_EQ(r.tensor(layer, w).bytes(place).front(), content(one.name, layer, w, e));
            ++reads;
          }
    readers.clear();
  };
  std::map<adapter_status, std::size_t> outcomes;
  std::uint64_t clock = 0;
  std::size_t idle = 0;
  std::size_t forgotten = 0;
  for (int n = 0; n < 100'000; ++n) {
    SCOPED_TRACE(n);
    if (n % 64 == 0) log.clear();
    if (GetParam().shares) {
      if (random.one_in(8)) change_memory();
      ASSERT_EQ(budget.in_use(), others + p.capacity() * page);
      const auto left = budget.limit() - std::min(budget.limit(), budget.in_use());
      model.bound = std::min(p.bound(), p.capacity() + left / page);
    }
    const std::string name(1, static_cast<char>('a' + random.below(8)));
    if (!model.known.contains(name)) {
      ASSERT_EQ(r.forget(name), unknown);
      add(name);
      ASSERT_FALSE(r.is_cached(name));
    }
    auto& a = model.known.find(name)->second;
    const auto what = random.below(9);
    if (what < 3) {
      fail_read = random.one_in(16);
      copies.fail_copy = random.one_in(8) ? 1 + random.below(4) : 0;
      copies.fail_fence = random.one_in(16);
      copies.fail_wait = random.one_in(16);
      memory.fail(random.one_in(8) && idle == 0 ? 1 + random.below(24) : 0);
      const bool disturbed = fail_read || copies.fail_copy != 0 || copies.fail_fence ||
                             copies.fail_wait || memory.armed();
      const auto planned = a.index < 0 ? model.room_for(name) : std::nullopt;
      const auto got = r.acquire(name);
      fail_read = copies.fail_fence = copies.fail_wait = false;
      copies.fail_copy = 0;
      memory.fail(0);
      ++outcomes[got.code];
      if (a.index >= 0) {
        ASSERT_EQ(got.code, ok);
        ASSERT_EQ(got.index, a.index);
      } else {
        ASSERT_EQ(got.code == no_room, !planned.has_value());
        ASSERT_TRUE(got.code == ok || !planned || disturbed) << describe(got.code);
        // Unloading removed the first adapters of the plan; all of them if the new adapter was loaded.
        if (planned)
          for (const auto& gone : planned->leaving) {
            if (r.index_of(gone) >= 0) {
              ASSERT_NE(got.code, ok);
              break;
            }
            model.known.find(gone)->second.index = -1;
          }
        if (got.code == ok) {
          ASSERT_EQ(got.index, planned->index);
          a.index = got.index;
          a.first = planned->first;
          for (const auto l : each<layer_id>(2)) {
            const auto of = index_of(l);
            if (a.tuned[of].empty()) continue;
            ASSERT_EQ(r.map(l).first_place(a.index), a.first[of]);
            if (a.first[of] != 4 + 3 * a.index) ++moved;
          }
        }
      }
      if (got.code == ok) {
        ++a.pins;
        a.used = ++clock;
        reader one{name, {}};
        for (const auto l : each<layer_id>(2))
          one.rows.emplace_back(r.map(l).row(got.index).begin(), r.map(l).row(got.index).end());
        if (readers.size() < 8) readers.push_back(one);
      }
    } else if (what < 7) {
      auto it = model.known.find(name);
      if (!random.one_in(8))
        for (std::size_t tried = 0; tried < 8 && it->second.pins == 0; ++tried)
          if (++it == model.known.end()) it = model.known.begin();
      ASSERT_EQ(r.release(it->first), it->second.pins == 0 ? not_pinned : ok);
      if (it->second.pins != 0) --it->second.pins;
    } else {
      copies.fail_wait = random.one_in(4);
      memory.fail(random.one_in(4) ? 1 + random.below(4) : 0);
      const bool waits = copies.fail_wait && a.index >= 0;
      const bool forgets = what == 8;
      const auto code = forgets ? r.forget(name) : r.unload(name);
      copies.fail_wait = false;
      memory.fail(0);
      ASSERT_EQ(code, a.pins != 0 ? pinned : waits ? not_drained : ok);
      if (code == ok) a.index = -1;
      if (code == ok && forgets) {
        ASSERT_EQ(r.release(name), unknown);
        model.known.erase(name);
        ++forgotten;
      }
    }
    idle = 0;
    for (const auto l : each<layer_id>(2))
      for (const std::size_t w : {0U, 1U}) idle += r.tensor(l, w).idle_pages();
    ASSERT_EQ(p.in_use(), model.pages_now() + idle);
    ASSERT_LE(r.host_bytes(), setup.host_bytes);
    std::size_t cached = 0;
    for (const auto& [each, m] : model.known)
      if (r.is_cached(each)) cached += m.tuned[0].size() + m.tuned[1].size();
    ASSERT_EQ(r.host_bytes(), cached * (2 * page + page / 4));
    std::set<std::int32_t> empty{0, 1, 2};
    for (const auto& [each, m] : model.known) {
      ASSERT_EQ(r.index_of(each), m.index);
      if (m.index < 0) continue;
      empty.erase(m.index);
      ASSERT_TRUE(serves(r, each, m.index, m.tuned)) << each;
    }
    for (const auto index : empty) ASSERT_TRUE(redirects_nothing(r, index));
    ASSERT_EQ(backed_places(r), model.places_in_use());
  }
  EXPECT_EQ(moved > 1000, is_dense);
  for (const auto code : {ok, no_room, not_read, not_mapped, not_copied, not_drained})
    EXPECT_GT(outcomes[code], 100U) << describe(code);
  EXPECT_GT(reads, 1000U);
  EXPECT_GT(forgotten, 1000U);
  if (!GetParam().shares) return;
  for (const auto code : {status::ok, status::invalid_argument, status::exceeds_memory})
    EXPECT_GT(resizes[code], 100U) << describe(code);
}

}  // namespace
}  // namespace hotset::adapter_registry_test
