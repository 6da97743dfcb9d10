// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Many requests over one pool of KV blocks: continuous batching, and preemption if blocks run out.

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
  std::uint64_t arrival = 0;  ///< earliest step of admission, or time on the clock
  std::vector<std::uint8_t> prompt;
  std::size_t tokens = 0;  ///< to generate
  std::uint32_t user = 0;  ///< user that sent it
  adapter_id adapter = base_model;

  /// Tokens in the KV cache at the end: the last generated token is not fed.
  [[nodiscard]] std::size_t longest() const noexcept;
};

struct serving_config {
  std::size_t max_sessions = 8;
  std::size_t max_tokens = 64;  ///< prompt tokens of a pass
  /// Called before each pass with the user of each of its rows.
  std::function<void(std::span<const std::uint32_t>)> on_rows{};
  /// Called before a request is admitted, also after a preemption. If it returns an error, this request and those
  /// behind it wait, and it is called again when another request has ended or was preempted. If none runs, the
  /// request is refused.
  std::function<hotset::validation(adapter_id)> on_admit{};
  /// Called when an admitted request ends, is preempted, or is dropped because of an error. Must not throw.
  std::function<void(adapter_id)> on_end{};
  /// Clock for arrivals and times of requests, starting at 0 when serving begins; none: passes. Never decreases. Time
  /// without running or arrived requests is skipped.
  std::function<std::uint64_t()> clock{};

  /// engine_tokens: maximum tokens of the engine's passes.
  [[nodiscard]] hotset::validation validate(std::size_t engine_tokens) const;
};

/// Result of a request. Steps, or clock times, are relative to its arrival.
struct served_request {
  std::vector<std::uint8_t> output;  ///< greedy
  std::string refusal;               ///< reason why the output is incomplete; empty: it is complete
  std::uint64_t first_token = 0;     ///< steps until the first token
  std::uint64_t steps = 0;           ///< until the last token, or the refusal
  std::uint64_t preemptions = 0;
};

struct serving_stats {
  std::uint64_t steps = 0;              ///< forward passes
  std::uint64_t prefilled_tokens = 0;   ///< in prompt passes
  std::uint64_t recomputed_tokens = 0;  ///< prefilled tokens that their request had computed before
  std::uint64_t decoded_tokens = 0;     ///< in passes of one token per session
  std::uint64_t reused_tokens = 0;      ///< taken from the cache instead
  std::uint64_t preemptions = 0;
  std::uint64_t peak_blocks = 0;  ///< maximum blocks in use in one pass
};

struct serving_report {
  std::vector<served_request> requests;  ///< in the order of the input
  serving_stats stats;
};

/// State between two passes: the pool is drained, and callbacks may resize it.
struct drained_point {
  kv_pool& pool;
  const serving_stats& stats;      ///< totals so far
  std::uint64_t step = 0;          ///< step of the next pass, or the clock's time
  std::size_t running = 0;         ///< sessions
  std::size_t waiting = 0;         ///< arrived requests
  std::size_t ended = 0;           ///< complete or refused requests
  std::uint64_t least_blocks = 0;  ///< with fewer blocks, one of these requests would be refused
};
using between_steps = std::function<void(const drained_point&)>;

/// Serves requests in order of arrival, those of one step in the given order. One step is one forward pass, unless a
/// clock gives its duration. If nothing has arrived, time jumps to the next arrival.
///
/// Rule: a request is admitted when the blocks of its prompt and one more token are available beside those that the
///       running sessions need next. Passes of prompts (in chunks, of several sessions at once) alternate with passes
///       of one token for each other session. If a block is missing, the session admitted last returns to the front
///       of the queue, and later recomputes what the cache has evicted. A request is refused if the whole pool is too
///       small for it when its turn comes, or if on_admit rejects it while none runs.
/// Exact: outputs are those of each request alone, if the experts are exact.
/// `between` is called before each pass, and when nothing has arrived.
/// Errors: hotset::invalid_config; exceptions of the provider, `between` or on_admit. No sequence of a request stays
/// open, and on_end is called for every admitted request.
[[nodiscard]] serving_report serve(batch_engine& decoder, std::span<const serving_request> requests,
                                   const serving_config& config = {},
                                   const between_steps& between = {});

}  // namespace tiny_moe
