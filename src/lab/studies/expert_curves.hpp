// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Misses of a model's experts by slots, recorded or of uniform routing.

#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

struct plan_request;

/// Curves of all layers' experts, by slots.
struct expert_curves {
  std::vector<sampled_miss_curve> layers{};  ///< misses per step
  std::vector<double> used{};                ///< distinct experts per step, by layer
  double accesses = 0;                       ///< per step, all layers
  /// Per step, all layers: bytes of experts that the previous step did not use.
  double new_bytes = 0;
  std::uint32_t widest = 0;
};

/// Share of a layer's experts that tokens use which draw them independently and uniformly.
[[nodiscard]] double used_share(const geometry& experts, double tokens) noexcept;

/// Steps of the trace, including steps without work for a device.
[[nodiscard]] std::uint64_t steps_of(const routing_trace& trace);
[[nodiscard]] bool routes_nothing(const routing_trace& trace);

/// Tokens of a step that decodes, on average; of all steps, if none does.
[[nodiscard]] double decode_width(const routing_trace& trace);
/// Puts decoded tokens into steps of so many sessions. Sequences are joined and cut into as many stretches of equal
/// length, one a session, so that a session goes on where its last step was. A rest of fewer tokens than sessions is
/// left out. Errors: usage_error for fewer tokens than sessions.
[[nodiscard]] routing_trace side_by_side(const routing_trace& trace, std::uint64_t sessions);

/// Errors: usage_error for a trace that makes no visits.
[[nodiscard]] expert_curves recorded_curves(const routing_trace& trace, const geometry& model);
/// Curves of a device's trace, else of uniform routing by all sessions of `whole`.
[[nodiscard]] expert_curves curves_of(const plan_request& device, const plan_request& whole);

/// Misses per step.
[[nodiscard]] double misses_with(const expert_curves& curves,
                                 std::span<const std::uint64_t> quotas);

}  // namespace hotset::lab
