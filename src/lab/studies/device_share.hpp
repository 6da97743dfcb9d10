// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Share of one of several devices in a model, its sessions and its traces.

#include <cstdint>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Experts of each layer on one device, starting at first.
struct expert_range {
  std::uint64_t first = 0, count = 0;
};
[[nodiscard]] expert_range experts_on(const plan_request& request, std::uint32_t device) noexcept;

/// Maximum number of devices: experts to distribute, or bytes of an expert to cut.
[[nodiscard]] std::uint32_t most_devices(const plan_request& request) noexcept;

/// The request for one device, without traces; unchanged for a single device. Pre: device < request.devices.
[[nodiscard]] plan_request device_request(const plan_request& request, std::uint32_t device);

/// Routing to a device's experts, numbered from 0; ranks routed elsewhere are absent.
[[nodiscard]] routing_trace trace_on(const routing_trace& trace, const expert_range& experts,
                                     std::int32_t top_k);
/// Every devices-th request: sessions are distributed in turn.
[[nodiscard]] kv_trace requests_on(const kv_trace& requests, std::uint32_t device,
                                   std::uint32_t devices);

}  // namespace hotset::lab
