// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory of all slots: for each weight of each layer, the layer's slots and then the spare slots.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"
#include "slot_plan.hpp"

namespace hotset_llama_cpp {

/// A product reads one array of experts at equal distances. So the same pages, those of the spare slots, are mapped
/// behind the slots of every layer.
struct slot_memory {
  slot_plan plan{};
  std::uint64_t bytes = 0;  ///< slots and spare slots of all layers
  /// [layers][tensors of the layer, in the order of expert_files] the first slot; the next follows at the model's
  /// distance.
  std::vector<std::vector<std::byte*>> first{};
  std::unique_ptr<hotset::host_virtual_memory> pages{};
  std::vector<hotset::virtual_range<hotset::host_virtual_memory>> ranges{};
  std::shared_ptr<void> counted{};  ///< ends the share in slot_bytes_of_process
};

/// Bytes of the slots of all contexts of this process.
[[nodiscard]] std::uint64_t slot_bytes_of_process() noexcept;

/// Errors: no memory; the system is not Linux.
[[nodiscard]] hotset::result<slot_memory> take_slots(const hotset::lab::expert_files& files,
                                                     const slot_plan& plan);

}  // namespace hotset_llama_cpp
