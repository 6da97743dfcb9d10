// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Many requests over one pool of KV blocks: continuous batching, and preemption where blocks run out.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/kv_pool.hpp"

namespace tiny_moe {

struct serving_request {
  std::uint64_t arrival = 0;  ///< admitted at this step or later, or at this time of the clock
  std::vector<std::uint8_t> prompt;
  std::size_t tokens = 0;  ///< to generate
  std::uint32_t user = 0;  ///< whose it is
  adapter_id adapter = base_model;

  /// Tokens that the KV cache holds in the end: the last one that is generated is not fed.
  [[nodiscard]] std::size_t longest() const noexcept;
};

struct serving_config {
  std::size_t max_sessions = 8;
  std::size_t max_tokens = 64;  ///< of one prefill pass
  /// Told before each pass whose token each of its rows is.
  std::function<void(std::span<const std::uint32_t>)> on_rows{};
  /// Asked before a request is admitted, a preempted one again. With a reason it waits, those behind it too, and is asked
  /// about again when another has ended or was preempted; while none runs it is refused.
  std::function<hotset::validation(adapter_id)> on_admit{};
  /// Told when an admitted request ends, is preempted, or is given up for an error. Must not throw.
  std::function<void(adapter_id)> on_end{};
  /// What arrivals and times of requests are counted in, from 0 when serving begins; none: passes. Never goes back. Time in
  /// which nothing runs and nothing has arrived is skipped.
  std::function<std::uint64_t()> clock{};

  /// engine_tokens: what the engine allows in one pass.
  [[nodiscard]] hotset::validation validate(std::size_t engine_tokens) const;
};

/// What became of a request. Steps, or the clock's time, are counted from its arrival.
struct served_request {
  std::vector<std::uint8_t> output;  ///< greedy
  std::string refusal;               ///< why there is no more of it; empty: it is complete
  std::uint64_t first_token = 0;     ///< steps until the first token was there
  std::uint64_t steps = 0;           ///< until the last one, or the refusal
  std::uint64_t preemptions = 0;
};

struct serving_stats {
  std::uint64_t steps = 0;              ///< forward passes
  std::uint64_t prefilled_tokens = 0;   ///< in passes of prompts
  std::uint64_t recomputed_tokens = 0;  ///< those of them that their request had before
  std::uint64_t decoded_tokens = 0;     ///< in passes of one token a session
  std::uint64_t reused_tokens = 0;      ///< taken over from the cache instead
  std::uint64_t preemptions = 0;
  std::uint64_t peak_blocks = 0;  ///< in use in one pass
};

struct serving_report {
  std::vector<served_request> requests;  ///< in the order of the input
  serving_stats stats;
};

/// Between two passes the pool is drained, and whoever is called may resize it.
struct drained_point {
  kv_pool& pool;
  const serving_stats& stats;      ///< so far
  std::uint64_t step = 0;          ///< of the next pass, or the clock's time
  std::size_t running = 0;         ///< sessions
  std::size_t waiting = 0;         ///< requests that have arrived
  std::size_t ended = 0;           ///< requests that are complete or refused
  std::uint64_t least_blocks = 0;  ///< with fewer, one of these would be refused
};
using between_steps = std::function<void(const drained_point&)>;

/// Serves requests in the order of their arrival, those of one step in the order given. One step is one forward
/// pass, unless a clock says how long it took; time stands still only while nothing has arrived, and then goes on at the
/// next arrival.
///
/// Rule: a request is admitted when the blocks of its prompt and one more token are there beside those that
/// the running sessions need next. Passes of prompts (in chunks, of several sessions at once) and of one token of
/// each other session take turns. Where a block is missing, the session that was admitted last goes back to
/// the front of the queue, and later computes again what the cache has lost. A request is refused if the
/// pool is too small for all of it when its turn comes, or on_admit turns it away while none runs.
/// Exact: outputs are those of each request alone, as long as the experts are exact.
/// `between` is called before each pass, and when nothing has arrived.
/// Errors: hotset::invalid_config; what the provider, `between` or on_admit throws. No sequence of a request stays open,
/// and on_end is told of every request that was admitted.
[[nodiscard]] serving_report serve(batch_engine& decoder, std::span<const serving_request> requests,
                                   const serving_config& config = {},
                                   const between_steps& between = {});

}  // namespace tiny_moe
