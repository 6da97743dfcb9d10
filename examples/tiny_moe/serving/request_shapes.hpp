// SPDX-License-Identifier: Apache-2.0
#pragma once
/// From a recorded request trace to requests for a small model: the trace says when, how long and what is shared.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "lab/traces/kv_trace.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace tiny_moe {

struct request_scaling {
  std::uint32_t scale = 32;         ///< tokens of the trace for one of ours
  double steps_per_second = 20;     ///< passes of ours in a second of the trace
  std::size_t most = 0;             ///< requests, the first ones; 0: all
  std::uint64_t first_arrival = 0;  ///< step of the first request
  std::uint64_t seed = 1;           ///< of the texts

  [[nodiscard]] hotset::validation validate() const;
};

/// Prompts are pieces of `texts`: equal blocks of the trace are equal bytes, others differ from their first bytes on;
/// requests without blocks share nothing. Requests that begin with the same block are of the same text.
/// Pre: the scaling is valid; texts are not empty, nor is one of them.
[[nodiscard]] std::vector<serving_request> shaped_requests(const hotset::kv_trace& trace,
                                                           std::span<const std::string> texts,
                                                           const request_scaling& scaling);

}  // namespace tiny_moe
