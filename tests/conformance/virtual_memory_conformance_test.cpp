// SPDX-License-Identifier: Apache-2.0
// Every virtual_memory joins here, with its entry of memory_entries.hpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/transfer/memory/virtual_memory.hpp"
#include "memory_entries.hpp"
#include "random_source.hpp"

namespace hotset::virtual_memory_conformance_test {
namespace {

using enum memory_status;

using entries = testing::Types<support::host_memory_entry, support::cuda_memory_entry>;

template <class Entry>
class virtual_memory_conformance : public testing::Test {
 protected:
  using memory_type = typename Entry::memory_type;
  static_assert(virtual_memory<memory_type>);

  void TearDown() override {
    EXPECT_EQ(entry.mappings(), 0U);
    EXPECT_EQ(entry.physical_bytes(), 0U);
    EXPECT_EQ(entry.reserved_bytes(), 0U);
    for (const auto& v : entry.violations()) ADD_FAILURE() << v;
  }
  std::span<std::byte> reserve(std::size_t units) {
    std::span<std::byte> range;
    EXPECT_EQ(subject.reserve(units * granule, range), ok);
    return range;
  }
  memory_block block(std::size_t units = 1) {
    memory_block made;
    EXPECT_EQ(subject.create_block(units * granule, made), ok);
    return made;
  }
  virtual_range<memory_type> range(std::size_t units) {
    return virtual_range<memory_type>::reserve(subject, units * granule).value();
  }
  /// Runs `attempt` with each of its steps failing in turn, and `check_nothing_changed` after each failure. Returns
  /// the number of failures.
  template <class Attempt, class Check>
  std::size_t fail_each_step(Attempt attempt, Check check_nothing_changed) {
    for (std::size_t n = 1; n < 100; ++n) {
      SCOPED_TRACE("step " + std::to_string(n));
      entry.fail(n);
      const auto code = attempt();
      const bool failed_a_step = !entry.armed();
      entry.fail(0);
      if (code == ok) return n - 1;
      EXPECT_TRUE(failed_a_step);
      check_nothing_changed();
    }
    ADD_FAILURE() << "fails without a reason";
    return 0;
  }
  void write(std::byte* at, int value) {
    auto* const byte = entry.touch(at);
    ASSERT_NE(byte, nullptr);
    *byte = static_cast<std::byte>(value);
  }
  int read(std::byte* at) {
    const auto* const byte = entry.touch(at);
    return byte == nullptr ? -1 : std::to_integer<int>(*byte);
  }

