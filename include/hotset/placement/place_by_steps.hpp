// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Places experts by their loads in single steps: a step lasts as long as its fullest rank needs.
///
/// Rule: from a start, repeat until nothing helps: each pair of ranks in turn exchanges the two experts that lower the
///   cost most; then each slot of a replicated expert in turn takes the expert that lowers it most. Ranks that have not
///   changed since are not looked at again.
///   The cost is the sum over the steps of twice the fullest rank's load plus the second fullest's, and a price for
///   each expert that moves and for each rank that a token is sent to. Further starts repeat this from the best
///   placement so far after a few exchanges, and keep what is better.
/// Source: none. Engines place by sums over steps (even_packing): they cannot see which experts are busy together.
/// Deviations: none.
/// Exact: loads are integers, ties go to the lowest index, further starts go by fixed numbers. Every processor,
///   compiler and flag gives the same bits, so ranks may decide alone.
/// Cost: a pass is O(slots^2 * steps) for exchanges and O(replicated slots * experts * ranks * steps) at most for
///   replicas.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/core/platform/in_vectors.hpp"
#include "hotset/placement/even_packing.hpp"
#include "hotset/placement/placement_shape.hpp"
#include "hotset/placement/rank_loads.hpp"
#include "hotset/placement/step_loads.hpp"
#include "hotset/placement/token_ranks.hpp"

namespace hotset {

/// How to search. The limits keep sums within 64 bits.
struct place_config {
  static constexpr std::uint32_t most_cost = 1'000'000;
  static constexpr std::size_t most_ids = std::size_t{1} << 21U;
  static constexpr std::size_t most_steps = std::size_t{1} << 20U;

  /// Placement to begin with; empty: even_packing.
  std::span<const expert_id> start{};
  /// Price of an expert that moves to a rank where `start` does not have it. Units: millionths of a rank's mean load.
  std::uint32_t move_cost = 0;
  /// Price of one rank more for each token. Units: millionths of a rank's mean load.
  std::uint32_t copy_cost = 0;
  /// A sample of tokens for `copy_cost`. Shape: [tokens][top_k].
  std::span<const expert_id> tokens{};
  std::size_t top_k = 0;
  /// Number of searches, several times as many for small placements. The first one begins with `start`.
  int starts = 1;

  /// Errors: values that cannot be, or not with this shape.
  [[nodiscard]] validation validate(const placement_shape& shape) const {
    if (auto bad = shape.validate()) return bad;
    if (!start.empty())
      if (auto bad = check_placement(shape, start)) return bad;
    if (start.empty() && move_cost > 0)
      return refusal("move_cost = ", move_cost, " without a start, accepted: 0, or a start");
    if (copy_cost > 0 && (top_k == 0 || tokens.size() < top_k))
      return refusal("copy_cost = ", copy_cost, " without tokens, accepted: 0, or tokens");
    if (top_k > 0 && tokens.size() % top_k != 0)
      return refusal(tokens.size(), " ids of tokens, accepted: a multiple of top_k = ", top_k);
    if (tokens.size() > most_ids)
      return refusal(tokens.size(), " ids of tokens, accepted: at most ", most_ids, ", a sample");
    for (const auto& [name, cost] : {std::pair{"move_cost", move_cost}, {"copy_cost", copy_cost}})
      if (cost > most_cost) return refusal(name, " = ", cost, ", accepted: 0 to ", most_cost);
    if (starts < 1) return refusal("starts = ", starts, ", accepted: 1 or more");
    return {};
  }
};

namespace detail {

/// Slots below which every change is tried and searches are repeated: both take no time.
inline constexpr std::int32_t small_placement = 64;
/// With one search in place of four, 6 of 1,000 placements of 8 experts are not the best one.
constexpr int searches_per_start(std::int32_t slots) noexcept {
  return slots < small_placement ? 4 * (small_placement / slots) : 1;
}

class step_search {
 public:
  step_search(const placement_shape& shape, const step_loads& loads, const place_config& how,
              expert_placement start)
      : shape_(shape),
        placed_(std::move(start)),
        loads_(shape, loads),
        tokens_(shape, how.copy_cost > 0 ? how.tokens : std::span<const expert_id>{}, how.top_k),
        held_(cells(), 0),
        first_holder_(static_cast<std::size_t>(shape.experts), 0),
        last_holder_(first_holder_),
        was_(cells(), how.start.empty() ? 1 : 0),
        changed_at_(static_cast<std::size_t>(shape.ranks), 1),
        exchanged_(changed_at_.size(), 0),
        replaced_(placed_.size(), 0) {
    const auto unit = 3 * loads_.mean();  // the cost of balanced steps
    move_price_ = unit * how.move_cost / 1'000'000;
    copy_price_ = unit * how.copy_cost / 1'000'000;
    for (std::size_t slot = 0; slot < how.start.size(); ++slot)
      was_[cell(shape.rank_of(slot), how.start[slot])] = 1;
    for (const auto e : each<expert_id>(shape.experts)) loads_.put(e, placed_);
    update();
  }

