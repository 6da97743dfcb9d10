// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides a device's memory between a model's experts and its KV cache, and predicts the cost.
///
/// The pageable budget M is the device's memory minus the reserve, the resident weights, and the per-session state
/// that does not depend on length (windows, recurrent state). The configurator (WiSP eq. 4-7) divides M into one cap
/// for all layers, and KV blocks. A second division assigns a quota to each layer, and KV blocks, by marginal value:
/// no byte stays where it saves nothing while another consumer could use it. Leftover bytes make all experts resident
/// if they suffice, else they go to the KV cache.
/// A step is one forward pass of `concurrency` sessions, one token each.
///
/// Several devices: each holds all weights except the routed experts, and the sessions are distributed. The experts
/// of a layer are distributed, too (expert), or each expert is cut (tensor). Every device has its own link; a step
/// takes as long as on the slowest device.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/budget/configurator.hpp"
#include "hotset/planning/budget/cost_model.hpp"
#include "hotset/planning/budget/memory_model.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Schema name in JSON text.
inline constexpr std::string_view plan_schema = "hotset.plan/1";

/// Placement of the routed experts on several devices.
enum class device_split : std::uint8_t {
  expert,  ///< each device has consecutive experts; the first devices have one more than the last
  tensor,  ///< each device has a part of every expert
};
/// "expert", "tensor".
[[nodiscard]] constexpr std::string_view name_of(device_split s) noexcept {
  return s == device_split::expert ? "expert" : "tensor";
}

/// The model, the device, the load and the known routing.
struct plan_request {
  memory_model model{};
  std::uint32_t devices = 1;  ///< expert: at most the experts of a layer
  device_split split = device_split::expert;
  std::uint64_t device_bytes = 0;  ///< per device
  std::uint64_t host_bytes = 0;    ///< for copies of all experts; 0: not checked
  /// Activations, workspace, and headroom: a completely filled device spills.
  std::uint64_t reserve_bytes = 0;
  std::uint64_t context = 0;  ///< maximum tokens of a session
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  double kv_bits = 16;  ///< bits of an element of the KV cache; engines need a flag for it
  cost_model cost{};
  /// Trace of this model; none: routing is assumed uniform and independent.
  const routing_trace* routing = nullptr;
  const kv_trace* requests = nullptr;  ///< none: KV gets its floor, and more saves nothing
};

/// Curves of all layers' experts, by slots.
struct expert_curves {
  std::vector<sampled_miss_curve> layers{};  ///< misses per step
  std::vector<double> used{};                ///< distinct experts per step, by layer
  double accesses = 0;                       ///< per step, all layers
  /// Per step, all layers: bytes of experts that the previous step did not use.
  double new_bytes = 0;
  std::uint32_t widest = 0;
};

/// Another way to serve the model, for comparison.
struct plan_alternative {
  std::string name;
  std::uint64_t cap = 0;  ///< 0: no common cap
  std::uint64_t kv_bytes = 0;
  double seconds_per_step = 0;
  bool feasible = false;
  std::uint64_t host_layers = 0;  ///< first MoE layers, whose experts stay on the host
};
/// Saving of one more byte for a consumer.
struct plan_marginal {
  std::string consumer;
  double seconds_per_byte = 0;  ///< average over one more unit
};
/// Quotas of layers.
struct plan_quotas {
  std::vector<std::uint64_t> quotas{};  ///< by layer
  std::uint64_t bytes = 0;
  double uniform_misses = 0;  ///< per step, with the cap in every layer
  double misses = 0;          ///< per step, with the quotas
  /// Misses per step on the second half of the trace, with the division of the first half.
  std::optional<double> held_out_uniform{}, held_out{};
};
/// Share of one of several devices.
struct device_share {
  std::uint64_t first_expert = 0, experts = 0;  ///< per layer
  std::vector<std::uint64_t> quotas{};          ///< by layer
  std::uint64_t kv_blocks = 0;
  double seconds = 0;  ///< per step
};

/// Flags of one engine, to paste.
struct engine_setting {
  std::string engine, text;
};

/// Division of a device's memory, and its predicted cost.
struct memory_plan {
  plan_request request{};
  /// Share of the slowest device: experts or parts of experts, and sessions. Without traces.
  plan_request device{};
  std::uint64_t budget_bytes = 0;  ///< M, per device
  std::uint64_t block_bytes = 0;
  std::uint64_t min_blocks = 0;
  expert_kv_split split{};  ///< best with one cap for all layers
  plan_quotas quotas{};
  std::uint64_t kv_blocks = 0;  ///< with the quotas
  binding binds = binding::budget;
  double seconds = 0;     ///< per step, with the quotas
  double kv_seconds = 0;  ///< part of seconds, for KV
  std::vector<plan_marginal> marginals{};
  double hit_rate = 0;
  /// Tokens per second that the link allows a cache of the previous step; infinite if the quotas are better, or
  /// nothing moves.
  double ceiling_tokens_per_second = 0;
  double new_bytes_per_step = 0;
  std::vector<plan_alternative> alternatives{};
  std::string recommended{};            ///< feasible alternative with the fewest seconds
  std::vector<device_share> devices{};  ///< if there are several
  std::vector<engine_setting> settings{};
  std::vector<std::string> notes{};

  [[nodiscard]] std::uint64_t kv_bytes() const noexcept { return kv_blocks * block_bytes; }
  [[nodiscard]] std::uint64_t kv_tokens() const noexcept {
    return kv_blocks * request.block_tokens;
  }
  [[nodiscard]] bool is_all_resident() const noexcept {
    return quotas.bytes == device.model.all_expert_bytes();
  }
};

/// Errors: infeasible_error with the smallest device memory that works; usage_error for impossible values, or traces
/// of another model.
[[nodiscard]] memory_plan make_plan(const plan_request& request);

}  // namespace hotset::lab
