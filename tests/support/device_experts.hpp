// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The experts of host_experts, page-locked or pageable, and device slots for them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/slot_bank.hpp"

namespace hotset::support {

/// `bank` belongs to the given runtime: on a real device the host cannot read its bytes.
class device_experts {
 public:
  explicit device_experts(cuda::runtime& api, const pool_layout& layout, bool page_locked = true,
                          int device = 0,
                          std::vector<std::uint64_t> tensor_bytes_of = {96, 33, 257})
      : host(layout, tensor_bytes_of),
        pages(api, std::uint64_t{1} << 30),
        bank(cuda::slot_bank::create(api, layout, layouts_of(tensor_bytes_of), {.device = device})
                 .value()) {
    const auto& shape = layout.shape();
    for (std::size_t k = 0; page_locked && k < shape.keys(); ++k)
      for (const auto tensor : host.source.tensors(shape.key(k), 0_precision))
        EXPECT_FALSE(pages.lock(tensor));
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    return slot_holds(bank, slot, key);
  }

  host_experts host;
  cuda::pinned_memory pages;
  cuda::slot_bank bank;
};

}  // namespace hotset::support