  Entry entry;
  memory_type& subject = entry.memory;
  const std::size_t granule = subject.granularity();
};
TYPED_TEST_SUITE(virtual_memory_conformance, entries);

TYPED_TEST(virtual_memory_conformance, one_block_shows_the_same_bytes_at_every_place) {
  auto& memory = this->subject;
  const auto unit = this->granule;
  const auto first = this->reserve(3);
  const auto second = this->reserve(2);
  const auto b = this->block(2);
  ASSERT_EQ(memory.map(first, unit, b), ok);
  ASSERT_EQ(memory.map(second, 0, b), ok);
  this->write(first.data() + unit, 11);
  this->write(second.data() + 2 * unit - 1, 22);
  EXPECT_EQ(this->read(second.data()), 11);
  EXPECT_EQ(this->read(first.data() + 3 * unit - 1), 22);
  EXPECT_EQ(this->entry.physical_bytes(), 2 * unit) << "shared, so taken once";
  ASSERT_EQ(memory.unmap(first, unit, 2 * unit), ok);
  EXPECT_EQ(this->read(second.data()), 11);
  ASSERT_EQ(memory.unmap(second, 0, 2 * unit), ok);
  EXPECT_EQ(memory.destroy_block(b), ok);
  EXPECT_EQ(memory.release(first), ok);
  EXPECT_EQ(memory.release(second), ok);
}

TYPED_TEST(virtual_memory_conformance, bytes_stay_in_their_block_while_it_is_mapped_nowhere) {
  auto& memory = this->subject;
  const auto unit = this->granule;
  const auto range = this->reserve(2);
  const auto a = this->block();
  const auto b = this->block();
  ASSERT_EQ(memory.map(range, 0, a), ok);
  this->write(range.data(), 1);
  ASSERT_EQ(memory.unmap(range, 0, unit), ok);
  ASSERT_EQ(memory.map(range, 0, b), ok);
  this->write(range.data(), 2);
  ASSERT_EQ(memory.map(range, unit, a), ok);
  EXPECT_EQ(this->read(range.data()), 2);
  EXPECT_EQ(this->read(range.data() + unit), 1);
  ASSERT_EQ(memory.unmap(range, 0, unit), ok);
  ASSERT_EQ(memory.unmap(range, unit, unit), ok);
  EXPECT_EQ(memory.destroy_block(a), ok);
  EXPECT_EQ(memory.destroy_block(b), ok);
  EXPECT_EQ(memory.release(range), ok);
}

TYPED_TEST(virtual_memory_conformance, a_destroyed_block_stays_while_it_is_mapped) {
  auto& memory = this->subject;
  const auto unit = this->granule;
  const auto range = this->reserve(2);
  const auto b = this->block();
  ASSERT_EQ(memory.map(range, 0, b), ok);
  ASSERT_EQ(memory.map(range, unit, b), ok);
  this->write(range.data(), 5);
  ASSERT_EQ(memory.destroy_block(b), ok);
  EXPECT_EQ(memory.destroy_block(b), invalid_argument);
  ASSERT_EQ(memory.unmap(range, 0, unit), ok);
  EXPECT_EQ(this->read(range.data() + unit), 5);
  EXPECT_EQ(memory.map(range, 0, b), invalid_argument);
  EXPECT_EQ(this->entry.physical_bytes(), unit);
  ASSERT_EQ(memory.unmap(range, unit, unit), ok);
  EXPECT_EQ(this->entry.physical_bytes(), 0U);
  EXPECT_EQ(memory.release(range), ok);
}

TYPED_TEST(virtual_memory_conformance, unaligned_arguments_are_refused_without_effect) {
  auto& memory = this->subject;
  const auto unit = this->granule;
  const auto range = this->reserve(4);
  const auto b = this->block();
  ASSERT_EQ(memory.map(range, unit, b), ok);
  this->write(range.data() + unit, 9);
  for (const auto bad : {std::size_t{0}, std::size_t{1}, unit - 1, unit + 1, unit / 2}) {
    std::span<std::byte> no_range;
    memory_block no_block;
    EXPECT_EQ(memory.reserve(bad, no_range), invalid_argument) << bad;
    EXPECT_EQ(memory.create_block(bad, no_block), invalid_argument) << bad;
    EXPECT_TRUE(no_range.empty());
    EXPECT_EQ(no_block, memory_block{});
  }
  for (const auto bad : {std::size_t{1}, unit - 1, 2 * unit + 1, unit / 2})
    EXPECT_EQ(memory.map(range, bad, b), invalid_argument) << bad;
  for (const auto bad : {4 * unit, 5 * unit, std::numeric_limits<std::size_t>::max() - unit + 1})
    EXPECT_EQ(memory.map(range, bad, b), invalid_argument) << bad;
  EXPECT_EQ(memory.unmap(range, unit, unit / 2), invalid_argument);
  EXPECT_EQ(memory.unmap(range, unit + 1, unit), invalid_argument);
  EXPECT_EQ(memory.release(range.first(2 * unit)), invalid_argument);
  EXPECT_EQ(memory.release(range.subspan(unit)), invalid_argument);
  EXPECT_EQ(memory.map(range, 2 * unit, memory_block{}), invalid_argument) << "no block";
  EXPECT_EQ(memory.map(range, 2 * unit, {b.id, 2 * unit}), invalid_argument) << "of another size";
  EXPECT_EQ(memory.destroy_block({b.id, 2 * unit}), invalid_argument);
  EXPECT_EQ(this->entry.mappings(), 1U);
  EXPECT_EQ(this->entry.physical_bytes(), unit);
  EXPECT_EQ(this->read(range.data() + unit), 9);
  ASSERT_EQ(memory.unmap(range, unit, unit), ok);
  EXPECT_EQ(memory.destroy_block(b), ok);
  EXPECT_EQ(memory.release(range), ok);
}

TYPED_TEST(virtual_memory_conformance, mapped_memory_is_neither_remapped_nor_released) {
  auto& memory = this->subject;
  const auto unit = this->granule;
  const auto range = this->reserve(4);
  const auto a = this->block();
  const auto b = this->block(2);
  ASSERT_EQ(memory.map(range, unit, b), ok);
  this->write(range.data() + unit, 3);
  this->write(range.data() + 2 * unit, 4);
  EXPECT_EQ(memory.map(range, unit, a), in_use);
  EXPECT_EQ(memory.map(range, 2 * unit, a), in_use);
  EXPECT_EQ(memory.map(range, 0, b), in_use);
  EXPECT_EQ(memory.map(range, 2 * unit, b), in_use);
  EXPECT_EQ(memory.release(range), in_use);
  EXPECT_EQ(memory.unmap(range, unit, unit), invalid_argument) << "half of it";
  EXPECT_EQ(memory.unmap(range, 2 * unit, unit), invalid_argument) << "the other half";
  EXPECT_EQ(memory.unmap(range, 0, unit), invalid_argument) << "nothing";
  EXPECT_EQ(this->read(range.data() + unit), 3);
  EXPECT_EQ(this->read(range.data() + 2 * unit), 4);
  ASSERT_EQ(memory.map(range, 0, a), ok);
  ASSERT_EQ(memory.unmap(range, 0, unit), ok);
  ASSERT_EQ(memory.unmap(range, unit, 2 * unit), ok);
  EXPECT_EQ(memory.unmap(range, unit, 2 * unit), invalid_argument) << "twice";
  EXPECT_EQ(memory.destroy_block(a), ok);
  EXPECT_EQ(memory.destroy_block(b), ok);
  EXPECT_EQ(memory.release(range), ok);
  EXPECT_EQ(memory.release(range), invalid_argument) << "twice";
}

// Hazard 27, a failed mapping step leaks: the tests below make every step fail once.
TYPED_TEST(virtual_memory_conformance, a_failed_growth_leaves_the_bank_unchanged_at_any_step) {
  const auto unit = this->granule;
  const auto page = this->block();
  {
    auto bank = this->range(8);
    auto* const old = bank.addresses().data() + unit;
    ASSERT_EQ(bank.map(unit, std::span(&page, 1)), ok);
    this->write(old, 42);
    const auto steps = this->fail_each_step([&] { return bank.populate(2 * unit, unit, 4); },
                                            [&] {
                                              EXPECT_EQ(bank.mapped_bytes(), unit);
                                              EXPECT_EQ(this->entry.mappings(), 1U);
                                              EXPECT_EQ(this->entry.physical_bytes(), unit);
                                              EXPECT_EQ(this->read(old), 42);
                                            });
    EXPECT_GE(steps, 12U) << "4 blocks are created, mapped and left to their places";
    EXPECT_EQ(bank.mapped_bytes(), 5 * unit) << "no granule was poisoned";
    EXPECT_EQ(this->read(old), 42);
    for (std::size_t at = 2; at < 6; ++at)
      EXPECT_GE(this->read(bank.addresses().data() + at * unit), 0) << at;
  }
  EXPECT_EQ(this->subject.destroy_block(page), ok);
}

TYPED_TEST(virtual_memory_conformance, pages_of_a_pool_are_mapped_whole_or_not_at_all) {
  const auto unit = this->granule;
  std::array<memory_block, 3> pages{this->block(), this->block(2), this->block()};
  {
    auto tensor = this->range(8);
    ASSERT_EQ(tensor.map(0, std::span(pages).first(1)), ok);
    this->write(tensor.addresses().data(), 7);
    const auto steps = this->fail_each_step([&] { return tensor.map(3 * unit, pages); },
                                            [&] {
                                              EXPECT_EQ(tensor.mapped_bytes(), unit);
                                              EXPECT_EQ(this->entry.mappings(), 1U);
                                              EXPECT_EQ(this->entry.physical_bytes(), 4 * unit);
                                            });
    EXPECT_GE(steps, 3U);
    EXPECT_EQ(this->read(tensor.addresses().data() + 3 * unit), 7) << "the shared one";
    EXPECT_EQ(tensor.mapped_bytes(), 5 * unit);
  }
  EXPECT_EQ(this->entry.physical_bytes(), 4 * unit) << "the pool's to give back";
  for (const auto& page : pages) EXPECT_EQ(this->subject.destroy_block(page), ok);
}

TYPED_TEST(virtual_memory_conformance, a_failed_setup_has_no_effect_at_any_step) {
  using range_type = virtual_range<typename TypeParam::memory_type>;
  const auto unit = this->granule;
  const auto steps = this->fail_each_step(
      [&] {
        auto bank = range_type::reserve(this->subject, 6 * unit);
        if (!bank) return failed;
        auto code = bank->populate(0, 2 * unit, 2);
        if (code == ok) code = bank->populate(5 * unit, unit, 1);
        if (code != ok) return code;
        this->entry.fail(0);  // the end of a bank is not tested here
        return ok;
      },
      [&] {
        EXPECT_EQ(this->entry.mappings(), 0U);
        EXPECT_EQ(this->entry.physical_bytes(), 0U);
        EXPECT_EQ(this->entry.reserved_bytes(), 0U);
      });
  EXPECT_GE(steps, 10U);
}

/// Expected mappings, in units, and expected content of every unit of every block.
struct memory_model {
  struct block {
    memory_block name{};
    bool has_handle = true;
    std::size_t places = 0;
    std::vector<int> content{};
  };
  struct range {
    std::span<std::byte> addresses{};
    std::map<std::size_t, std::size_t> mapped{};  ///< first unit -> block index
  };
  std::size_t unit;
  std::vector<block> blocks{};
  std::vector<range> ranges{};

