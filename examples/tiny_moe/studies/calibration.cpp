// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/studies/unit_prices.hpp"

namespace tiny_moe {
namespace {

double checked(const hotset::result<double>& seconds) {
  if (!seconds) throw std::runtime_error(seconds.error().message);
  return *seconds;
}

double link_seconds(const model& weights) {
  constexpr std::size_t copies = 2048;
  paging_config paging;
  const auto experts = weights.config().experts;
  paging.layout =
      hotset::pool_layout::shared(geometry_of(weights), static_cast<std::int64_t>(experts)).value();
  const auto bank = bank_of(weights, paging);
  const expert_copies source(weights, paging);
  hotset::host_backend<expert_copies> backend(source, bank);
  hotset::host_stream stream(hotset::host_stream::mode::caller);
  std::vector<hotset::fill> fills(copies);
  for (std::size_t i = 0; i < copies; ++i) {  // all experts, layer by layer, through the same slots
    fills[i].key = {static_cast<hotset::layer_id>(i / experts % weights.config().layers),
                    static_cast<hotset::expert_id>(i % experts)};
    fills[i].slot = static_cast<hotset::slot_id>(i % experts);
  }
  return checked(link_seconds_per_byte(backend, stream, fills, weights.config().expert_bytes(),
                                       {.small = copies / 16, .large = copies, .rounds = 7}));
}

double prefill_seconds(const model& weights) {
  const std::size_t most = std::min<std::size_t>(weights.config().max_positions, 128);
  resident_experts experts(weights);
  engine decoder(weights, experts, {.max_positions = most});
  std::vector<std::uint8_t> prompt(most);
  for (std::size_t i = 0; i < most; ++i) prompt[i] = static_cast<std::uint8_t>(' ' + i % 90);
  const auto compute = [&](std::size_t tokens) {
    decoder.reset();
    const auto start = std::chrono::steady_clock::now();
    decoder.forward(std::span(prompt).first(tokens), request_kind::prefill);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  (void)compute(most);
  return checked(seconds_per_unit({.small = most / 4, .large = most, .rounds = 7}, compute));
}

}  // namespace

hotset::cost_model calibrate(const model& weights) {
  return {.seconds_per_byte = link_seconds(weights),
          .recompute_seconds_per_token = prefill_seconds(weights)};
}

}  // namespace tiny_moe
