// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides a budget into slots of each layer and spare slots that all layers share.

#include <cstdint>
#include <string>

#include "hotset/core/error.hpp"
#include "hotset/lab/expert_files.hpp"
#include "memory_limit.hpp"

namespace hotset_llama_cpp {

/// The layers of a graph run one after another. So one set of spare slots can hold, for one visit, the experts that
/// find no slot of their layer: a prompt, or a batch of many sequences, routes more experts than a layer has slots.
struct slot_plan {
  std::int32_t slots = 0;   ///< per layer
  std::int32_t spares = 0;  ///< all the layer's other experts, or none
};

/// Memory that the model needs beside its experts.
struct other_memory {
  std::uint64_t weights = 0;  ///< bytes of the file's mapping; 0: not mapped, already in memory
  std::uint64_t buffers = 0;  ///< bytes of llama.cpp's buffers for computing
  std::uint64_t slots = 0;    ///< bytes of the slots of the process's other contexts
  bool experts_are_mapped = true;  ///< false: llama.cpp has read all experts into memory
};

struct slot_choice {
  slot_plan plan{};
  bool model_fits = false;  ///< memory has room for the whole model
  std::string reason{};     ///< how "auto" came to it, and what other contexts hold; or empty
  bool pages_fit = false;   ///< memory has room for the whole model beside the slots
};

/// Slots from the options: `slots` per layer, or a budget: "6GiB", "50%" of all experts, "auto".
/// Errors: both; any other text; fewer slots than a token needs, or more than there are experts.
[[nodiscard]] hotset::result<slot_choice> choose_slots(const hotset::lab::expert_files& files,
                                                       const char* budget, std::int32_t slots,
                                                       const other_memory& other,
                                                       const memory_limit& left);

/// The most slots within the budget. There are spare slots if they take at most a quarter of it.
/// Errors: fewer slots than a token needs.
[[nodiscard]] hotset::result<slot_plan> plan_budget(const hotset::lab::expert_files& files,
                                                    std::uint64_t bytes);
/// This many slots, and spare slots if they take at most a quarter of the memory.
/// Errors: fewer slots than a token needs, or more than there are experts.
[[nodiscard]] hotset::result<slot_plan> plan_slots(const hotset::lab::expert_files& files,
                                                   std::int32_t slots);
/// Bytes of all experts.
[[nodiscard]] std::uint64_t bytes_of_all(const hotset::lab::expert_files& files);
/// "526.6 MiB".
[[nodiscard]] std::string mebibytes(std::uint64_t bytes);

}  // namespace hotset_llama_cpp
