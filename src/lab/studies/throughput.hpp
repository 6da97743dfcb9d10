// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tokens per second of a placement, from bytes and operations alone.
///
/// A pass takes the sum of its parts: what the device reads or computes (the slower of the two), likewise the host,
/// what crosses the link, and what comes from disk. Kernels, launches and attention's own operations take no time, and
/// nothing but bytes is read twice: figures are ceilings.

#include <limits>
#include <optional>
#include <vector>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Work of one pass. Units: bytes and operations.
struct pass_work {
  double device_bytes = 0, device_flops = 0;
  double host_bytes = 0, host_flops = 0;
  double link_bytes = 0, disk_bytes = 0;
  bool overlaps = false;  ///< host and device compute at the same time
};
[[nodiscard]] double seconds_of(const pass_work& work, const plan_request& request) noexcept;

/// Place of the routed experts of a layer.
struct expert_place {
  double on_device = 1;       ///< share of a layer's experts
  bool host_computes = true;  ///< with the others; false: their bytes cross the link
  bool copies_all = false;    ///< the others cross the link whether routed or not
};
/// Places of all layers.
struct placement {
  std::vector<expert_place> layers{};
  double in_ram = 1;    ///< share of what is on the host that memory holds; the rest is on disk
  bool evicts = false;  ///< the device's share follows routing: misses are those of the curves
  bool overlaps = false;
  bool has_device = true;  ///< false: the host computes everything
  /// From so many tokens in a pass on, experts on the host are copied to the device and computed there.
  double copies_from = std::numeric_limits<double>::infinity();
};

/// A step that decodes one token of each session, at the full context.
[[nodiscard]] pass_work decode_work(const plan_request& request, const expert_curves& curves,
                                    const placement& places);
/// One batch of a prompt, of request.ubatch tokens. Needs the model's arithmetic.
[[nodiscard]] pass_work prompt_work(const plan_request& request, const placement& places);

/// Tokens per second. Nothing: the model's arithmetic is unknown.
struct token_rates {
  double decode = 0;
  std::optional<double> prompt{};
};
[[nodiscard]] token_rates rates_of(const plan_request& request, const expert_curves& curves,
                                   const placement& places);

}  // namespace hotset::lab
