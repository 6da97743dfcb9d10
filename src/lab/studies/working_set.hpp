// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How concentrated and how local the routing of a trace is: its working set, measured as WiSP does.
///
/// Source: WiSP, section 5.4 and appendices G.1 to G.3. Words:
///  pool      all experts of all layers; a share of it counts (layer, expert) pairs.
///  step      of a sequence: its rows of one step of the trace. Where they differ in kind it is prefill if
///            any is, else verify if any is. The step before is the sequence's own.
///  burst     consecutive steps of one sequence and one kind: prefill steps in a row are one burst, others are
///            cut into bursts of `burst` steps, of which the last before another kind or the end may be shorter.
///  agreement of steps t and t + d of a sequence: the share of the decisions of t + d that t made, too. A
///            decision is an expert of a token in a layer, whatever its rank. Where both steps have equally
///            many tokens, token is compared with token; else a decision is an expert of the step in a layer.
///            Steps of different kinds are not compared.
/// Absent ids count nowhere; what would be a share of nothing is left out.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// How a working set is measured.
struct working_set_options {
  std::uint32_t burst = 32;      ///< steps of a burst, unless they are prefill
  std::uint32_t distances = 32;  ///< agreement is measured at 1, 2, 4, ... up to this
  std::uint64_t seed = 1;        ///< of the shuffled orders

  [[nodiscard]] validation validate() const;
};

/// Shares in 0..1, summed up.
struct share_sum {
  std::uint64_t count = 0;
  double total = 0;
  double least = 1;
  double most = 0;

  void add(double share) noexcept;
  /// Pre: count > 0.
  [[nodiscard]] double mean() const noexcept { return total / static_cast<double>(count); }
};

/// Of the bursts of one kind.
struct burst_sizes {
  share_sum pool;             ///< experts used, as a share of the pool
  std::uint64_t shorter = 0;  ///< bursts of fewer steps than asked for
};
/// Of neighbouring bursts A, B of a sequence.
struct burst_overlap {
  share_sum jaccard;  ///< |A and B| / |A or B|
  share_sum held;     ///< |A and B| / |B|: what a cache of A would have had for B
};
/// What sequences have used after a number of bursts.
struct footprint_point {
  std::uint64_t bursts = 0;
  share_sum pool;  ///< over those that have so many bursts
};
/// What has been used so far, as a share of the pool.
struct footprint {
  std::vector<footprint_point> after;  ///< 1, 2, 4, ... bursts
  share_sum end;
};
/// How alike steps are that lie so far apart.
struct agreement_point {
  std::uint64_t distance = 0;
  share_sum in_order;
  share_sum shuffled;  ///< the same with the steps of each sequence in an order drawn from the seed
};

/// Of one trace.
struct working_set {
  working_set_options options;
  std::uint64_t pool = 0;             ///< layers x experts
  std::array<burst_sizes, 3> bursts;  ///< by request_class
  burst_overlap next_burst;           ///< whatever their kinds
  burst_overlap next_decode_burst;    ///< both of decode
  share_sum next_step;  ///< experts of a decode step that the decode step before it used
  std::uint64_t all_bursts = 0;
  footprint sequences;  ///< of each sequence
  footprint trace;      ///< of all together; bursts in the order in which they begin
  std::vector<agreement_point> agreement;  ///< at distance 1, 2, 4, ...
};

/// Errors: throws invalid_config if the options or the trace are not valid.
/// Complexity: O(T log T + T L K log D) time for T tokens and distances up to D, O(T + L E) memory.
[[nodiscard]] working_set measure_working_set(const routing_trace& trace,
                                              const working_set_options& options = {});

}  // namespace hotset::lab
