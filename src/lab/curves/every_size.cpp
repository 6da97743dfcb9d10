// SPDX-License-Identifier: Apache-2.0
#include "lab/curves/every_size.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <limits>
#include <utility>

#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {
namespace {

using pool_key = std::uint32_t;
constexpr auto no_pool_key = std::numeric_limits<pool_key>::max();

/// Visits of one pool. Each visit lists its distinct experts in order of last use, the order in which pagers notify
/// policies.
class pool_visits {
 public:
  pool_visits(const visit_sequence& visits, std::optional<layer_id> layer)
      : visits_(visits),
        layer_(layer),
        unique_(visits.shape().expert_count(), visits.shape().ids_per_visit()),
        experts_(visits.shape().distinct_per_visit()),
        places_(experts_.size()) {}

  [[nodiscard]] std::size_t keys() const noexcept {
    return layer_ ? visits_.shape().expert_count() : visits_.shape().keys();
  }
  template <class Use>
  void each(Use use) {
    progress bar(visits_.size());
    std::vector<pool_key> keys;
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      bar.at(i);
      const auto layer = visits_.at(i).layer;
      if (layer_ && layer != *layer_) continue;
      const auto ids = visits_[i].experts;
      const auto first = layer_ ? 0 : index_of(layer) * visits_.shape().expert_count();
      keys.resize(unique_.collect(ids, experts_.data()));
      unique_.last_appearance_order(ids, places_.data());
      for (std::size_t n = 0; n < keys.size(); ++n)
        keys[n] = static_cast<pool_key>(first + index_of(experts_[places_[n]]));
      use(std::span<const pool_key>(keys));
    }
  }

 private:
  const visit_sequence& visits_;
  std::optional<layer_id> layer_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> places_;
};

/// The rank of a key after each use; the lowest rank is evicted first.
class lfu_rank {
 public:
  explicit lfu_rank(pool_visits& pool) : counts_(pool.keys()) {}
  std::pair<std::uint64_t, std::uint64_t> operator()(pool_key key) noexcept {
    return {++counts_[key], ++clock_};
  }

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t clock_ = 0;
};
class belady_rank {
 public:
  explicit belady_rank(pool_visits& pool) {
    std::vector<std::size_t> last(pool.keys(), never);
    std::uint32_t visit = 0;
    pool.each([&](std::span<const pool_key> keys) {
      for (const auto key : keys) {
        if (last[key] != never) next_[last[key]] = visit;
        last[key] = next_.size();
        next_.push_back(static_cast<std::uint32_t>(never));
      }
      ++visit;
    });
  }
  /// Keys with the same next visit, or none, have equal ranks: their order changes no count.
  std::uint32_t operator()(pool_key) noexcept { return ~next_[use_++]; }

 private:
  static constexpr auto never = std::numeric_limits<std::size_t>::max();
  std::vector<std::uint32_t> next_;  // [uses] next visit that uses the key
  std::size_t use_ = 0;
};

/// Misses at all sizes of a policy with the stack property: a larger pool contains all keys of a smaller one.
///
/// Rule: the smallest pool is a set; each larger size holds one key more, the key at its depth. A use is a miss at
///       the sizes below the key's depth. Keys that the smallest pool evicts sink: at each depth the key with the
///       higher rank stays, up to the first free depth. The visit's own keys do not sink.
/// Source: Mattson et al. 1970, with visits instead of references: all experts of a visit are judged before any
///       moves.
template <class Rank>
class rank_stack {
 public:
  rank_stack(pool_visits& pool, std::size_t fewest)
      : rank_of_(pool),
        fewest_(fewest),
        ranks_(pool.keys()),
        used_in_(pool.keys()),
        depths_(pool.keys(), no_pool_key),
        below_(pool.keys() - fewest + 1, no_pool_key),
        found_(below_.size()) {
    pool.each([this](std::span<const pool_key> keys) { visit(keys); });
  }
  [[nodiscard]] std::vector<std::uint64_t> misses() const {
    std::vector<std::uint64_t> out(found_.size());
    auto deeper = first_uses_;
    for (auto depth = out.size(); depth-- > 0; deeper += found_[depth]) out[depth] = deeper;
    return out;
  }

