// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tiny model with its experts on the device: attention, router and the sum over ranks stay on the host.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

#include "cuda_decode/decoder/decoder.hpp"
#include "cuda_decode/program/options.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace cuda_decode {

/// The tiny model's experts: f16; gate, up, down.
[[nodiscard]] model_shape shape_of(const tiny_moe::model& weights);

/// A page-locked copy of the model's experts. Errors: hotset::invalid_config.
[[nodiscard]] hotset::memory_expert_source page_locked_source(const tiny_moe::model& weights,
                                                              hotset::cuda::pinned_memory& pages);

/// Computes each visit's experts on the device, from the slots that `experts` names.
class device_expert_provider final : public tiny_moe::expert_provider {
 public:
  /// `experts` outlives the provider. Errors: device_error, hotset::invalid_config.
  device_expert_provider(const device_parts& parts, const model_shape& shape,
                         experts_on_device& experts, std::size_t max_tokens);
  ~device_expert_provider() override;
  device_expert_provider(const device_expert_provider&) = delete;
  device_expert_provider& operator=(const device_expert_provider&) = delete;

  /// Errors: device_error; tiny_moe::provider_error if an expert had no slot.
  void run(const tiny_moe::visit_inputs& visit, tiny_moe::visit_compute& compute) override;

 private:
  void compute_group(const tiny_moe::visit_inputs& visit);

  device_parts parts_;
  model_shape shape_;
  experts_on_device& experts_;
  hotset::cuda::stream stream_;
  pinned_array<std::uint32_t> staged_;  ///< [max_tokens, top_k] ids, then [max_tokens, hidden]
  device_array<std::uint32_t> inputs_;
  device_array<float> inner_;    ///< [max_tokens * top_k, inner]
  pinned_array<float> outputs_;  ///< [max_tokens * top_k, hidden]; the device writes here
  device_array<std::uint32_t> skipped_;
  pinned_array<std::uint32_t> host_skipped_;
  std::vector<std::int32_t> tokens_;  ///< of the group
};

struct tiny_run {
  std::vector<float> logits;       ///< of every position, in order
  std::vector<std::uint8_t> text;  ///< what was generated
};
/// The prompt in one pass, then `tokens` tokens, greedily.
[[nodiscard]] tiny_run decode_tiny(const device_parts& parts, const tiny_moe::model& weights,
                                   experts_on_device& experts, std::string_view prompt,
                                   std::size_t tokens);

/// Runs the model with all experts on the device, and with as many as the budget allows; prints whether the logits are
/// equal byte for byte. Returns: an exit_code. Errors: usage_error, infeasible_error, hotset::trace_error, device_error.
int run_tiny(const program_options& asked, const device_parts& parts, std::ostream& out);

}  // namespace cuda_decode
