// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides a device's memory between a model's experts and its KV cache, and predicts the cost.
///
/// The pageable budget M is the device's memory minus the reserve, the resident weights, and the per-session state
/// that does not depend on length (windows, recurrent state). The configurator (WiSP eq. 4-7) divides M into one cap
/// for all layers, and KV blocks. If held-out routing gains, a second division assigns a quota to each layer, and KV
/// blocks, by marginal value: no byte stays where it saves nothing while another consumer could use it. Leftover bytes
/// make all experts resident if they suffice, else they go to the KV cache.
/// A step is one forward pass of `concurrency` sessions, one token each.
///
/// Several devices: each holds all weights except the routed experts, and the sessions are distributed. The experts
/// of a layer are distributed, too (expert), or each expert is cut (tensor). Every device has its own link; a step
/// takes as long as on the slowest device.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/budget/configurator.hpp"
#include "hotset/planning/budget/cost_model.hpp"
#include "hotset/planning/budget/memory_model.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/models/model_description.hpp"
#include "lab/studies/expert_curves.hpp"
#include "lab/studies/machine_speeds.hpp"
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

/// The device's part of unified memory.
[[nodiscard]] constexpr std::uint64_t unified_part(std::uint64_t host_bytes) noexcept {
  return host_bytes / 4 * 3;
}

/// The model, the device, the load and the known routing.
struct plan_request {
  memory_model model{};
  std::uint32_t devices = 1;  ///< expert: at most the experts of a layer
  device_split split = device_split::expert;
  std::uint64_t device_bytes = 0;  ///< per device
  std::uint64_t host_bytes = 0;    ///< memory of the host; 0: unknown, and enough
  bool has_card = true;  ///< false: device_bytes is the host's memory, and the processor computes
  bool is_unified = false;  ///< device_bytes is a part of host_bytes
  /// Activations, workspace, and headroom: a completely filled device spills.
  std::uint64_t reserve_bytes = 0;
  std::uint64_t context = 0;  ///< maximum tokens of a session
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  double kv_bits = 16;    ///< bits of an element of the KV cache; engines need a flag for it
  std::string kv_type{};  ///< a name of kv_types; empty: any type with these bits
  cost_model cost{};
  /// Trace of this model; none: routing is assumed uniform and independent.
  const routing_trace* routing = nullptr;
  const kv_trace* requests = nullptr;  ///< none: KV gets its floor, and more saves nothing

  // For the engines' lines and their speeds.
  model_arithmetic arithmetic{};
  machine_speeds speeds{};
  std::uint64_t ubatch = 512;          ///< tokens of a prompt that are computed at once
  std::uint32_t threads = 0;           ///< 0: the engine's own number
  std::string files = "MODEL";         ///< folder of the weights
  std::string gguf = "MODEL.gguf";     ///< the weights in llama.cpp's format
  bool is_gguf = false;                ///< they are in no other format
  std::vector<std::string> engines{};  ///< empty: all

  /// A tenth of the host's memory stays for the system.
  [[nodiscard]] bool fits_host(std::uint64_t bytes) const noexcept {
    return host_bytes == 0 || bytes <= usable_host_bytes();
  }
  [[nodiscard]] std::uint64_t usable_host_bytes() const noexcept {
    const auto all = host_bytes - host_bytes / 10;
    return all - std::min(all, bytes_in_host());
  }
  /// Smallest host memory that fits these bytes.
  [[nodiscard]] std::uint64_t least_host_bytes(std::uint64_t bytes) const noexcept {
    const auto used = bytes + bytes_in_host();
    return used + used / 9 + 1;
  }
  /// Smallest memory that the user names for a device of so many bytes.
  [[nodiscard]] std::uint64_t least_memory(std::uint64_t bytes) const noexcept {
    if (!has_card) return least_host_bytes(bytes);
    return is_part_of_host() ? (bytes + 2) / 3 * 4 : bytes;
  }
  /// Whether the host's memory alone gives the device's.
  [[nodiscard]] bool is_part_of_host() const noexcept {
    return !has_card || (is_unified && device_bytes == unified_part(host_bytes));
  }
  /// Bytes of the device that are the host's.
  [[nodiscard]] std::uint64_t bytes_in_host() const noexcept {
    return is_unified ? devices * device_bytes : 0;
  }
};

