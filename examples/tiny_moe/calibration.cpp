// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "hotset/budget/calibration.hpp"
#include "tiny_moe/engine.hpp"
#include "tiny_moe/paged_experts.hpp"

namespace tiny_moe {
namespace {

double checked(const hotset::result<double>& seconds) {
  if (!seconds) throw std::runtime_error(seconds.reason().message);
  return *seconds;
}

template <class Backend>
double link_seconds(const model& weights, const hotset::host_slot_bank& bank,
                    const typename Backend::config& setup) {
  const expert_copies source(weights, nullptr);
  Backend backend(source, bank, setup);
  hotset::host_stream stream(hotset::host_stream::mode::caller);
  std::vector<hotset::fill> fills(bank.slots());
  for (std::size_t i = 0; i < fills.size(); ++i) {
    fills[i].key = {0, static_cast<hotset::expert_id>(i)};
    fills[i].slot = static_cast<hotset::slot_id>(i);
  }
  return checked(hotset::link_seconds_per_byte(backend, stream, fills,
                                               weights.config().expert_bytes(),
                                               {.small = 1, .large = fills.size(), .rounds = 9}));
}

double link_seconds(const model& weights, const std::optional<hotset::link_model::config>& link) {
  paging_config paging;
  // One expert of layer 0 in each slot.
  paging.layout = hotset::pool_layout::shared(geometry_of(weights),
                                              static_cast<std::int64_t>(weights.config().experts))
                      .value();
  const auto bank = bank_of(weights, paging);
  using plain = hotset::host_backend<expert_copies>;
  using emulated = hotset::emulated_link_backend<expert_copies>;
  if (!link) return link_seconds<plain>(weights, bank, {});
  typename emulated::config setup{};
  setup.link = *link;
  return link_seconds<emulated>(weights, bank, setup);
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
  return checked(
      hotset::seconds_per_unit({.small = most / 4, .large = most, .rounds = 7}, compute));
}

}  // namespace

hotset::cost_model calibrate(const model& weights,
                             const std::optional<hotset::link_model::config>& link) {
  return {.seconds_per_byte = link_seconds(weights, link),
          .recompute_seconds_per_token = prefill_seconds(weights)};
}

}  // namespace tiny_moe