  /// Improves until no single change helps.
  void improve() {
    for (bool better = true; better;) {
      better = false;
      for (std::int32_t p = 0; p < shape_.ranks; ++p) better |= exchange(p);
      for (std::size_t slot = 0; slot < placed_.size(); ++slot) better |= replace(slot);
    }
  }
  /// Changes some slots, more from start to start, chosen by numbers that follow from `start`.
  void disturb(int start) {
    splitmix64 numbers(static_cast<std::uint64_t>(start));
    const auto slots = placed_.size();
    const auto changes = 1 + static_cast<std::size_t>(start) + slots / 16;
    for (std::size_t n = 0; n < changes; ++n) {
      const auto i = numbers.below(slots);
      const auto j = numbers.below(slots);
      const auto f = placed_[j];
      if (may_exchange(i, j))
        apply_exchange(i, j);
      else if (may_replace(i, f))
        apply(placed_[i], f, [&] { placed_[i] = f; });
    }
  }
  [[nodiscard]] std::int64_t objective() const noexcept { return objective_; }
  [[nodiscard]] const expert_placement& placed() const noexcept { return placed_; }
  void go_back_to(const expert_placement& placed) {
    for (const auto e : each<expert_id>(shape_.experts)) loads_.take(e, placed_);
    placed_ = placed;
    for (const auto e : each<expert_id>(shape_.experts)) loads_.put(e, placed_);
    update();
    std::ranges::fill(changed_at_, ++changes_);
  }

 private:
  using row = rank_loads::row;

  [[nodiscard]] std::size_t cells() const noexcept {
    return static_cast<std::size_t>(shape_.ranks) * static_cast<std::size_t>(shape_.experts);
  }
  [[nodiscard]] std::size_t cell(std::int32_t rank, expert_id e) const noexcept {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(shape_.experts) + index_of(e);
  }
  [[nodiscard]] bool holds(std::int32_t rank, expert_id e) const noexcept {
    return held_[cell(rank, e)] != 0;
  }
  [[nodiscard]] bool is_same_node(std::int32_t p, std::int32_t q) const noexcept {
    return p / shape_.ranks_per_node() == q / shape_.ranks_per_node();
  }
  /// Whether one of the ranks has changed since `seen`. A slot looks again only where something has.
  [[nodiscard]] bool has_changed(std::int32_t p, std::int32_t q,
                                 std::uint64_t seen) const noexcept {
    return changed_at_[static_cast<std::size_t>(p)] > seen ||
           changed_at_[static_cast<std::size_t>(q)] > seen;
  }
  [[nodiscard]] std::size_t index_of_rank(std::size_t slot) const noexcept {
    return static_cast<std::size_t>(shape_.rank_of(slot));
  }
  [[nodiscard]] bool may_exchange(std::size_t i, std::size_t j) const noexcept {
    const auto p = shape_.rank_of(i);
    const auto q = shape_.rank_of(j);
    return p != q && is_same_node(p, q) && !holds(q, placed_[i]) && !holds(p, placed_[j]);
  }
  [[nodiscard]] bool may_replace(std::size_t slot, expert_id f) const noexcept {
    const auto p = shape_.rank_of(slot);
    return loads_.replicas(placed_[slot]) > 1 && !holds(p, f) &&
           is_same_node(p, last_holder_[index_of(f)]);
  }
  /// Whether a replica of f has less load than each of e's would have with one fewer. In large placements it is not
  /// tried in place of one: that takes most of the time and rarely helps.
  [[nodiscard]] bool is_too_light(expert_id f, expert_id e) const noexcept {
    return shape_.slots() >= small_placement &&
           loads_.sum(f) * (loads_.replicas(e) - 1) < loads_.sum(e) * loads_.replicas(f);
  }
  /// Experts that move more if `rank` gets `e`.
  [[nodiscard]] std::int64_t come(std::int32_t rank, expert_id e) const noexcept {
    return was_[cell(rank, e)] == 0 ? 1 : 0;
  }
  /// Experts that move less if `rank` loses one slot of `e`.
  [[nodiscard]] std::int64_t leave(std::int32_t rank, expert_id e) const noexcept {
    return was_[cell(rank, e)] == 0 && held_[cell(rank, e)] == 1 ? 1 : 0;
  }

