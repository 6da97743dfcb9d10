// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Scales a recorded request trace to a small model: the trace gives arrivals, lengths and sharing.

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
  std::uint32_t scale = 32;         ///< tokens of the trace for each token served
  double steps_per_second = 20;     ///< passes in each second of the trace
  std::size_t most = 0;             ///< number of first requests; 0: all
  std::uint64_t first_arrival = 0;  ///< step of the first request
  std::uint64_t seed = 1;           ///< seed of the texts

  [[nodiscard]] hotset::validation validate() const;
};

/// Prompts are pieces of `texts`: equal blocks of the trace become equal bytes, others differ in their first bytes.
/// Requests without blocks share nothing. Requests that begin with the same block use the same text.
/// Pre: the scaling is valid; `texts` is not empty, nor is any of them.
[[nodiscard]] std::vector<serving_request> shaped_requests(const hotset::kv_trace& trace,
                                                           std::span<const std::string> texts,
                                                           const request_scaling& scaling);

}  // namespace tiny_moe