 private:
  void visit(std::span<const pool_key> keys) {
    ++visit_;
    for (const auto key : keys) {
      used_in_[key] = visit_;
      ranks_[key] = rank_of_(key);
      const auto depth = std::exchange(depths_[key], 0);
      if (depth == 0) continue;
      top_.push_back(key);
      if (depth == no_pool_key) {
        ++first_uses_;
      } else {
        ++found_[depth];
        below_[depth] = no_pool_key;
      }
    }
    if (top_.size() > fewest_) sink();
  }
  void sink() {
    const auto rank = [this](pool_key key) { return ranks_[key]; };
    const auto rest = top_.begin() + static_cast<std::ptrdiff_t>(fewest_);
    std::ranges::nth_element(top_, rest, std::greater<>(), [&](pool_key key) {
      return std::pair(used_in_[key] == visit_, ranks_[key]);
    });
    sinking_.assign(rest, top_.end());
    top_.erase(rest, top_.end());
    std::ranges::make_heap(sinking_, {}, rank);
    for (pool_key depth = 1; !sinking_.empty(); ++depth) {
      HOTSET_ASSERT(depth < below_.size());
      auto& resident = below_[depth];
      if (resident != no_pool_key && !(ranks_[resident] < ranks_[sinking_.front()])) continue;
      std::ranges::pop_heap(sinking_, {}, rank);
      depths_[sinking_.back()] = depth;
      std::swap(resident, sinking_.back());
      if (sinking_.back() == no_pool_key)
        sinking_.pop_back();
      else
        std::ranges::push_heap(sinking_, {}, rank);
    }
  }

  Rank rank_of_;
  std::size_t fewest_;
  std::vector<decltype(std::declval<Rank&>()(pool_key{}))> ranks_;  // [keys]
  std::vector<std::uint64_t> used_in_;                              // [keys] last visit
  std::vector<pool_key> depths_;      // [keys] 0: in the smallest pool
  std::vector<pool_key> top_;         // keys of the smallest pool
  std::vector<pool_key> below_;       // [depths] key at each depth, from 1 on
  std::vector<std::uint64_t> found_;  // [depths] uses
  std::vector<pool_key> sinking_;
  std::uint64_t first_uses_ = 0;
  std::uint64_t visit_ = 0;
};

/// Misses of fifo at up to 64 sizes. fifo has no stack property, so each key has one bit for each size that lacks it.
class fifo_queues {
 public:
  static constexpr std::size_t most = 64;

  fifo_queues(pool_visits& pool, std::size_t fewest, std::size_t sizes)
      : fewest_(fewest),
        queues_(sizes),
        misses_(sizes),
        lacking_(pool.keys(), ~std::uint64_t{0} >> (most - sizes)),
        used_in_(pool.keys()) {
    pool.each([this](std::span<const pool_key> keys) { visit(keys); });
  }
  [[nodiscard]] std::span<const std::uint64_t> misses() const noexcept { return misses_; }

 private:
  void visit(std::span<const pool_key> keys) {
    ++visit_;
    missing_.clear();
    for (const auto key : keys) {
      used_in_[key] = visit_;
      if (lacking_[key] != 0) missing_.emplace_back(key, std::exchange(lacking_[key], 0));
    }
    for (auto [key, sizes] : missing_)
      for (; sizes != 0; sizes &= sizes - 1) take_in(key, std::countr_zero(sizes));
  }
  void take_in(pool_key key, int size) {
    auto& queue = queues_[static_cast<std::size_t>(size)];
    ++misses_[static_cast<std::size_t>(size)];
    if (queue.size() == fewest_ + static_cast<std::size_t>(size)) {
      const auto oldest =
          std::ranges::find_if(queue, [this](pool_key held) { return used_in_[held] != visit_; });
      lacking_[*oldest] |= std::uint64_t{1} << size;
      queue.erase(oldest);
    }
    queue.push_back(key);
  }

  std::size_t fewest_;
  std::vector<std::deque<pool_key>> queues_;  // [sizes] oldest first
  std::vector<std::uint64_t> misses_;         // [sizes]
  std::vector<std::uint64_t> lacking_;        // [keys]
  std::vector<std::uint64_t> used_in_;        // [keys] last visit
  std::vector<std::pair<pool_key, std::uint64_t>> missing_;
  std::uint64_t visit_ = 0;
};

std::vector<std::uint64_t> misses_of_fifo(pool_visits& pool, std::size_t fewest) {
  std::vector<std::uint64_t> out;
  for (auto slots = fewest; slots <= pool.keys(); slots += fifo_queues::most) {
    const fifo_queues some(pool, slots, std::min(fifo_queues::most, pool.keys() + 1 - slots));
    out.insert(out.end(), some.misses().begin(), some.misses().end());
  }
  return out;
}

constexpr std::array exact_names{lru::name, fifo::name, lfu::name, belady::name};

}  // namespace

std::span<const std::string_view> evictions_of_every_size() noexcept { return exact_names; }

std::vector<std::uint64_t> misses_of_every_size(std::string_view eviction,
                                                const visit_sequence& visits,
                                                std::optional<layer_id> layer, std::size_t fewest) {
  pool_visits pool(visits, layer);
  if (eviction == fifo::name) return misses_of_fifo(pool, fewest);
  if (eviction == lfu::name) return rank_stack<lfu_rank>(pool, fewest).misses();
  HOTSET_ASSERT(eviction == belady::name);
  return rank_stack<belady_rank>(pool, fewest).misses();
}

}  // namespace hotset::lab
