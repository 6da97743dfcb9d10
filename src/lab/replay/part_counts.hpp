// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counters of the parts of a replay: windows of steps, and sequences.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::lab {

/// Counts of consecutive steps.
struct window_counts {
  std::uint64_t first_step = 0;  ///< steps are numbered from 0
  std::uint64_t steps = 0;       ///< includes steps without a visit
  std::uint64_t tokens = 0;
  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  std::uint64_t fills = 0;
  friend bool operator==(const window_counts&, const window_counts&) = default;
};

/// Counts of one sequence. If several sequences of a step use an expert, the access is that of the first one.
struct sequence_counts {
  std::uint32_t sequence = 0;  ///< number in the trace
  std::uint64_t tokens = 0;
  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  friend bool operator==(const sequence_counts&, const sequence_counts&) = default;
};

/// Takes the counts while a replay runs. Its parts sum to the replay's totals.
///
/// A window is the difference of the pager's counters at its ends. Sequences are counted visit by visit, from the
/// residents before the visit. No allocation per visit.
class part_counts {
 public:
  static constexpr std::uint32_t most_windows = 100;
  static constexpr std::size_t most_sequences = 1000;

  /// Without `by_sequence`, count() does nothing: the replay's hits are not those of residents before a visit.
  part_counts(const routing_trace& trace, const visit_sequence& visits, bool by_sequence);

  /// Call before visit i. `stats()` returns the counters so far; called at ends of windows only.
  template <class Stats>
  void begin(std::size_t i, Stats stats) {
    const auto& v = visits_.at(i);
    first_row_ = v.first_row;
    if (v.step >= window_end_) [[unlikely]]
      end_windows(v.step, v.first_row, stats());
  }
  /// Counts the uses of the visit. `is_resident(expert)`: whether the visit hits it.
  template <class IsResident>
  void count(const routing_view& view, IsResident is_resident) {
    if (counts_.empty()) return;
    ++visit_;
    std::size_t token = first_row_;
    for (std::size_t n = 0, rank = 0; n < view.experts.size(); ++n) {
      const auto expert = view.experts[n];
      if (expert >= 0 && index_of(expert) < last_visit_.size() &&
          std::exchange(last_visit_[expert], visit_) != visit_) {
        auto& sequence = counts_[sequence_of_[token]];
        ++sequence.accesses;
        sequence.hits += is_resident(expert) ? 1U : 0U;
      }
      if (++rank == ranks_) {
        rank = 0;
        ++token;
      }
    }
  }
  /// Ends the last window. `stats`: counters of the whole replay.
  void finish(const pager_stats& stats);

  /// At most most_windows, in order. Call once, after finish().
  [[nodiscard]] std::vector<window_counts> take_windows() { return std::move(windows_); }
  /// The first most_sequences by first token; nothing if they are not counted. Call once.
  [[nodiscard]] std::optional<std::vector<sequence_counts>> take_sequences();

 private:
  void end_windows(std::uint64_t step, std::uint64_t token, const pager_stats& stats);

  const visit_sequence& visits_;
  std::uint64_t tokens_;
  std::uint64_t window_steps_;
  std::uint64_t window_end_;  ///< first step of the next window
  std::uint64_t window_token_ = 0;
  pager_stats at_window_{};
  std::vector<window_counts> windows_;
  std::size_t first_row_ = 0;
  std::size_t ranks_;
  std::uint64_t visit_ = 0;
  per_expert<std::uint64_t> last_visit_;
  std::vector<std::uint32_t> sequence_of_;  ///< [tokens] index in counts_
  std::vector<sequence_counts> counts_;     ///< all sequences; empty: not counted
};

}  // namespace hotset::lab
