// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/virtual_weight_tensor.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory_entries.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::virtual_weight_tensor_test {
namespace {

using testing::HasSubstr;
using enum memory_status;

/// Host memory with pages of the machine's size or a device's. Queries the memory object, which is faster than the
/// kernel.
template <std::size_t PageBytes, std::size_t Operations>
struct host_entry : support::host_memory_entry {
  static constexpr std::size_t operations = Operations;
  [[nodiscard]] std::size_t page_bytes() const {
    return PageBytes == 0 ? memory.granularity() : PageBytes;
  }
  [[nodiscard]] std::uint64_t physical_bytes() { return memory.behind().physical_bytes(); }
  static std::byte* touch(std::byte* at) { return at; }
  static void expect_mappings(std::size_t) {}
};

/// Memory of a driver without a device, which records mappings and access rights.
struct cuda_entry : support::cuda_memory_entry {
  static constexpr std::size_t operations = 3000;
  cuda_entry() : cuda_memory_entry{.driver = support::fake_cuda_driver(65536)} {}
  ~cuda_entry() {
    EXPECT_TRUE(driver.leaks().empty()) << driver.leaks().front();
    EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
  }
  static std::size_t page_bytes() { return 65536; }
  void expect_mappings(std::size_t count) const { EXPECT_EQ(mappings(), count); }
};

using entries =
    testing::Types<host_entry<0, 100'000>, host_entry<std::size_t{2} << 20, 400>, cuda_entry>;

template <class Entry>
class virtual_weight_tensors : public testing::Test {
 protected:
  using memory_type = typename Entry::memory_type;
  using pool_type = page_pool<memory_type>;
  using tensor_type = virtual_weight_tensor<memory_type>;
  static_assert(!std::is_copy_constructible_v<tensor_type>);
  static_assert(std::is_nothrow_move_constructible_v<tensor_type>);

  void TearDown() override {
    EXPECT_EQ(entry.physical_bytes(), 0U);
    EXPECT_EQ(entry.reserved_bytes(), 0U);
  }
  pool_type pool(std::uint32_t most) {
    return pool_type::create(entry.memory, {.page_bytes = page, .most_pages = most}).value();
  }
  /// Experts of one and a half pages, as in Figure 3.
  tensor_type tensor(pool_type& from, std::int32_t base, std::int32_t places) {
    return tensor_type::create(from, {base, places, page + page / 2}).value();
  }
  void write(std::span<std::byte> bytes, int value) {
    for (std::size_t at = 0; at < bytes.size(); at += page / 2)
      ASSERT_TRUE(entry.has_access(&bytes[at]));
    ASSERT_TRUE(entry.has_access(&bytes.back()));
    std::ranges::fill(bytes, static_cast<std::byte>(value));
  }
  bool holds(std::span<std::byte> bytes, int value) {
    return entry.has_access(&bytes.front()) && entry.has_access(&bytes.back()) &&
           std::ranges::all_of(bytes, [&](auto b) { return b == static_cast<std::byte>(value); });
  }