  [[nodiscard]] std::size_t units(const range& r) const { return r.addresses.size() / unit; }
  [[nodiscard]] bool is_free(const range& r, std::size_t at, std::size_t count) const {
    for (const auto& [first, index] : r.mapped)
      for (std::size_t u = 0; u < blocks[index].content.size(); ++u)
        if (first + u >= at && first + u < at + count) return false;
    return true;
  }
  [[nodiscard]] memory_status map(const range& r, std::size_t at, const block& b) const {
    if (!b.has_handle || at + b.content.size() > units(r)) return invalid_argument;
    return is_free(r, at, b.content.size()) ? ok : in_use;
  }
  [[nodiscard]] memory_status unmap(const range& r, std::size_t at, std::size_t count) const {
    const auto place = r.mapped.find(at);
    return place != r.mapped.end() && blocks[place->second].content.size() == count
               ? ok
               : invalid_argument;
  }
  [[nodiscard]] std::size_t physical_bytes() const {
    std::size_t bytes = 0;
    for (const auto& b : blocks)
      if (b.has_handle || b.places != 0) bytes += b.content.size() * unit;
    return bytes;
  }
};

/// Random operations on a memory and its model, with failures between them.
template <class Entry>
class memory_walk {
 public:
  memory_walk(Entry& entry, std::uint64_t seed)
      : entry_(entry), random_(seed), model_{entry.memory.granularity()} {}

