// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What one of several devices has of a model, its sessions and its traces.

#include <cstdint>
#include <optional>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Experts of each layer from first on, on one device.
struct expert_range {
  std::uint64_t first = 0, count = 0;
};
[[nodiscard]] expert_range experts_on(const plan_request& request, std::uint32_t device) noexcept;

/// As many as there are experts to deal out, or bytes of an expert to cut.
[[nodiscard]] std::uint32_t most_devices(const plan_request& request) noexcept;

/// The request as one device sees it, without traces; of one device it is the same. Pre: device < request.devices.
[[nodiscard]] plan_request device_request(const plan_request& request, std::uint32_t device);

/// What a device's experts were routed to, numbered from 0; ranks that went elsewhere are absent.
[[nodiscard]] routing_trace trace_on(const routing_trace& trace, const expert_range& experts,
                                     std::int32_t top_k);
/// Every devices-th request, as sessions are dealt out.
[[nodiscard]] kv_trace requests_on(const kv_trace& requests, std::uint32_t device,
                                   std::uint32_t devices);

}  // namespace hotset::lab