/// Device memory of activations: logits, the mask of attention and eight rows of the model's width for each token
/// computed at once, and half a GiB for the driver. 0: the model's extents are unknown.
[[nodiscard]] std::uint64_t activation_bytes(const plan_request& request) noexcept;

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
/// Quotas of layers: unequal only if held-out routing misses less with them, else one cap, and one expert more in as
/// many layers as its leftover bytes allow.
struct plan_quotas {
  std::vector<std::uint64_t> quotas{};  ///< by layer
  std::uint64_t bytes = 0;
  double uniform_misses = 0;  ///< per step, with the cap in every layer
  double misses = 0;          ///< per step, with the quotas
  /// Misses per step on the second half of the trace, with one cap, and with as many bytes as the first half's curves
  /// divide them. Without a trace, or if it has one step: none.
  std::optional<double> held_out_uniform{}, held_out{};

  [[nodiscard]] bool may_differ() const noexcept {
    return held_out && *held_out < .9995 * *held_out_uniform;  // less would be printed as 0.0 %
  }
};
/// Share of one of several devices.
struct device_share {
  std::uint64_t first_expert = 0, experts = 0;  ///< per layer
  std::vector<std::uint64_t> quotas{};          ///< by layer
  std::uint64_t kv_blocks = 0;
  double seconds = 0;  ///< per step
};

/// Names of engines, in the order of their lines.
inline constexpr std::array<std::string_view, 6> engine_names = {
    "llama.cpp", "vllm", "sglang", "ktransformers", "transformers", "hotset"};

/// Command of one engine, to paste, and the speed that its placement allows.
struct engine_setting {
  std::string engine{}, text{};
  double decode = 0;               ///< tokens per second of all sessions
  std::optional<double> prompt{};  ///< tokens per second; none: unknown
  std::uint64_t host_bytes = 0;    ///< experts in host memory
  std::uint64_t disk_bytes = 0;    ///< of these, what memory does not hold
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
  std::string best{};                          ///< feasible alternative with the fewest seconds
  expert_curves curves{}, curves_of_device{};  ///< of all devices together, and of the slowest one
  std::vector<device_share> devices{};         ///< if there are several
  std::vector<engine_setting> settings{};      ///< one for each engine that can serve the model
  /// Quotas for an engine of one's own; nothing: the device cannot page.
  std::optional<engine_setting> own{};
  std::string advice{};  ///< what would spare reads from disk
  std::vector<std::string> notes{};

  /// The setting with the least time for requests of four prompt tokens for each decoded one, ktransformers only if
  /// it is alone; nullptr: none.
  [[nodiscard]] const engine_setting* recommended() const noexcept;
  /// Whether the device has room for the experts of a token in every layer.
  [[nodiscard]] bool can_page() const noexcept { return split.cap > 0; }

  [[nodiscard]] std::uint64_t kv_bytes() const noexcept { return kv_blocks * block_bytes; }
  [[nodiscard]] std::uint64_t kv_tokens() const noexcept {
    return kv_blocks * request.block_tokens;
  }
  [[nodiscard]] bool is_all_resident() const noexcept {
    return quotas.bytes == device.model.all_expert_bytes();
  }
};

/// Errors: infeasible_error with the smallest device memory, and the longest context and most sessions, that work, or
/// with the reason why the only requested engine has no line; usage_error for impossible values, or traces of another
/// model.
[[nodiscard]] memory_plan make_plan(const plan_request& request);

}  // namespace hotset::lab
