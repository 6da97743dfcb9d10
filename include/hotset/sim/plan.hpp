// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a device's memory is divided between the experts of a model and its KV cache, and what that is predicted to cost.
///
/// The pageable budget M is what the device leaves after the reserve, the weights that are always there, and what every
/// session keeps whatever its length (windows, recurrent state). Of M the configurator (wisp eq. 4-7) makes one cap for
/// all layers and KV blocks; unequal quotas of layers are made for the same bytes by marginal value.
/// A step is one forward pass of `concurrency` sessions, a token each.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "hotset/budget/configurator.hpp"
#include "hotset/budget/cost_model.hpp"
#include "hotset/budget/memory_model.hpp"
#include "hotset/curve/sampled_miss_curve.hpp"
#include "hotset/trace/kv_trace.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::inline v0::sim {

inline constexpr std::string_view plan_schema = "hotset.plan/1";

struct plan_request {
  memory_model model{};
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;  ///< for the copies of all experts; 0: not asked
  std::uint64_t reserve_bytes =
      0;  ///< activations, workspace, and headroom: a device filled to the last byte spills
  std::uint64_t context = 0;  ///< tokens of a session, at most
  std::uint64_t concurrency = 1;
  std::uint64_t block_tokens = 16;
  cost_model cost{};
  const routing_trace* routing =
      nullptr;  ///< of this model; none: routing is taken as uniform and independent
  const kv_trace* requests = nullptr;  ///< none: KV needs its floor, and more is worth nothing
};

/// What the experts' curves of all layers say, by slots.
struct expert_curves {
  std::vector<sampled_miss_curve> layers{};  ///< misses of a step
  double accesses = 0;                       ///< of a step, all layers
  double new_bytes = 0;  ///< of a step: experts that the step before did not use, all layers
  std::uint32_t widest = 0;
};

struct plan_alternative {
  std::string name;
  std::uint64_t cap = 0;
  std::uint64_t kv_bytes = 0;
  double seconds_per_step = 0;
  bool feasible = false;
};
struct plan_marginal {
  std::string consumer;
  double seconds_per_byte = 0;  ///< that one more unit would save
};
/// Quotas of layers for the bytes of the cap.
struct plan_quotas {
  std::vector<std::uint64_t> quotas{};  ///< by layer
  double uniform_misses = 0;            ///< of a step, with the cap in every layer
  double misses = 0;                    ///< of a step, with the quotas
  /// Made on the first half of the trace, measured on the second: misses of a step.
  std::optional<double> held_out_uniform{}, held_out{};
};

struct memory_plan {
  plan_request request{};
  std::uint64_t budget_bytes = 0;  ///< M
  std::uint64_t block_bytes = 0;
  std::uint64_t min_blocks = 0;
  expert_kv_split split{};
  plan_quotas quotas{};
  std::vector<plan_marginal> marginals{};
  double hit_rate = 0;
  double ceiling_tokens_per_second =
      0;  ///< what the link allows even a cache of the whole step before; infinite: any
  double new_bytes_per_step = 0;
  std::vector<plan_alternative> alternatives{};
  std::vector<std::string> notes{};

  [[nodiscard]] std::uint64_t kv_bytes() const noexcept { return split.blocks * block_bytes; }
  [[nodiscard]] std::uint64_t kv_tokens() const noexcept {
    return split.blocks * request.block_tokens;
  }
};

/// Errors: infeasible_error with the smallest device memory that works; usage_error for values that cannot be, or traces
/// that are not of the model.
[[nodiscard]] memory_plan make_plan(const plan_request& request);

/// Schema hotset.plan/1.
[[nodiscard]] nlohmann::ordered_json to_json(const memory_plan& plan);
[[nodiscard]] std::string to_text(const memory_plan& plan);

}  // namespace hotset::inline v0::sim
