// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a device's memory is divided between the experts of a model and its KV cache, and what that is predicted to cost.
///
/// The pageable budget M is what the device leaves after the reserve, the weights that are always there, and what every
/// session keeps whatever its length (windows, recurrent state). Of M the configurator (WiSP eq. 4-7) makes one cap for
/// all layers and KV blocks; quotas of layers and KV blocks are made of the same M by marginal value, and no byte is left
/// where it saves nothing while another consumer could use it. Bytes that nobody gains from make all experts resident
/// where they suffice, else they go to the KV cache.
/// A step is one forward pass of `concurrency` sessions, a token each.
///
/// Several devices: all weights but the routed experts' are on each of them, and the sessions are dealt out. The experts
/// of a layer are dealt out, too (expert), or each is cut (tensor). Every device has a link of its own; a step
/// takes as long as on the slowest.

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

/// Of JSON text.
inline constexpr std::string_view plan_schema = "hotset.plan/1";

/// What becomes of the routed experts on several devices.
enum class device_split : std::uint8_t {
  expert,  ///< each device has experts of its own, one after the other; the first devices have one more than the last
  tensor,  ///< each device has its part of every expert
};
/// "expert", "tensor".
[[nodiscard]] constexpr std::string_view name_of(device_split s) noexcept {
  return s == device_split::expert ? "expert" : "tensor";
}

/// The model, the device, the load and what is known of its routing.
struct plan_request {
  memory_model model{};
  std::uint32_t devices = 1;  ///< expert: at most the experts of a layer
  device_split split = device_split::expert;
  std::uint64_t device_bytes = 0;  ///< of each device
  std::uint64_t host_bytes = 0;    ///< for the copies of all experts; 0: not asked
  /// Activations, workspace, and headroom: a device filled to the last byte spills.
  std::uint64_t reserve_bytes = 0;
  std::uint64_t context = 0;  ///< tokens of a session, at most
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  double kv_bits = 16;  ///< of an element of the KV cache: engines must be told
  cost_model cost{};
  /// Of this model; none: routing is taken as uniform and independent.
  const routing_trace* routing = nullptr;
  const kv_trace* requests = nullptr;  ///< none: KV needs its floor, and more is worth nothing
};

/// What the experts' curves of all layers say, by slots.
struct expert_curves {
  std::vector<sampled_miss_curve> layers{};  ///< misses of a step
  std::vector<double> used{};                ///< distinct experts of a step, by layer
  double accesses = 0;                       ///< of a step, all layers
  double new_bytes = 0;  ///< of a step: experts that the step before did not use, all layers
  std::uint32_t widest = 0;
};

/// Another way to serve the model, beside the plan.
struct plan_alternative {
  std::string name;
  std::uint64_t cap = 0;  ///< 0: it has none for all layers
  std::uint64_t kv_bytes = 0;
  double seconds_per_step = 0;
  bool feasible = false;
  std::uint64_t host_layers = 0;  ///< the first MoE layers, whose experts are on the host for good
};
/// What one more byte would save a consumer.
struct plan_marginal {
  std::string consumer;
  double seconds_per_byte = 0;  ///< that one more unit would save
};
/// Quotas of layers.
struct plan_quotas {
  std::vector<std::uint64_t> quotas{};  ///< by layer
  std::uint64_t bytes = 0;
  double uniform_misses = 0;  ///< of a step, with the cap in every layer
  double misses = 0;          ///< of a step, with the quotas
  /// Made on the first half of the trace, measured on the second: misses of a step.
  std::optional<double> held_out_uniform{}, held_out{};
};
/// One of several devices.
struct device_share {
  std::uint64_t first_expert = 0, experts = 0;  ///< of every layer
  std::vector<std::uint64_t> quotas{};          ///< by layer
  std::uint64_t kv_blocks = 0;
  double seconds = 0;  ///< of a step
};

/// Settings to paste, for one engine.
struct engine_setting {
  std::string engine, text;
};

/// The division of a device's memory, and what it is predicted to cost.
struct memory_plan {
  plan_request request{};
  /// What the slowest device has of it: its experts, or parts of experts, and its sessions. Without traces.
  plan_request device{};
  std::uint64_t budget_bytes = 0;  ///< M, of a device
  std::uint64_t block_bytes = 0;
  std::uint64_t min_blocks = 0;
  expert_kv_split split{};  ///< the best with one cap for all layers
  plan_quotas quotas{};
  std::uint64_t kv_blocks = 0;  ///< beside the quotas
  binding binds = binding::budget;
  double seconds = 0;     ///< of a step, with the quotas
  double kv_seconds = 0;  ///< of them, for KV
  std::vector<plan_marginal> marginals{};
  double hit_rate = 0;
  /// What the link allows a cache of the step before; infinite where the quotas do better, or nothing moves.
  double ceiling_tokens_per_second = 0;
  double new_bytes_per_step = 0;
  std::vector<plan_alternative> alternatives{};
  std::string recommended{};            ///< the feasible alternative of the fewest seconds
  std::vector<device_share> devices{};  ///< of several
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

/// Errors: infeasible_error with the smallest device memory that works; usage_error for values that cannot be, or traces
/// that are not of the model.
[[nodiscard]] memory_plan make_plan(const plan_request& request);

}  // namespace hotset::lab