  void step() {
    entry_.fail(random_.one_in(4) ? 1 + random_.below(2) : 0);
    switch (random_.below(8)) {
      case 0: return reserve();
      case 1: return create();
      case 2: return release(random_.below(model_.ranges.size() + 1));
      case 3: return destroy(random_.below(model_.blocks.size() + 1));
      case 4:
      case 5:
      case 6: return map();
      default: return unmap();
    }
  }
  void check() {
    entry_.fail(0);
    ASSERT_EQ(entry_.physical_bytes(), model_.physical_bytes());
    for (const auto& r : model_.ranges)
      for (std::size_t u = 0; u < model_.units(r); ++u)
        ASSERT_EQ(entry_.has_access(r.addresses.data() + u * model_.unit),
                  !model_.is_free(r, u, 1));
    for (auto& r : model_.ranges)
      for (const auto& [first, index] : r.mapped)
        for (std::size_t u = 0; u < model_.blocks[index].content.size(); ++u)
          ASSERT_EQ(std::to_integer<int>(last_byte(r, first + u)), model_.blocks[index].content[u]);
  }
  void end() {
    entry_.fail(0);
    for (auto& r : model_.ranges)
      while (!r.mapped.empty()) {
        const auto [at, index] = *r.mapped.begin();
        unmap(r, at, model_.blocks[index].content.size());
      }
    while (!model_.ranges.empty()) release(0);
    for (std::size_t i = 0; i < model_.blocks.size(); ++i) destroy(i);
  }

