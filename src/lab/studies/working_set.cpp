// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/working_set.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "hotset/core/ids.hpp"
#include "lab/progress.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::lab {
namespace {

using row_span = std::span<const std::uint32_t>;

double share_of(std::uint64_t part, std::uint64_t whole) noexcept {
  return static_cast<double>(part) / static_cast<double>(whole);
}

/// Consecutive entries of one kind in the list below.
struct stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  request_class kind = request_class::decode;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

/// A trace by sequences. Memory: O(tokens).
struct cut_trace {
  std::vector<std::uint32_t> rows;  ///< of the trace: by sequence, then as they come
  std::vector<stretch> steps;       ///< of rows
  std::vector<stretch> bursts;      ///< of steps
  std::vector<stretch> sequences;   ///< of bursts

  [[nodiscard]] row_span rows_of_step(std::size_t step) const noexcept {
    return row_span(rows).subspan(steps[step].begin, steps[step].size());
  }
  [[nodiscard]] row_span rows_of_burst(std::size_t burst) const noexcept {
    const auto first = steps[bursts[burst].begin].begin;
    return row_span(rows).subspan(first, steps[bursts[burst].end - 1].end - first);
  }
  /// The steps of a sequence.
  [[nodiscard]] stretch steps_of(const stretch& sequence) const noexcept {
    return {bursts[sequence.begin].begin, bursts[sequence.end - 1].end, request_class::decode};
  }
};

request_class combined(request_class a, request_class b) noexcept {
  for (const auto kind : {request_class::prefill, request_class::verify})
    if (a == kind || b == kind) return kind;
  return request_class::decode;
}

void cut_steps(const routing_trace& trace, cut_trace& cut) {
  cut.rows.resize(trace.tokens());
  std::iota(cut.rows.begin(), cut.rows.end(), 0U);
  std::ranges::stable_sort(cut.rows, {}, [&](std::uint32_t row) { return trace.sequence[row]; });
  for (std::size_t i = 0; i < cut.rows.size(); ++i) {
    const auto row = cut.rows[i];
    const auto last = i == 0 ? row : cut.rows[i - 1];
    if (i == 0 || trace.sequence[row] != trace.sequence[last] ||
        trace.step[row] != trace.step[last])
      cut.steps.push_back({i, i, trace.kind[row]});
    auto& step = cut.steps.back();
    step.end = i + 1;
    step.kind = combined(step.kind, trace.kind[row]);
  }
}

void cut_bursts(const routing_trace& trace, std::uint32_t length, cut_trace& cut) {
  for (std::size_t i = 0; i < cut.steps.size(); ++i) {
    const auto& step = cut.steps[i];
    const auto sequence_of = [&](std::size_t s) {
      return trace.sequence[cut.rows[cut.steps[s].begin]];
    };
    const bool new_sequence = i == 0 || sequence_of(i) != sequence_of(i - 1);
    const bool full =
        !new_sequence && step.kind != request_class::prefill && cut.bursts.back().size() == length;
    const bool new_burst = new_sequence || full || step.kind != cut.bursts.back().kind;
    if (new_burst) cut.bursts.push_back({i, i, step.kind});
    cut.bursts.back().end = i + 1;
    if (new_sequence) cut.sequences.push_back({cut.bursts.size() - 1, 0, request_class::decode});
    cut.sequences.back().end = cut.bursts.size();
  }
}

/// Distinct experts of two groups of rows.
struct set_sizes {
  std::uint64_t before = 0;
  std::uint64_t now = 0;
  std::uint64_t both = 0;
};

/// Compares the experts of groups of rows. Memory: O(layers x experts).
class expert_sets {
 public:
  explicit expert_sets(const routing_trace& trace)
      : trace_(trace),
        stamps_(static_cast<std::size_t>(trace.layers) * static_cast<std::size_t>(trace.experts)) {}

  [[nodiscard]] std::size_t keys() const noexcept { return stamps_.size(); }