  Entry entry;
  const std::size_t page = entry.page_bytes();
};
TYPED_TEST_SUITE(virtual_weight_tensors, entries);

// Figure 3: E_max = 3, an expert takes one and a half pages, the first adapter has two experts and the second has
// one.
TYPED_TEST(virtual_weight_tensors, memory_is_only_where_experts_are) {
  auto pool = this->pool(16);
  auto t = this->tensor(pool, 4, 6);
  const auto unit = this->page;
  EXPECT_EQ(t.addresses().size(), 15 * unit);
  EXPECT_EQ(t.physical_bytes(), 6 * unit) << "the base model";
  ASSERT_EQ(t.place(4_expert, 2), ok);
  EXPECT_EQ(pool.in_use(), 3U) << "pages 6 to 8";
  ASSERT_EQ(t.place(7_expert, 1), ok);
  EXPECT_EQ(pool.in_use(), 5U) << "pages 10 and 11, the first of them by half";
  EXPECT_EQ(t.physical_bytes(), 11 * unit);
  EXPECT_EQ(this->entry.physical_bytes(), 11 * unit);
  EXPECT_EQ(t.bytes(7_expert).data() - t.addresses().data(),
            static_cast<std::ptrdiff_t>(10 * unit + unit / 2));
  EXPECT_EQ(t.bytes(7_expert).size(), unit + unit / 2);
  std::vector<bool> backed;
  for (auto e = no_expert; e <= 10; ++e) backed.push_back(t.is_backed(e));
  EXPECT_EQ(backed, (std::vector<bool>{false, true, true, true, true, true, true, false, true,
                                       false, false, false}));
  const auto there = support::expert_ids({0, 1, 2, 3, 4, 5, 7});
  for (const auto e : there) this->write(t.bytes(e), number(e) + 1);
  for (const auto e : there) EXPECT_TRUE(this->holds(t.bytes(e), number(e) + 1)) << e;
  ASSERT_EQ(t.remove(4_expert, 2), ok);
  EXPECT_EQ(pool.in_use(), 2U);
  ASSERT_EQ(t.remove(7_expert, 1), ok);
  EXPECT_EQ(pool.in_use(), 0U);
  EXPECT_EQ(pool.capacity(), 5U) << "kept for the next adapter";
}

TYPED_TEST(virtual_weight_tensors, neighbours_share_the_page_that_both_touch) {
  auto pool = this->pool(16);
  auto t = this->tensor(pool, 4, 6);
  ASSERT_EQ(t.place(4_expert, 3), ok);
  EXPECT_EQ(pool.in_use(), 5U) << "pages 6 to 10";
  ASSERT_EQ(t.place(7_expert, 1), ok);
  EXPECT_EQ(pool.in_use(), 6U) << "page 10 is shared";
  this->write(t.bytes(6_expert), 1);
  this->write(t.bytes(7_expert), 2);
  EXPECT_TRUE(this->holds(t.bytes(6_expert), 1));
  ASSERT_EQ(t.remove(4_expert, 3), ok);
  EXPECT_EQ(pool.in_use(), 2U);
  EXPECT_TRUE(this->holds(t.bytes(7_expert), 2)) << "the shared page stays";
  ASSERT_EQ(t.place(4_expert, 3), ok);
  EXPECT_TRUE(this->holds(t.bytes(7_expert), 2));
  ASSERT_EQ(t.remove(7_expert, 1), ok);
  ASSERT_EQ(t.remove(4_expert, 3), ok);
  EXPECT_EQ(pool.in_use(), 0U);
}

TYPED_TEST(virtual_weight_tensors, an_invalid_placement_or_removal_changes_nothing) {
  auto pool = this->pool(4);
  auto t = this->tensor(pool, 4, 6);
  ASSERT_EQ(t.place(5_expert, 2), ok);
  EXPECT_EQ(pool.in_use(), 4U) << "pages 7 to 10";
  EXPECT_EQ(t.place(3_expert, 1), invalid_argument) << "the base model's";
  EXPECT_EQ(t.place(9_expert, 2), invalid_argument) << "beyond the end";
  EXPECT_EQ(t.place(9_expert, std::numeric_limits<std::int32_t>::max()), invalid_argument);
  EXPECT_EQ(t.place(4_expert, -1), invalid_argument);
  EXPECT_EQ(t.place(no_expert, 1), invalid_argument);
  EXPECT_EQ(t.place(6_expert, 2), in_use);
  EXPECT_EQ(t.place(4_expert, 2), in_use);
  EXPECT_EQ(t.place(9_expert, 1), out_of_memory);
  EXPECT_EQ(t.remove(5_expert, 1), invalid_argument) << "a part";
  EXPECT_EQ(t.remove(6_expert, 1), invalid_argument) << "the other part";
  EXPECT_EQ(t.remove(5_expert, 3), invalid_argument) << "more";
  EXPECT_EQ(t.remove(8_expert, 1), invalid_argument) << "nothing is there";
  EXPECT_EQ(t.remove(3_expert, 1), invalid_argument);
  EXPECT_EQ(t.place(7_expert, 0), ok);
  EXPECT_EQ(t.remove(7_expert, 0), ok);
  EXPECT_EQ(pool.in_use(), 4U);
  EXPECT_TRUE(t.is_backed(5_expert) && t.is_backed(6_expert));
  EXPECT_FALSE(t.is_backed(4_expert) || t.is_backed(7_expert) || t.is_backed(9_expert));
}

TYPED_TEST(virtual_weight_tensors, a_failed_placement_has_no_effect_at_any_step) {
  auto pool = this->pool(16);
  auto t = this->tensor(pool, 4, 6);
  ASSERT_EQ(t.place(7_expert, 1), ok);
  this->write(t.bytes(7_expert), 9);
  const auto capacity = pool.capacity();
  const auto bytes = t.physical_bytes();
  std::size_t steps = 0;
  for (;; ++steps) {
    this->entry.fail(steps + 1);
    const auto code = t.place(4_expert, 3);
    this->entry.fail(0);
    if (code == ok) break;
    ASSERT_EQ(t.physical_bytes(), bytes) << steps;
    ASSERT_EQ(pool.capacity(), capacity) << steps;
    ASSERT_EQ(pool.in_use(), 2U) << steps;
    ASSERT_FALSE(t.is_backed(4_expert)) << steps;
    ASSERT_EQ(t.idle_pages(), 0U) << steps;
    ASSERT_TRUE(this->holds(t.bytes(7_expert), 9)) << steps;
  }
  EXPECT_GE(steps, 8U) << "4 pages are created and mapped";
  EXPECT_TRUE(this->holds(t.bytes(7_expert), 9));
}

TYPED_TEST(virtual_weight_tensors, a_page_that_is_not_unmapped_is_idle_and_tried_again) {
  auto pool = this->pool(16);
  auto t = this->tensor(pool, 4, 6);
  ASSERT_EQ(t.place(4_expert, 2), ok);
  this->entry.fail(2);
  EXPECT_EQ(t.remove(4_expert, 2), ok) << "the experts are gone, whatever the memory says";
  this->entry.fail(0);
  EXPECT_FALSE(t.is_backed(4_expert));
  EXPECT_EQ(t.idle_pages(), 1U);
  EXPECT_EQ(pool.in_use(), 1U) << "nobody else gets it";
  EXPECT_EQ(t.physical_bytes(), 7 * this->page);
  this->entry.fail(1);
  EXPECT_NE(t.reclaim(), ok);
  this->entry.fail(1);
  EXPECT_NE(t.place(4_expert, 2), ok) << "it is in the way";
  this->entry.fail(0);
  EXPECT_EQ(t.idle_pages(), 1U);
  ASSERT_EQ(t.place(8_expert, 2), ok) << "it is not in the way";
  ASSERT_EQ(t.place(4_expert, 2), ok);
  EXPECT_EQ(t.idle_pages(), 0U);
  EXPECT_EQ(pool.in_use(), 6U);
  this->write(t.bytes(4_expert), 3);
  this->entry.fail(1);
  ASSERT_EQ(t.remove(4_expert, 2), ok);
  this->entry.fail(0);
  EXPECT_EQ(t.idle_pages(), 1U);
  EXPECT_EQ(t.reclaim(), ok);
  EXPECT_EQ(pool.in_use(), 3U);
}

TYPED_TEST(virtual_weight_tensors, its_end_gives_everything_back) {
  auto pool = this->pool(16);
  {
    auto t = this->tensor(pool, 4, 6);
    ASSERT_EQ(t.place(4_expert, 3), ok);
    ASSERT_EQ(t.place(7_expert, 3), ok);
    auto moved = std::move(t);
    this->write(moved.bytes(7_expert), 1);
    EXPECT_EQ(pool.in_use(), 9U);
    this->entry.fail(1);
    ASSERT_EQ(moved.remove(7_expert, 3), ok);
    this->entry.fail(0);
    EXPECT_EQ(moved.idle_pages(), 1U);
  }
  EXPECT_EQ(pool.in_use(), 0U);
  EXPECT_EQ(this->entry.physical_bytes(), pool.capacity() * this->page);
}

TYPED_TEST(virtual_weight_tensors, a_failed_construction_has_a_reason_and_no_effect) {
  using made_type = typename TestFixture::tensor_type;
  auto pool = this->pool(1);
  const auto reason = [&](virtual_weight_tensor_config setup) {
    const auto made = made_type::create(pool, setup);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(reason({0, 1, 1}), HasSubstr("base_experts = 0, accepted: 1 or more"));
  EXPECT_THAT(reason({1, -1, 1}), HasSubstr("adapter_experts = -1"));
  EXPECT_THAT(reason({1 << 28, 1, 1}), HasSubstr("base_experts + adapter_experts = 268435457"));
  EXPECT_THAT(reason({1, 1, 0}), HasSubstr("expert_bytes = 0, accepted: 1.."));
  EXPECT_THAT(reason({1, 1, std::numeric_limits<std::size_t>::max()}), HasSubstr("expert_bytes"));
  EXPECT_THAT(reason({1, (1 << 24), this->page}), HasSubstr("pages = 16777217"));
  for (const std::size_t nth : {1U, 2U, 3U, 4U}) {
    this->entry.fail(nth);
    EXPECT_NE(reason({2, 2, this->page}), "accepted") << nth;
    this->entry.fail(0);
    EXPECT_EQ(this->entry.physical_bytes(), 0U);
    EXPECT_EQ(this->entry.reserved_bytes(), 0U);
  }
  EXPECT_EQ(reason({1, 0, 1}), "accepted");
}

/// Two tensors over one pool, their expected content by brute force, and random operations on both.
template <class Entry>
class tensor_walk {
 public:
  using memory_type = typename Entry::memory_type;
  using tensor_type = virtual_weight_tensor<memory_type>;

  tensor_walk(Entry& entry, std::uint64_t seed)
      : entry_(entry),
        page_(entry.page_bytes()),
        random_(seed),
        pool_(page_pool<memory_type>::create(entry.memory,
                                             {.page_bytes = page_, .most_pages = most_pages})
                  .value()) {
    subjects_.reserve(2);
    for (int n = 0; n < 2; ++n) {
      const auto base = 1 + random_.id_below(5);
      const auto stride = 1 + random_.id_below(4);
      const auto adapters = 1 + random_.id_below(4);
      // Expert size: from an eighth of a page to two and a half pages, even and uneven.
      const auto bytes = page_ / 8 * (1 + random_.below(20)) + (random_.one_in(2) ? 0 : 24);
      subjects_.push_back({tensor_type::create(pool_, {base, adapters * stride, bytes}).value(),
                           stride,
                           std::vector<int>(static_cast<std::size_t>(base + adapters * stride)),
                           {}});
      for (const auto e : each<expert_id>(base)) tag(subjects_.back(), e);
    }
  }
  void step() {
    auto& s = subjects_[random_.below(2)];
    const bool arms = random_.one_in(3);
    entry_.fail(arms ? 1 + random_.below(6) : 0);
    const auto what = random_.below(16);
    if (what < 8)
      place(s, arms);
    else if (what < 15)
      remove(s);
    else
      trim(arms);
    entry_.fail(0);
  }
  void check() {
    std::size_t of_base = 0;
    std::size_t of_adapters = 0;
    std::size_t idle = 0;
    for (auto& s : subjects_) {
      const auto touched = pages_of(s);
      const auto base = base_pages(s);
      ASSERT_EQ(
          s.tensor.physical_bytes(),
          (static_cast<std::size_t>(std::ranges::count(touched, true)) + s.tensor.idle_pages()) *
              page_);
      of_base += base;
      of_adapters += static_cast<std::size_t>(
          std::count(touched.begin() + static_cast<std::ptrdiff_t>(base), touched.end(), true));
      idle += s.tensor.idle_pages();
      for (std::size_t e = 0; e < s.tags.size(); ++e) {
        ASSERT_EQ(s.tensor.is_backed(static_cast<expert_id>(e)), s.tags[e] != 0);
        if (s.tags[e] != 0) check_bytes(s, static_cast<expert_id>(e));
      }
    }
    ASSERT_EQ(pool_.in_use(), of_adapters + idle);
    ASSERT_EQ(entry_.physical_bytes(), (of_base + pool_.capacity()) * page_);
    entry_.expect_mappings(of_adapters + idle + subjects_.size());
    ASSERT_LE(pool_.capacity(), most_pages);
  }
  /// Unmaps the pages whose unmapping was made to fail.
  void reclaim() {
    for (auto& s : subjects_) ASSERT_EQ(s.tensor.reclaim(), ok);
  }
  std::map<std::string, std::size_t> outcomes{};

 private:
  static constexpr std::uint32_t most_pages = 10;
  struct subject {
    tensor_type tensor;
    std::int32_t stride;
    std::vector<int> tags;  ///< by virtual expert; 0: no expert
    std::map<expert_id, std::int32_t> placements;
  };

  [[nodiscard]] std::size_t expert_bytes(const subject& s) const {
    return s.tensor.shape().expert_bytes;
  }
  [[nodiscard]] std::size_t base_pages(const subject& s) const {
    return (static_cast<std::size_t>(s.tensor.shape().base_experts) * expert_bytes(s) + page_ - 1) /
           page_;
  }
  /// Definition: a page has memory if a present expert has a byte in it.
  [[nodiscard]] std::vector<bool> pages_of(const subject& s, expert_id first = 0_expert,
                                           std::int32_t count = 0) const {
    std::vector<bool> touched(s.tensor.addresses().size() / page_);
    for (std::size_t e = 0; e < s.tags.size(); ++e) {
      const auto id = static_cast<expert_id>(e);
      if (s.tags[e] == 0 && (id < first || id >= first + count)) continue;
      const auto end = (e + 1) * expert_bytes(s);
      for (auto at = e * expert_bytes(s); at < end; at = (at / page_ + 1) * page_)
        touched[at / page_] = true;
    }
    return touched;
  }
  [[nodiscard]] std::size_t missing(const subject& s, expert_id first, std::int32_t count) const {
    const auto before = pages_of(s);
    const auto after = pages_of(s, first, count);
    return static_cast<std::size_t>(std::ranges::count(after, true) -
                                    std::ranges::count(before, true));
  }
  /// Calls `visit` for the first and last byte of an expert in each of its pages.
  template <class Visit>
  void at_edges(subject& s, expert_id e, Visit visit) {
    const auto bytes = s.tensor.bytes(e);
    const auto first = static_cast<std::size_t>(bytes.data() - s.tensor.addresses().data());
    for (auto at = first; at < first + bytes.size(); at = (at / page_ + 1) * page_) {
      visit(&bytes[at - first]);
      visit(&bytes[std::min((at / page_ + 1) * page_, first + bytes.size()) - first - 1]);
    }
  }
  void tag(subject& s, expert_id e) {
    next_tag_ = next_tag_ % 255 + 1;
    s.tags[index_of(e)] = next_tag_;
    at_edges(s, e, [&](std::byte* at) { ASSERT_NE(entry_.touch(at), nullptr); });
    std::ranges::fill(s.tensor.bytes(e), static_cast<std::byte>(next_tag_));
  }
  void check_bytes(subject& s, expert_id e) {
    at_edges(s, e, [&](std::byte* at) {
      const auto* const byte = entry_.touch(at);
      ASSERT_NE(byte, nullptr);
      ASSERT_EQ(std::to_integer<int>(*byte), s.tags[index_of(e)])
          << "another's byte in expert " << e;
    });
  }
  void place(subject& s, bool arms) {
    const auto experts = static_cast<std::int32_t>(s.tags.size());
    const auto base = s.tensor.shape().base_experts;
    const bool strided = random_.one_in(2);
    const expert_id first{strided ? base + s.stride * random_.id_below(4)
                                  : random_.id_below(experts + 1)};
    const auto count = random_.id_below(strided ? s.stride + 1 : 5);
    auto expected = ok;
    if (first < base || first + count > experts)
      expected = invalid_argument;
    else if (std::any_of(s.tags.begin() + number(first), s.tags.begin() + number(first) + count,
                         [](int t) { return t != 0; }))
      expected = in_use;
    else if (missing(s, first, count) > pool_.bound() - pool_.in_use())
      expected = out_of_memory;
    const auto capacity = pool_.capacity();
    const auto code = s.tensor.place(first, count);
    if (arms && !entry_.armed()) {
      ASSERT_NE(code, ok);
      ASSERT_EQ(pool_.capacity(), capacity);
      ++outcomes["a place that failed"];
      return;
    }
    ASSERT_EQ(code, expected);
    ++outcomes["place: " + std::string(describe(code))];
    if (code != ok || count == 0) return;
    entry_.fail(0);
    s.placements[first] = count;
    for (auto e = first; e < first + count; ++e) tag(s, e);
  }
  void remove(subject& s) {
    expert_id first{random_.id_below(static_cast<std::int32_t>(s.tags.size()) + 1)};
    auto count = 1 + random_.id_below(4);
    if (!s.placements.empty() && !random_.one_in(8)) {
      auto p = s.placements.begin();
      std::advance(p, static_cast<std::ptrdiff_t>(random_.below(s.placements.size())));
      std::tie(first, count) = *p;
    }
    const auto p = s.placements.find(first);
    const bool is_there = p != s.placements.end() && p->second == count;
    ASSERT_EQ(s.tensor.remove(first, count), is_there ? ok : invalid_argument);
    ++outcomes[is_there ? "removed" : "remove: refused"];
    if (!is_there) return;
    s.placements.erase(p);
    std::fill_n(s.tags.begin() + number(first), count, 0);
    if (s.tensor.idle_pages() != 0) ++outcomes["an idle page"];
  }
  void trim(bool arms) {
    const auto capacity = pool_.capacity();
    const auto keep = random_.below(6);
    const auto left = pool_.in_use() + std::min(pool_.free(), keep);
    const auto code = pool_.trim(keep);
    const bool failed_a_step = arms && !entry_.armed();
    ASSERT_EQ(code == ok, !failed_a_step);
    ASSERT_EQ(pool_.capacity(), failed_a_step ? capacity : left);
    ++outcomes[failed_a_step ? "a trim that failed" : "trimmed"];
  }

  Entry& entry_;
  std::size_t page_;
  support::random_source random_;
  page_pool<memory_type> pool_;
  std::vector<subject> subjects_{};
  int next_tag_ = 0;
};

TYPED_TEST(virtual_weight_tensors, agree_with_the_closed_form_after_every_operation) {
  constexpr std::size_t per_configuration = std::min<std::size_t>(TypeParam::operations / 4, 500);
  std::map<std::string, std::size_t> outcomes;
  for (std::uint64_t seed = 1; seed <= TypeParam::operations / per_configuration; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    tensor_walk<TypeParam> walk(this->entry, seed);
    walk.check();
    for (std::size_t n = 0; n < per_configuration && !this->HasFailure(); ++n) {
      walk.step();
      walk.check();
      walk.reclaim();
      walk.check();
    }
    if (this->HasFailure()) return;
    for (const auto& [what, count] : walk.outcomes) outcomes[what] += count;
  }
  const auto least = TypeParam::operations / 200;
  for (const auto* const what :
       {"place: ok", "place: the range is mapped", "place: out of memory",
        "place: invalid size, offset, range or block", "a place that failed", "removed",
        "remove: refused", "an idle page", "trimmed"})
    EXPECT_GT(outcomes[what], least) << what;
}

/// Three experts of one and a half pages, and places for twelve more.
struct virtual_weight_tensor_on_cuda : testing::Test {
  using memory_type = cuda::virtual_memory;
  using call = support::fake_cuda_driver::call;
  cuda_entry entry;
  page_pool<memory_type> pool =
      page_pool<memory_type>::create(entry.memory, {.page_bytes = 65536, .most_pages = 64}).value();
  virtual_weight_tensor<memory_type> t =
      virtual_weight_tensor<memory_type>::create(pool, {3, 12, 3 * 65536 / 2}).value();
};

// On a device, each access call costs as much as mapping many pages.
TEST_F(virtual_weight_tensor_on_cuda, gives_access_once_for_each_placement) {
  EXPECT_EQ(entry.driver.calls(call::set_access), 1U) << "the base model is one block";
  EXPECT_EQ(entry.driver.calls(call::map), 1U);
  ASSERT_EQ(t.place(3_expert, 4), ok);
  EXPECT_EQ(entry.driver.calls(call::map), 1U + 6U)
      << "pages 4 to 10, the first of them the base model's";
  EXPECT_EQ(entry.driver.calls(call::set_access), 2U);
  ASSERT_EQ(t.place(7_expert, 4), ok);
  EXPECT_EQ(entry.driver.calls(call::set_access), 3U);
}

TEST_F(virtual_weight_tensor_on_cuda, a_page_without_access_is_mapped_anew_before_it_is_used) {
  entry.driver.fail(call::set_access, 1);
  for (const std::size_t nth : {1U, 7U, 8U}) entry.driver.fail(call::unmap, nth);
  EXPECT_EQ(t.place(3_expert, 4), out_of_memory);
  EXPECT_FALSE(entry.driver.armed());
  EXPECT_EQ(t.idle_pages(), 1U);
  EXPECT_EQ(t.physical_bytes(), 6U * 65536) << "the base model's and the one that stayed";
  EXPECT_FALSE(t.is_backed(3_expert));
  ASSERT_EQ(t.place(6_expert, 1), ok) << "page 10 is its last";
  EXPECT_EQ(t.idle_pages(), 0U);
  EXPECT_NE(entry.driver.touch(&t.bytes(6_expert).front()), nullptr);
  EXPECT_NE(entry.driver.touch(&t.bytes(6_expert).back()), nullptr);
}

}  // namespace
}  // namespace hotset::virtual_weight_tensor_test