 private:
  using block = memory_model::block;
  using range = memory_model::range;

  /// Whether the operation succeeded. The status must equal the model's unless a step was made to fail.
  bool done(memory_status said, memory_status expected, bool armed) {
    if (armed && !entry_.armed()) {
      EXPECT_NE(said, ok);
      return false;
    }
    EXPECT_EQ(said, expected);
    return said == ok;
  }
  std::byte& last_byte(const range& r, std::size_t at) {
    return r.addresses[(at + 1) * model_.unit - 1];
  }
  void reserve() {
    if (model_.ranges.size() == 4) return;
    const bool armed = entry_.armed();
    range made;
    if (done(entry_.memory.reserve((1 + random_.below(8)) * model_.unit, made.addresses), ok,
             armed))
      model_.ranges.push_back(made);
  }
  void release(std::size_t index) {
    if (index == model_.ranges.size()) return;
    const bool armed = entry_.armed();
    const auto& r = model_.ranges[index];
    if (done(entry_.memory.release(r.addresses), r.mapped.empty() ? ok : in_use, armed))
      model_.ranges.erase(model_.ranges.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void create() {
    if (model_.physical_bytes() > 24 * model_.unit) return;
    const bool armed = entry_.armed();
    block made;
    made.content.resize(1 + random_.below(3));
    if (done(entry_.memory.create_block(made.content.size() * model_.unit, made.name), ok, armed))
      model_.blocks.push_back(made);
  }
  void destroy(std::size_t index) {
    if (index == model_.blocks.size()) return;
    const bool armed = entry_.armed();
    auto& b = model_.blocks[index];
    if (done(entry_.memory.destroy_block(b.name), b.has_handle ? ok : invalid_argument, armed))
      b.has_handle = false;
  }
  void map() {
    if (model_.ranges.empty() || model_.blocks.empty()) return;
    const bool armed = entry_.armed();
    auto& r = model_.ranges[random_.below(model_.ranges.size())];
    // One of the newer blocks, for most earlier ones were destroyed.
    const auto recent = std::min<std::size_t>(model_.blocks.size(), 12);
    const auto index = model_.blocks.size() - 1 - random_.below(recent);
    auto& b = model_.blocks[index];
    const auto at = random_.below(9);
    if (!done(entry_.memory.map(r.addresses, at * model_.unit, b.name), model_.map(r, at, b),
              armed))
      return;
    r.mapped[at] = index;
    ++b.places;
    for (std::size_t u = 0; u < b.content.size(); ++u) {
      b.content[u] = static_cast<int>(random_.below(256));
      ASSERT_NE(entry_.touch(&last_byte(r, at + u)), nullptr);
      last_byte(r, at + u) = static_cast<std::byte>(b.content[u]);
    }
  }
  void unmap() {
    if (model_.ranges.empty()) return;
    auto& r = model_.ranges[random_.below(model_.ranges.size())];
    unmap(r, random_.below(9), 1 + random_.below(3));
  }
  void unmap(range& r, std::size_t at, std::size_t count) {
    const bool armed = entry_.armed();
    if (!done(entry_.memory.unmap(r.addresses, at * model_.unit, count * model_.unit),
              model_.unmap(r, at, count), armed))
      return;
    --model_.blocks[r.mapped.at(at)].places;
    r.mapped.erase(at);
  }

  Entry& entry_;
  support::random_source random_;
  memory_model model_;
};

TYPED_TEST(virtual_memory_conformance, agrees_with_a_simple_model_after_every_operation) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    memory_walk walk(this->entry, seed);
    for (int n = 0; n < 1000; ++n) {
      walk.step();
      walk.check();
      if (this->HasFailure()) return;
    }
    walk.end();
  }
}

}  // namespace
}  // namespace hotset::virtual_memory_conformance_test