  template <class Visit>
  void for_each_key(row_span rows, Visit&& visit) const {
    const auto experts = static_cast<std::size_t>(trace_.experts);
    for (const auto row : rows)
      for (const auto layer : each<layer_id>(trace_.layers))
        for (const auto id : trace_.ids_of(row, layer))
          if (id >= 0) visit(index_of(layer) * experts + index_of(id));
  }

  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of time
  set_sizes compare(row_span before, row_span now) {
    set_sizes sizes;
    stamp_ += 2;
    for_each_key(before, [&](std::size_t key) {
      if (std::exchange(stamps_[key], stamp_) != stamp_) ++sizes.before;
    });
    for_each_key(now, [&](std::size_t key) {
      const auto stamp = std::exchange(stamps_[key], stamp_ + 1);
      if (stamp == stamp_) ++sizes.both;
      if (stamp != stamp_ + 1) ++sizes.now;
    });
    return sizes;
  }

  /// Token by token where there are equally many, else as two sets.
  set_sizes compare_steps(row_span before, row_span now) {
    if (before.size() != now.size()) return compare(before, now);
    set_sizes sizes;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto one = compare(before.subspan(i, 1), now.subspan(i, 1));
      sizes.before += one.before;
      sizes.now += one.now;
      sizes.both += one.both;
    }
    return sizes;
  }

 private:
  const routing_trace& trace_;
  std::vector<std::uint64_t> stamps_;  ///< by key
  std::uint64_t stamp_ = 0;
};

void add_overlap(const set_sizes& sizes, burst_overlap& out) {
  if (sizes.now == 0) return;
  out.jaccard.add(share_of(sizes.both, sizes.before + sizes.now - sizes.both));
  out.held.add(share_of(sizes.both, sizes.now));
}

void measure_bursts(const cut_trace& cut, expert_sets& sets, working_set& out) {
  for (const auto& sequence : cut.sequences) {
    for (auto b = sequence.begin; b < sequence.end; ++b) {
      const bool first = b == sequence.begin;
      const auto& burst = cut.bursts[b];
      const auto sizes =
          sets.compare(first ? row_span() : cut.rows_of_burst(b - 1), cut.rows_of_burst(b));
      auto& kind = out.bursts[static_cast<std::size_t>(burst.kind)];
      kind.pool.add(share_of(sizes.now, out.pool));
      if (burst.kind != request_class::prefill && burst.size() < out.options.burst) ++kind.shorter;
      if (first) continue;
      add_overlap(sizes, out.next_burst);
      if (burst.kind == request_class::decode && cut.bursts[b - 1].kind == request_class::decode)
        add_overlap(sizes, out.next_decode_burst);
    }
  }
}

void measure_steps(const cut_trace& cut, expert_sets& sets, share_sum& out) {
  for (const auto& sequence : cut.sequences) {
    const auto steps = cut.steps_of(sequence);
    for (auto s = steps.begin + 1; s < steps.end; ++s) {
      if (cut.steps[s].kind != request_class::decode ||
          cut.steps[s - 1].kind != request_class::decode)
        continue;
      const auto sizes = sets.compare(cut.rows_of_step(s - 1), cut.rows_of_step(s));
      if (sizes.now > 0) out.add(share_of(sizes.both, sizes.now));
    }
  }
}

/// The place for what has been used after so many bursts, a power of two.
share_sum& after_bursts(std::size_t bursts, footprint& out) {
  const auto at = static_cast<std::size_t>(std::countr_zero(bursts));
  for (auto n = out.after.size(); n <= at; ++n) out.after.push_back({std::uint64_t{1} << n, {}});
  return out.after[at].pool;
}

/// `last_owner`: by key, whose bursts used it last. Pre: owner is new to it.
void follow_bursts(const cut_trace& cut, const expert_sets& sets,
                   std::span<const std::size_t> bursts, std::size_t owner,
                   std::vector<std::size_t>& last_owner, footprint& out) {
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < bursts.size(); ++i) {
    sets.for_each_key(cut.rows_of_burst(bursts[i]), [&](std::size_t key) {
      if (std::exchange(last_owner[key], owner) != owner) ++used;
    });
    if (std::has_single_bit(i + 1)) after_bursts(i + 1, out).add(share_of(used, sets.keys()));
  }
  out.end.add(share_of(used, sets.keys()));
}