  void update() {
    loads_.find_fullest();
    if (copy_price_ > 0) tokens_.place(placed_);
    std::ranges::fill(held_, std::uint16_t{0});
    for (std::size_t slot = 0; slot < placed_.size(); ++slot) {
      ++held_[cell(shape_.rank_of(slot), placed_[slot])];
      last_holder_[index_of(placed_[slot])] = shape_.rank_of(slot);
    }
    for (auto slot = placed_.size(); slot-- > 0;)
      first_holder_[index_of(placed_[slot])] = shape_.rank_of(slot);
    std::int64_t moves = 0;
    for (std::size_t c = 0; c < held_.size(); ++c) moves += held_[c] != 0 && was_[c] == 0;
    objective_ = loads_.cost() + move_price_ * moves + copies(tokens_.ranks());
  }
  /// Price of so many ranks of all tokens of the sample.
  [[nodiscard]] std::int64_t copies(std::int64_t ranks) const noexcept {
    return copy_price_ == 0 ? 0 : copy_price_ * ranks / static_cast<std::int64_t>(tokens_.tokens());
  }

  template <class Change>
  void apply(expert_id e, expert_id f, Change change) {
    loads_.take(e, placed_);
    loads_.take(f, placed_);
    change();
    loads_.put(e, placed_);
    loads_.put(f, placed_);
    update();
    ++changes_;
    for (std::size_t slot = 0; slot < placed_.size(); ++slot)
      if (placed_[slot] == e || placed_[slot] == f) changed_at_[index_of_rank(slot)] = changes_;
  }
  void apply_exchange(std::size_t i, std::size_t j) {
    apply(placed_[i], placed_[j], [&] { std::swap(placed_[i], placed_[j]); });
  }
  /// The most that the price of copies falls if the experts change ranks: each use saves at most one rank.
  [[nodiscard]] std::int64_t most_saved(expert_id e, expert_id f) const noexcept {
    return copy_price_ == 0 ? 0 : copies(tokens_.uses(e) + tokens_.uses(f));
  }
  /// Adds to `objective` what copies cost more after the change, unless it cannot get below `best`.
  template <class Change>
  [[nodiscard]] std::int64_t with_copies(std::int64_t objective, std::int64_t best, expert_id e,
                                         expert_id f, Change change) {
    if (copy_price_ == 0) return objective;
    if (objective - most_saved(e, f) >= best) return best;
    auto changed = placed_;
    change(changed);
    return objective + copies(tokens_.if_changed(e, f, changed)) - copies(tokens_.ranks());
  }

