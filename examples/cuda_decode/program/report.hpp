// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a comparison found, as text and as JSON.

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
  std::int32_t layers_of_model = 0;  ///< of which the shape may have a part
  std::string routing;               ///< where it comes from, with its statistics
  std::size_t warmup = 0;
  std::size_t steps = 0;
  routing_known known = routing_known::in_time;
  offload_fetch fetch = offload_fetch::routed;
  std::string eviction = "lru";  ///< of hotset's arms
  std::uint64_t page_locked_bytes = 0;
  std::uint64_t host_budget = 0;
  double plain_rate = 0;      ///< bytes per second of plain page-locked copies
  double turnover_bytes = 0;  ///< a step, see ceiling.hpp
  bool finished = false;      ///< no arm and no check is still to come
  std::vector<arm_result> results;
  std::vector<std::pair<std::string, std::string>> left_out;  ///< arm, reason
  std::size_t checked_steps = 0;                              ///< that the host computed too
  std::vector<std::string> differences;                       ///< empty: all bits are equal
};

/// One row of the table at equal device memory, as in WiSP's Table 2.
struct iso_memory_row {
  std::uint64_t device_bytes = 0;  ///< of hotset
  std::string baseline;
  double baseline_tokens_per_second = 0;
  std::string hotset;
  double hotset_tokens_per_second = 0;

  [[nodiscard]] double speedup() const noexcept {
    return baseline_tokens_per_second > 0 ? hotset_tokens_per_second / baseline_tokens_per_second
                                          : 0;
  }
};

/// For each cap and mode hotset against static offload in as many slots; at all experts against full residency. Rows
/// whose other arm did not run are left out.
[[nodiscard]] std::vector<iso_memory_row> iso_memory_table(const decode_report& report);

/// The text in its parts, so that an arm's row can be printed when the arm is done.
[[nodiscard]] std::string text_before_arms(const decode_report& report);
[[nodiscard]] std::string text_of(const arm_result& arm, const decode_report& report);
[[nodiscard]] std::string text_after_arms(const decode_report& report);
[[nodiscard]] std::string json_of(const decode_report& report);
/// {"skipped": reason}
[[nodiscard]] std::string json_of_skip(const std::string& reason);

}  // namespace cuda_decode
