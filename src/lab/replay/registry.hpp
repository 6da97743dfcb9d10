// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The registry as programs use it: what it refuses is a usage_error. And what the simulator adds to it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/registry/policy_registry.hpp"
#include "lab/errors.hpp"
#include "lab/replay/simulated_engine.hpp"

namespace hotset::lab {

/// The value, or its reason as a usage_error.
template <class T>
[[nodiscard]] T asked(result<T> made) {
  if (!made) throw usage_error(made.error().message);
  return *std::move(made);
}

/// The library's policies and belady_bypass, the simulator's own; and what a program has added (`policies()`).
[[nodiscard]] const policy_registry& known_policies();

/// What `--eviction` accepts.
[[nodiscard]] std::vector<std::string> eviction_names();
/// What may stand before an eviction policy.
[[nodiscard]] std::vector<std::string> eviction_decorator_names();
/// What `--admission` accepts.
[[nodiscard]] std::vector<std::string> admission_names();

/// True if the named policy needs the future of the trace. Errors, here and below: usage_error.
[[nodiscard]] bool needs_future(std::string_view eviction);
/// Where the named policy takes its profile from; nothing where it takes none.
[[nodiscard]] std::optional<profile_request> requested_profile(std::string_view eviction);
/// A policy chain such as `protect_hot:uses=4+lru`, to be built for any layout.
[[nodiscard]] any_eviction_policy::config make_eviction(std::string_view eviction,
                                                        const policy_knowledge& knowledge = {});
/// Refuses a policy over these precisions; and what is fetched at one without a miss policy (`miss`).
void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss);
/// Refuses two that cannot be built together, whatever trace they will see.
void check_policies(std::string_view eviction, std::string_view admission);

/// A pager of the policies that are named. Errors: usage_error.
[[nodiscard]] std::unique_ptr<any_pager> make_pager(const pager_request& request,
                                                    const policy_knowledge& knowledge);
/// The same pager under a slot cache on a virtual clock.
[[nodiscard]] std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                                            const policy_knowledge& knowledge,
                                                            const engine_clock& clock,
                                                            const visit_costs& costs,
                                                            const slot_cache_config& setup = {});
/// As make_engine, an expert_engine. Pre: the pools of `request` are of one_by_one(shape).
[[nodiscard]] std::unique_ptr<simulated_engine> make_expert_engine(
    const pager_request& request, const policy_knowledge& knowledge, const geometry& shape,
    const engine_clock& clock, const visit_costs& costs);

}  // namespace hotset::lab
