// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/part_counts.hpp"

#include <algorithm>
#include <unordered_map>

namespace hotset::lab {

part_counts::part_counts(const routing_trace& trace, const visit_sequence& visits, bool by_sequence)
    : visits_(visits),
      tokens_(trace.tokens()),
      window_steps_((visits.steps() + most_windows - 1) / most_windows),
      window_end_(window_steps_),
      ranks_(visits.shape().ranks()) {
  if (!by_sequence) return;
  last_visit_.assign(visits.shape().expert_count(), 0);
  std::unordered_map<std::uint32_t, std::uint32_t> indices;
  sequence_of_.reserve(trace.tokens());
  for (const auto sequence : trace.sequence) {
    const auto [at, is_new] =
        indices.try_emplace(sequence, static_cast<std::uint32_t>(counts_.size()));
    if (is_new) counts_.push_back({.sequence = sequence});
    ++counts_[at->second].tokens;
    sequence_of_.push_back(at->second);
  }
}

/// Ends every window before `step`, whose first token is `token`.
void part_counts::end_windows(std::uint64_t step, std::uint64_t token, const pager_stats& stats) {
  while (step >= window_end_) {
    const auto first = window_end_ - window_steps_;
    windows_.push_back({.first_step = first,
                        .steps = window_steps_,
                        .tokens = token - window_token_,
                        .accesses = stats.accesses - at_window_.accesses,
                        .hits = stats.hits - at_window_.hits,
                        .fills = stats.fills - at_window_.fills});
    at_window_ = stats;
    window_token_ = token;
    window_end_ += window_steps_;
  }
}

void part_counts::finish(const pager_stats& stats) {
  const std::uint64_t steps = visits_.steps();
  end_windows((steps + window_steps_ - 1) / window_steps_ * window_steps_, tokens_, stats);
  windows_.back().steps = steps - windows_.back().first_step;
}

std::optional<std::vector<sequence_counts>> part_counts::take_sequences() {
  if (counts_.empty()) return std::nullopt;
  counts_.resize(std::min(counts_.size(), most_sequences));
  return std::move(counts_);
}

}  // namespace hotset::lab
