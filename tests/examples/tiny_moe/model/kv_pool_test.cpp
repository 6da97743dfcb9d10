// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/kv_pool.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "random_source.hpp"
#include "sim_samples.hpp"

namespace kv_pool_test {
namespace {

using namespace tiny_moe;
using hotset::memory_budget;
using hotset::status;
using hotset::support::random_source;

// Two layers of eight floats: a block of n tokens has n * 128 bytes.
constexpr model_config shape{.layers = 2, .heads = 1, .head_size = 8, .max_positions = 64};
constexpr std::size_t width = 8;

std::uint64_t always_the_same(content_id, std::span<const std::uint8_t>) noexcept { return 7; }

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Values that a decoder would write: each depends on all tokens up to its own.
float value_of(std::string_view beginning, std::size_t layer, bool is_value, std::size_t column) {
  const std::uint64_t place = layer * 100 + (is_value ? 50U : 0U) + column;
  return static_cast<float>(hash_of_block(place, bytes_of(beginning)) >> 40U);
}

template <class Visit>
void visit_rows(kv_pool& pool, sequence_id sequence, std::size_t first, std::size_t last,
                Visit visit) {
  const std::size_t size = pool.block_tokens();
  for (std::size_t p = first; p < last; ++p) {
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      for (const bool is_value : {false, true}) {
        float* row = pool.block(sequence, p / size) +
                     (is_value ? pool.values_of(layer) : pool.keys_of(layer)) + p % size * width;
        for (std::size_t c = 0; c < width; ++c) visit(p, layer, is_value, c, row[c]);
      }
    }
  }
}

// A sequence whose text the test knows.
struct written {
  sequence_id id = 0;
  std::string text;
};

// Appends as a forward pass does. Returns false if there was no room.
bool write(kv_pool& pool, written& s, std::string_view more) {
  if (!pool.reserve(s.id, more.size())) return false;
  const std::size_t before = s.text.size();
  s.text += more;
  visit_rows(pool, s.id, before, s.text.size(),
             [&](std::size_t p, std::size_t layer, bool is_value, std::size_t c, float& value) {
               value = value_of(std::string_view(s.text).substr(0, p + 1), layer, is_value, c);
             });
  pool.append(s.id, bytes_of(more));
  return true;
}

written begin(kv_pool& pool, std::string_view text) {
  written s{.id = pool.open(), .text = {}};
  EXPECT_TRUE(write(pool, s, text));
  return s;
}

std::size_t reuse(kv_pool& pool, written& s, std::string_view more) {
  const std::size_t tokens = pool.reuse(s.id, bytes_of(more));
  s.text += more.substr(0, tokens);
  return tokens;
}

// Counts values that differ from those written for this text.
std::size_t wrong_values(kv_pool& pool, const written& s) {
  std::size_t wrong = 0;
  visit_rows(pool, s.id, 0, s.text.size(),
             [&](std::size_t p, std::size_t layer, bool is_value, std::size_t c, float value) {
               const auto beginning = std::string_view(s.text).substr(0, p + 1);
               if (value != value_of(beginning, layer, is_value, c)) ++wrong;
             });
  return wrong;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(kv_pool, a_block_has_room_for_all_layers) {
  const kv_pool pool(shape, {.block_tokens = 4, .blocks = 3});
  EXPECT_EQ(pool.unit_bytes(), 4U * 2 * 2 * 8 * sizeof(float));
  EXPECT_EQ(pool.unit_bytes(), kv_pool::block_bytes(shape, 4));
  EXPECT_EQ(pool.capacity(), 3U);
  EXPECT_EQ(pool.keys_of(0), 0U);
  EXPECT_EQ(pool.values_of(0), 32U);
  EXPECT_EQ(pool.keys_of(1), 64U);
  EXPECT_EQ(pool.values_of(1), 96U);
  EXPECT_EQ(pool.blocks_for(0), 0U);
  EXPECT_EQ(pool.blocks_for(4), 1U);
  EXPECT_EQ(pool.blocks_for(5), 2U);
}

TEST(kv_pool, a_configuration_that_cannot_work_is_refused) {
  const auto error_of = [](const kv_pool_config& config) {
    return hotset::support::refusal<hotset::invalid_config>(
        [&] { const kv_pool pool(shape, config); });
  };
  EXPECT_EQ(error_of({.block_tokens = 0}), "kv_pool block_tokens = 0, accepted: 1..64");
  EXPECT_EQ(error_of({.block_tokens = 65}), "kv_pool block_tokens = 65, accepted: 1..64");
  EXPECT_EQ(error_of({.blocks = 1ULL << 31U}),
            "kv_pool blocks = 2147483648, accepted: 0..2147483647");
  EXPECT_NO_THROW(kv_pool(shape, {.block_tokens = 64}));
  memory_budget small(1000);
  EXPECT_THROW(kv_pool(shape, {.block_tokens = 4, .blocks = 2, .budget = &small}), std::bad_alloc);
  EXPECT_EQ(small.in_use(), 0U);
}

TEST(kv_pool, a_beginning_is_shared_only_under_the_same_adapter) {
  for (const auto hash : {hash_of_block, always_the_same}) {
    kv_pool pool(shape, {.block_tokens = 4, .blocks = 8, .hash = hash});
    const auto of_base = begin(pool, "abcdefgh");
    written first{.id = pool.open(0, 7), .text = {}};
    EXPECT_EQ(pool.adapter(first.id), 7U);
    EXPECT_EQ(pool.shared(bytes_of("abcdefgh"), 7), 0U);
    EXPECT_EQ(reuse(pool, first, "abcdefgh"), 0U);
    EXPECT_TRUE(write(pool, first, "abcdefgh"));
    EXPECT_EQ(pool.in_use(), 4U) << "the same tokens, and other keys and values";
    EXPECT_EQ(pool.contents(), 4U);
    pool.close(first.id);
    written second{.id = pool.open(0, 7), .text = {}};
    EXPECT_EQ(reuse(pool, second, "abcdefgh"), 8U);
    written other{.id = pool.open(0, 8), .text = {}};
    EXPECT_EQ(reuse(pool, other, "abcdefgh"), 0U);
    written again{.id = pool.open(), .text = {}};
    EXPECT_EQ(pool.adapter(again.id), base_model) << "a place that served an adapter serves others";
    EXPECT_EQ(reuse(pool, again, "abcdefgh"), 8U);
    EXPECT_EQ(pool.block(again.id, 0), pool.block(of_base.id, 0));
    EXPECT_NE(pool.block(again.id, 0), pool.block(second.id, 0));
  }
}

TEST(kv_pool, without_reuse_nothing_is_cached) {
  kv_pool pool(shape, {.block_tokens = 2, .blocks = 4, .reuse = false});
  const auto first = begin(pool, "aabb");
  written second{.id = pool.open(), .text = {}};
  EXPECT_EQ(reuse(pool, second, "aabb"), 0U);
  pool.close(first.id);
  EXPECT_EQ(pool.cached(), 0U);
  EXPECT_EQ(pool.contents(), 0U);
  EXPECT_EQ(pool.stats().misses, 0U);
}

TEST(kv_pool, shrinking_gives_memory_back_to_the_system) {
  constexpr std::uint64_t slack = 2U << 20U;
  kv_pool pool({.layers = 12, .heads = 4, .head_size = 24, .max_positions = 2048},
               {.block_tokens = 16, .blocks = 20});
  const auto text = std::string(100, 'w');
  const auto s = pool.open();
  ASSERT_TRUE(pool.reserve(s, text.size()));
  pool.append(s, bytes_of(text));
  const std::uint64_t before = resident_bytes();
  ASSERT_EQ(pool.grow(500), status::ok);
  const std::uint64_t grown = resident_bytes();
  const std::uint64_t bytes = 480 * pool.unit_bytes();
  EXPECT_EQ(bytes, 70'778'880U);
  EXPECT_GE(grown + slack, before + bytes);  // a pool's memory exists before it is used
  ASSERT_EQ(pool.shrink(20), status::ok);
  const std::uint64_t shrunk = resident_bytes();
  EXPECT_GE(grown, shrunk + bytes - slack);
  EXPECT_LE(shrunk, before + slack);
  RecordProperty("bytes_given_back", static_cast<int>(grown - shrunk));
}

TEST(kv_pool, growth_that_the_system_refuses_changes_nothing) {
  // 2^31 - 1 blocks of 64 MiB: more than there are addresses.
  const model_config wide{
      .layers = 1U << 8U, .heads = 1, .head_size = 8, .max_positions = 1U << 12U};
  memory_budget budget(~0ULL);
  kv_pool pool(wide, {.block_tokens = 1U << 12U, .blocks = 0, .budget = &budget});
  EXPECT_EQ(pool.grow((1ULL << 31U) - 1), status::exceeds_memory);
  EXPECT_EQ(pool.capacity(), 0U);
  EXPECT_EQ(budget.in_use(), 0U);
}

// Blocks are identified by their whole prefix: no ids, hashes or places.
class pool_model {
 public:
  pool_model(random_source& random, const kv_pool_config& config)
      : random_(random), config_(config), pool_(shape, config_with_log()) {
    capacity_ = config.blocks;
  }

  void step() {
    const auto what = random_.below(12);
    if (what == 0) return resize();
    if (what == 1 || sequences_.empty()) return open();
    auto& [id, s] = *any();
    switch (what) {
      case 2: return close(id, s);
      case 3:
      case 4: return reuse_text(id, s);
      case 5: return truncate(id, s);
      case 6: return reserve_and_give_back(id, s);
      default: return append(id, s);
    }
  }
  void check() {
    ASSERT_EQ(pool_.capacity(), capacity_);
    ASSERT_EQ(pool_.in_use(), in_use());
    ASSERT_EQ(pool_.available(), available());
    ASSERT_EQ(pool_.cached(), order_.size());
    ASSERT_EQ(pool_.peak(), peak_);
    ASSERT_EQ(pool_.stats().hits, hits_);
    ASSERT_EQ(pool_.stats().misses, misses_);
    ASSERT_EQ(pool_.stats().evictions, evictions_);
    ASSERT_EQ(pool_.contents(), ids_.size());
    ASSERT_EQ(seen_, told_);
    for (const auto& [id, s] : sequences_) {
      ASSERT_EQ(pool_.length(id), s.text.size());
      ASSERT_EQ(wrong_values(pool_, {id, s.text}), 0U);
    }
  }
  [[nodiscard]] const kv_pool& pool() const { return pool_; }
  std::size_t copies = 0;   // of blocks that were cut and shared
  std::size_t doubles = 0;  // blocks that were computed while cached

 private:
  struct sequence {
    std::string text;
    std::vector<std::string> table;  // prefix that ends with the block; empty: no identity
  };

  kv_pool_config config_with_log() {
    auto config = config_;
    config.on_reference = [this](const block_reference& one) { seen_.push_back(one); };
    return config;
  }
  [[nodiscard]] std::size_t size() const { return config_.block_tokens; }
  [[nodiscard]] std::size_t in_use() const { return unnamed_ + users_.size(); }
  [[nodiscard]] std::size_t available() const { return capacity_ - in_use(); }

  std::map<sequence_id, sequence>::iterator any() {
    return std::next(sequences_.begin(),
                     static_cast<std::ptrdiff_t>(random_.below(sequences_.size())));
  }
  std::string some_text(std::size_t most) {
    std::string text(random_.below(most + 1), 'a');
    for (char& c : text) c = random_.one_in(3) ? 'b' : 'a';
    return text;
  }

  void open() {
    if (sequences_.size() == 6) return;
    const auto id = pool_.open(random_.below(20));
    ASSERT_TRUE(sequences_.try_emplace(id).second) << "a number was given twice";
    ASSERT_EQ(pool_.length(id), 0U);
  }
  void close(sequence_id id, sequence& s) {
    cut(s, 0);
    pool_.close(id);
    sequences_.erase(id);
  }
  void append(sequence_id id, sequence& s) {
    const auto more = some_text(2 * size() + 1);
    const bool fits = reserve(id, s, more.size());
    written real{.id = id, .text = s.text};
    ASSERT_EQ(write(pool_, real, more), fits);
    if (!fits) return;
    for (const char c : more) {
      s.text += c;
      if (s.text.size() % size() == 0) identify(s);
    }
  }
  void reuse_text(sequence_id id, sequence& s) {
    const auto next = some_text(4 * size());
    std::size_t shared = 0;
    std::size_t blocks = 0;
    while ((blocks + 1) * size() <= next.size() && is_known(next.substr(0, (blocks + 1) * size())))
      shared += users_.count(next.substr(0, ++blocks * size()));
    ASSERT_EQ(pool_.shared(bytes_of(next)), shared);

    std::size_t tokens = 0;
    while (s.text.size() % size() == 0 && tokens + size() <= next.size()) {
      const auto beginning = s.text + next.substr(tokens, size());
      if (!is_known(beginning)) break;
      s.text = beginning;
      tokens += size();
      s.table.push_back(beginning);
      use(beginning);
      ++hits_;
      tell(beginning, true);
    }
    ASSERT_EQ(pool_.reuse(id, bytes_of(next)), tokens);
  }
  void truncate(sequence_id id, sequence& s) {
    const auto tokens = random_.below(s.text.size() + 1);
    cut(s, tokens);
    pool_.truncate(id, tokens);
  }
  void reserve_and_give_back(sequence_id id, sequence& s) {
    const auto tokens = random_.below(3 * size());
    const bool fits = reserve(id, s, tokens);
    ASSERT_EQ(pool_.reserve(id, tokens), fits);
    cut(s, s.text.size());
    pool_.truncate(id, s.text.size());
  }
  void resize() {
    const auto units = random_.below(18);
    if (units >= capacity_) {
      ASSERT_EQ(pool_.grow(units), status::ok);
    } else {
      const bool fits = units >= in_use();
      ASSERT_EQ(pool_.shrink(units), fits ? status::ok : status::invalid_argument);
      if (!fits) return;
      while (in_use() + order_.size() > units) evict();
    }
    capacity_ = units;
  }

  [[nodiscard]] bool is_known(const std::string& beginning) const {
    return users_.count(beginning) > 0 ||
           std::find(order_.begin(), order_.end(), beginning) != order_.end();
  }
  void use(const std::string& beginning) {
    order_.remove(beginning);
    ++users_[beginning];
    peak_ = std::max<std::uint64_t>(peak_, in_use());
  }
  void leave(const std::string& beginning) {
    if (beginning.empty()) {
      --unnamed_;
    } else if (--users_[beginning] == 0) {
      users_.erase(beginning);
      order_.push_back(beginning);
    }
  }
  void evict() {
    order_.pop_front();
    ++evictions_;
  }
  void take() {
    if (in_use() + order_.size() == capacity_) evict();
    ++unnamed_;
    peak_ = std::max<std::uint64_t>(peak_, in_use());
  }
  bool reserve(sequence_id id, sequence& s, std::size_t tokens) {
    if (tokens == 0) return true;
    const auto blocks = (s.text.size() + tokens + size() - 1) / size();
    const auto last = s.text.size() / size();
    const bool is_cut = s.text.size() % size() != 0 && !s.table[last].empty();
    const bool is_shared = is_cut && users_[s.table[last]] > 1;
    const auto needed = blocks - std::min(blocks, s.table.size()) + (is_shared ? 1U : 0U);
    EXPECT_EQ(pool_.needed(id, tokens), needed);
    if (needed > available()) return false;
    if (is_shared) {
      take();
      leave(s.table[last]);
      ++copies;
    } else if (is_cut) {
      users_.erase(s.table[last]);
      ++unnamed_;
    }
    if (is_cut) s.table[last].clear();
    while (s.table.size() < blocks) {
      take();
      s.table.emplace_back();
    }
    return true;
  }
  void identify(sequence& s) {
    ++misses_;
    tell(s.text, false);
    if (is_known(s.text)) ++doubles;
    --unnamed_;
    use(s.text);
    s.table[s.text.size() / size() - 1] = s.text;
  }
  void cut(sequence& s, std::size_t tokens) {
    for (; s.table.size() > (tokens + size() - 1) / size(); s.table.pop_back())
      leave(s.table.back());
    s.text.resize(tokens);
  }
  void tell(const std::string& beginning, bool is_hit) {
    const auto id = ids_.try_emplace(beginning, ids_.size()).first->second;
    told_.push_back({.content = id, .is_hit = is_hit});
  }

  random_source& random_;
  kv_pool_config config_;
  std::vector<block_reference> seen_;
  std::vector<block_reference> told_;
  kv_pool pool_;
  std::uint64_t capacity_ = 0;
  std::map<sequence_id, sequence> sequences_;
  std::map<std::string, std::size_t> users_;  // of named blocks, by beginning
  std::list<std::string> order_;              // named blocks without users, oldest first
  std::size_t unnamed_ = 0;
  std::map<std::string, content_id> ids_;
  std::uint64_t peak_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t evictions_ = 0;
};

TEST(kv_pool, random_operations_agree_with_a_model_of_beginnings) {
  kv_pool_stats all;
  std::size_t copies = 0;
  std::size_t doubles = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random(seed);
    pool_model model(random, {.block_tokens = 1 + random.below(5),
                              .blocks = random.below(18),
                              .hash = random.one_in(2) ? hash_of_block : always_the_same});
    for (int i = 0; i < 400; ++i) {
      model.step();
      if (!testing::Test::HasFailure()) model.check();
      ASSERT_FALSE(testing::Test::HasFailure()) << "operation " << i;
    }
    all.hits += model.pool().stats().hits;
    all.evictions += model.pool().stats().evictions;
    all.moves += model.pool().stats().moves;
    copies += model.copies;
    doubles += model.doubles;
  }
  EXPECT_GT(all.hits, 1000U);  // otherwise the comparison proves nothing
  EXPECT_GT(all.evictions, 1000U);
  EXPECT_GT(all.moves, 1000U);
  EXPECT_GT(copies, 50U);
  EXPECT_GT(doubles, 100U);
}

}  // namespace
}  // namespace kv_pool_test
