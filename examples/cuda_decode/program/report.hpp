// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of a comparison as text and as JSON.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda_decode/model/shape.hpp"
#include "cuda_decode/program/arms.hpp"

namespace cuda_decode {

struct decode_report {
  model_shape shape;
  std::int32_t layers_of_model = 0;  ///< the shape may have fewer
  std::string routing;               ///< origin, with its statistics
  std::size_t warmup = 0;
  std::size_t steps = 0;
  routing_known known = routing_known::in_time;
  offload_fetch fetch = offload_fetch::routed;
  std::string eviction = "lru";  ///< for hotset's arms
  std::uint64_t page_locked_bytes = 0;
  std::uint64_t host_budget = 0;
  double plain_rate = 0;      ///< bytes per second of plain page-locked copies
  double turnover_bytes = 0;  ///< per step, see ceiling.hpp
  bool finished = false;      ///< all arms and checks are done
  std::vector<arm_result> results;
  std::vector<std::pair<std::string, std::string>> left_out;  ///< arm, reason
  std::size_t checked_steps = 0;                              ///< steps that the host computed, too
  std::vector<std::string> differences;                       ///< empty if all bits are equal
};

/// One row of the table at equal device memory, like WiSP's Table 2.
struct iso_memory_row {
  std::uint64_t device_bytes = 0;  ///< bytes of hotset's slots
  std::string baseline;
  double baseline_tokens_per_second = 0;
  std::string hotset;
  double hotset_tokens_per_second = 0;

  [[nodiscard]] double speedup() const noexcept {
    return baseline_tokens_per_second > 0 ? hotset_tokens_per_second / baseline_tokens_per_second
                                          : 0;
  }
};

/// For each cap and mode, hotset compared with static offload in as many slots; with all experts, compared with full
/// residency. Rows without a result of the other arm are left out.
[[nodiscard]] std::vector<iso_memory_row> iso_memory_table(const decode_report& report);

/// The text in parts, so that an arm's row can be printed when the arm is done.
[[nodiscard]] std::string text_before_arms(const decode_report& report);
[[nodiscard]] std::string text_of(const arm_result& arm, const decode_report& report);
[[nodiscard]] std::string text_after_arms(const decode_report& report);
[[nodiscard]] std::string json_of(const decode_report& report);
/// Returns {"skipped": reason}.
[[nodiscard]] std::string json_of_skip(const std::string& reason);

}  // namespace cuda_decode
