// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One command for each engine, that divides a device as a plan does.

#include <cstdint>
#include <string>
#include <string_view>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Bytes of all experts of a layer.
[[nodiscard]] std::uint64_t layer_bytes(const memory_model& model, layer_id layer);
/// Bytes of the experts of all MoE layers from `first` on.
[[nodiscard]] std::uint64_t expert_bytes_from(const memory_model& model, std::uint64_t first);
/// Smallest number of first MoE layers whose experts must stay on the host for the rest to fit in `bytes`; at most
/// all of them.
[[nodiscard]] std::uint64_t layers_left_on_host(const memory_model& model, std::uint64_t bytes);

/// Bytes of full windows and recurrent state per session, independent of its length.
[[nodiscard]] std::uint64_t fixed_session_bytes(const plan_request& request) noexcept;

/// "--vram 8GiB or more", by the option that gives a device so many bytes.
[[nodiscard]] std::string larger_device(const plan_request& request, std::uint64_t bytes);

/// Bytes of host memory that an engine needs beside the experts, if the processor computes.
[[nodiscard]] std::uint64_t beside_experts(const plan_request& request, std::string_view engine);
/// A setting without text: the processor computes everything, and experts that memory does not hold are on disk.
/// Pre: memory holds beside_experts.
[[nodiscard]] engine_setting on_processor(const memory_plan& plan, std::string engine);

/// Fills plan.settings and plan.own, and adds a note for each engine left out. Pre: the rest of the plan is filled
/// in. Errors: infeasible_error if no requested engine has a line, or, of all engines, not even one of one's
/// own.
void add_settings(memory_plan& plan);

}  // namespace hotset::lab
