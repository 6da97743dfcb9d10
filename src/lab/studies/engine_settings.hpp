// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Flags for other engines that divide a device as a plan does.

#include <cstdint>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Bytes of the experts of all MoE layers from `first` on.
[[nodiscard]] std::uint64_t expert_bytes_from(const memory_model& model, std::uint64_t first);
/// Smallest number of first MoE layers whose experts must stay on the host for the rest to fit in `bytes`; at most
/// all of them.
[[nodiscard]] std::uint64_t layers_left_on_host(const memory_model& model, std::uint64_t bytes);

/// Bytes of full windows and recurrent state per session, independent of its length.
[[nodiscard]] std::uint64_t fixed_session_bytes(const plan_request& request) noexcept;

/// Fills plan.settings, and adds a note for each engine left out. Pre: the rest of the plan is filled in.
void add_settings(memory_plan& plan);

}  // namespace hotset::lab
