// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What to tell other engines so that they divide a device as a plan does, in the meaning of their own flags.

#include <cstdint>
#include <vector>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Experts of all MoE layers from `first` on.
[[nodiscard]] std::uint64_t expert_bytes_from(const memory_model& model, std::uint64_t first);
/// The fewest of the first MoE layers without whose experts the others' fit in so many bytes; at most all of them.
[[nodiscard]] std::uint64_t layers_left_on_host(const memory_model& model, std::uint64_t bytes);

/// Full windows and recurrent state of a session, which it keeps whatever its length.
[[nodiscard]] std::uint64_t fixed_session_bytes(const plan_request& request) noexcept;

/// Fills plan.settings, and notes why an engine is left out. Pre: all else of the plan is there.
void add_settings(memory_plan& plan);

}  // namespace hotset::lab