  /// Exchanges with each later rank in turn the pair of experts that helps most.
  bool exchange(std::int32_t p) {
    const auto seen = std::exchange(exchanged_[static_cast<std::size_t>(p)], changes_);
    bool better = false;
    for (std::int32_t q = p + 1; q < shape_.ranks; ++q)
      if (is_same_node(p, q) && has_changed(p, q, seen)) better |= exchange(p, q);
    return better;
  }
  bool exchange(std::int32_t p, std::int32_t q) {
    auto best = objective_;
    std::size_t first = 0;
    std::size_t second = 0;
    loads_.find_others(p, q, -1, others_);
    const auto least = objective_ - loads_.cost() + cost_of_even_loads(p, q);
    find_leaving(p, q, from_p_);
    find_leaving(q, p, from_q_);
    for (const auto& [i, price_i] : from_p_)
      for (const auto& [j, price_j] : from_q_) {
        const auto price = price_i + price_j;
        if (least + price - most_saved(placed_[i], placed_[j]) >= best) continue;
        const auto objective = if_exchanged(i, j, price, best);
        if (objective >= best) continue;
        best = objective;
        first = i;
        second = j;
      }
    if (first == second) return false;
    apply_exchange(first, second);
    return true;
  }
  /// An expert that may go to another rank, and the price of its move.
  struct leaving {
    std::size_t slot;
    std::int64_t price;
  };
  void find_leaving(std::int32_t from, std::int32_t to, std::vector<leaving>& out) const {
    const auto width = static_cast<std::size_t>(shape_.slots_per_rank);
    out.clear();
    for (auto slot = static_cast<std::size_t>(from) * width; shape_.rank_of(slot) == from; ++slot)
      if (const auto e = placed_[slot]; !holds(to, e))
        out.push_back({slot, move_price_ * (come(to, e) - leave(from, e))});
  }
  /// The objective after an exchange, or some value from `best` on. Pre: others_ is of the slots' ranks.
  [[nodiscard]] std::int64_t if_exchanged(std::size_t i, std::size_t j, std::int64_t price,
                                          std::int64_t best) {
    return with_copies(objective_ - loads_.cost() + price + cost_of_exchange(i, j), best,
                       placed_[i], placed_[j],
                       [&](expert_placement& changed) { std::swap(changed[i], changed[j]); });
  }
  /// The cost if each step were shared evenly by p and q: no exchange costs less. Pre: others_ is of p and q.
  [[nodiscard]] std::int64_t cost_of_even_loads(std::int32_t p, std::int32_t q) const noexcept {
    const auto of_p = loads_.load(p);
    const auto of_q = loads_.load(q);
    return cost_of_steps([&](std::size_t s, two_fullest others) {
      const auto half = (of_p[s] + of_q[s]) / 2;
      return others.add(half).add(half);
    });
  }
  [[nodiscard]] std::int64_t cost_of_exchange(std::size_t i, std::size_t j) const noexcept {
    const auto p = loads_.load(shape_.rank_of(i));
    const auto q = loads_.load(shape_.rank_of(j));
    const auto e = loads_.share(placed_[i]);
    const auto f = loads_.share(placed_[j]);
    return cost_of_steps([&](std::size_t s, two_fullest others) {
      const auto change = f[s] - e[s];
      return others.add(p[s] + change).add(q[s] - change);
    });
  }
  /// The cost of all steps, each with the two fullest of others_ and what `add` adds to them.
  template <class Add>
  [[nodiscard]] std::int64_t cost_of_steps(Add add) const noexcept {
    std::int64_t cost = 0;
    in_vectors(loads_.level(), [&] {
      for (std::size_t begin = 0; begin < loads_.steps(); begin += rank_loads::block) {
        std::int32_t sum = 0;
        for (auto s = begin; s < begin + rank_loads::block; ++s)
          sum += add(s, two_fullest{others_.fullest[s], others_.second[s]}).cost();
        cost += sum;
      }
    });
    return cost;
  }

  /// Gives a slot of a replicated expert to the expert that helps most.
  bool replace(std::size_t slot) {
    const auto e = placed_[slot];
    const auto p = shape_.rank_of(slot);
    const auto seen = std::exchange(replaced_[slot], changes_);
    if (loads_.replicas(e) < 2) return false;
    auto best = objective_;
    auto next = e;
    for (const auto f : each<expert_id>(shape_.experts)) {
      if (is_too_light(f, e) || !may_replace(slot, f) ||
          !has_changed(p, last_holder_[index_of(f)], seen))
        continue;
      const auto objective = if_replaced(slot, f, best);
      if (objective >= best) continue;
      best = objective;
      next = f;
    }
    if (next == e) return false;
    apply(e, next, [&] { placed_[slot] = next; });
    return true;
  }
  /// The objective after a replacement, or some value from `best` on.
  [[nodiscard]] std::int64_t if_replaced(std::size_t slot, expert_id f, std::int64_t best) {
    const auto e = placed_[slot];
    const auto p = shape_.rank_of(slot);
    const auto other = objective_ - loads_.cost() + move_price_ * (come(p, f) - leave(p, e));
    if (loads_.replicas(f) <= 2 && other + least_cost(p, e, f) - most_saved(e, f) >= best)
      return best;
    return with_copies(other + cost_of_replacement(p, e, f), best, e, f,
                       [&](expert_placement& changed) { changed[slot] = f; });
  }
  /// A lower bound of the cost if rank p gets f for e. Other ranks with e get more load. Pre: one or two ranks hold f.
  [[nodiscard]] std::int64_t least_cost(std::int32_t p, expert_id e, expert_id f) {
    const auto q = first_holder_[index_of(f)];
    const auto r = last_holder_[index_of(f)];
    loads_.find_others(p, q, r, others_);
    const auto load_p = loads_.load(p);
    const auto load_q = loads_.load(q);
    const auto load_r = loads_.load(r);
    const auto gone = loads_.share(e);
    const auto now = loads_.share(f);
    const auto then = loads_.share(f, 1);
    const std::int32_t two = q != r ? 1 : 0;
    return cost_of_steps([&](std::size_t s, two_fullest others) {
      return others.add(load_p[s] - gone[s] + then[s])
          .add(load_q[s] - now[s] + then[s])
          .add(two * (load_r[s] - now[s] + then[s]));
    });
  }
  [[nodiscard]] std::int64_t cost_of_replacement(std::int32_t p, expert_id e, expert_id f) {
    const auto steps = loads_.steps();
    fullest_.assign(steps, {});
    changed_.resize(steps);
    for (std::int32_t r = 0; r < shape_.ranks; ++r) {
      const auto es = std::int32_t{held_[cell(r, e)]};
      const auto fs = std::int32_t{held_[cell(r, f)]};
      auto load = loads_.load(r);
      if (es + fs > 0 || r == p) {
        change_load(load, e, {es, es - (r == p)}, -1);
        change_load(changed_, f, {fs, fs + (r == p)}, 1);
        load = changed_;
      }
      in_vectors(loads_.level(), [&] {
        for (std::size_t s = 0; s < steps; ++s) fullest_[s].add(load[s]);
      });
    }
    std::int64_t cost = 0;
    for (const auto& step : fullest_) cost += step.cost();
    return cost;
  }
  struct slot_counts {
    std::int32_t before, after;
  };
  /// Writes to changed_ a rank's load if its slots of e changed, and e had `more` replicas.
  void change_load(row load, expert_id e, slot_counts of_rank, int more) {
    const auto now = loads_.share(e);
    const auto then = loads_.share(e, more);
    for (std::size_t s = 0; s < load.size(); ++s)
      changed_[s] = load[s] - of_rank.before * now[s] + of_rank.after * then[s];
  }