void measure_footprints(const cut_trace& cut, const expert_sets& sets, working_set& out) {
  std::vector<std::size_t> last_owner(sets.keys(), 0);
  std::vector<std::size_t> order(cut.bursts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t s = 0; s < cut.sequences.size(); ++s) {
    const auto& sequence = cut.sequences[s];
    const auto bursts = std::span(order).subspan(sequence.begin, sequence.size());
    follow_bursts(cut, sets, bursts, s + 1, last_owner, out.sequences);
  }
  std::ranges::sort(order, {}, [&](std::size_t b) { return cut.rows_of_burst(b).front(); });
  follow_bursts(cut, sets, order, cut.sequences.size() + 1, last_owner, out.trace);
  out.all_bursts = order.size();
}

void add_agreement(const cut_trace& cut, std::span<const std::size_t> steps, std::size_t distance,
                   expert_sets& sets, share_sum& out) {
  for (std::size_t i = distance; i < steps.size(); ++i) {
    const auto before = steps[i - distance];
    const auto now = steps[i];
    if (cut.steps[before].kind != cut.steps[now].kind) continue;
    const auto sizes = sets.compare_steps(cut.rows_of_step(before), cut.rows_of_step(now));
    if (sizes.now > 0) out.add(share_of(sizes.both, sizes.now));
  }
}

/// Depends on the seed and the sequence's number alone.
void shuffle(std::span<std::size_t> steps, std::uint64_t seed, std::uint32_t sequence) {
  splitmix64 random(splitmix64(seed).next() ^ sequence);
  for (auto i = steps.size(); i > 1; --i) std::swap(steps[i - 1], steps[random.below(i)]);
}

void measure_agreement(const routing_trace& trace, const cut_trace& cut, expert_sets& sets,
                       working_set& out) {
  for (std::uint64_t d = 1; d <= out.options.distances; d *= 2)
    out.agreement.push_back({d, {}, {}});
  std::vector<std::size_t> order;
  std::uint64_t compared = 0;
  progress told(2 * out.agreement.size() * cut.steps.size());
  const auto add = [&](agreement_point& point, share_sum& agrees) {
    told.at(compared);
    add_agreement(cut, order, point.distance, sets, agrees);
    compared += order.size();
  };
  for (const auto& sequence : cut.sequences) {
    const auto steps = cut.steps_of(sequence);
    order.resize(steps.size());
    std::iota(order.begin(), order.end(), steps.begin);
    for (auto& point : out.agreement) add(point, point.in_order);
    shuffle(order, out.options.seed, trace.sequence[cut.rows_of_step(steps.begin).front()]);
    for (auto& point : out.agreement) add(point, point.shuffled);
  }
}

}  // namespace

validation working_set_options::validate() const {
  if (burst < 1) return error{"burst = 0, accepted: 1 or more"};
  if (distances < 1) return error{"distances = 0, accepted: 1 or more"};
  return std::nullopt;
}

void share_sum::add(double share) noexcept {
  ++count;
  total += share;
  least = std::min(least, share);
  most = std::max(most, share);
}

working_set measure_working_set(const routing_trace& trace, const working_set_options& options) {
  require_valid(options.validate());
  require_valid(trace.validate());
  cut_trace cut;
  cut_steps(trace, cut);
  cut_bursts(trace, options.burst, cut);
  expert_sets sets(trace);
  working_set out;
  out.options = options;
  out.pool = sets.keys();
  measure_bursts(cut, sets, out);
  measure_steps(cut, sets, out.next_step);
  measure_footprints(cut, sets, out);
  measure_agreement(trace, cut, sets, out);
  return out;
}

}  // namespace hotset::lab