  placement_shape shape_;
  expert_placement placed_;
  rank_loads loads_;
  token_ranks tokens_;
  std::vector<std::uint16_t> held_;  ///< [ranks][experts]: slots of the rank that hold the expert
  std::vector<std::int32_t> first_holder_, last_holder_;  ///< [experts]: ranks that hold the expert
  std::vector<std::uint8_t> was_;  ///< [ranks][experts]: whether it moves no weights there
  rank_loads::others others_;
  std::vector<leaving> from_p_, from_q_;   ///< scratch
  aligned_vector<std::int32_t> changed_;   ///< [steps], scratch
  std::vector<two_fullest> fullest_;       ///< [steps], scratch
  std::uint64_t changes_ = 1;              ///< number of changes so far, and one
  std::vector<std::uint64_t> changed_at_;  ///< [ranks]: changes_ after the last change of the rank
  std::vector<std::uint64_t> exchanged_;  ///< [ranks]: changes_ when the rank looked last; 0: never
  std::vector<std::uint64_t> replaced_;   ///< [slots]: changes_ when the slot looked last; 0: never
  std::int64_t move_price_ = 0;
  std::int64_t copy_price_ = 0;
  std::int64_t objective_ = 0;
};

}  // namespace detail

/// Places the experts of a layer. Slots of experts that stay on their rank keep their place.
/// Errors: those of place_config::validate; loads of another number of experts, or of too many steps.
[[nodiscard]] inline result<expert_placement> place_by_steps(const placement_shape& shape,
                                                             const step_loads& loads,
                                                             const place_config& how = {}) {
  if (auto bad = how.validate(shape)) return *std::move(bad);
  if (loads.experts() != shape.experts)
    return refusal("loads of ", loads.experts(), " experts, accepted: ", shape.experts);
  if (loads.steps() > place_config::most_steps)
    return refusal(loads.steps(), " steps, accepted: at most ", place_config::most_steps);
  expert_placement best = how.start.empty() ? even_packing(shape, loads.sums())
                                            : expert_placement(how.start.begin(), how.start.end());
  detail::step_search search(shape, loads, how, best);
  search.improve();
  best = search.placed();
  auto least = search.objective();
  const auto searches = (how.starts - 1) * detail::searches_per_start(shape.slots());
  for (int start = 1; start <= searches; ++start) {
    search.go_back_to(best);
    search.disturb(start);
    search.improve();
    if (search.objective() >= least) continue;
    least = search.objective();
    best = search.placed();
  }
  return how.start.empty() ? best : in_kept_slots(shape, how.start, std::move(best));
}

}  // namespace hotset
