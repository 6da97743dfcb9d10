// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Device slots whose memory appears and disappears, over a CUDA runtime and a driver that need no device.

#include <cstddef>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_driver.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset::support {

/// elastic_host on a device. Its destructor checks that no call was wrong and nothing leaked. As on a device, access
/// to a slot without memory ends the program.
template <fake_cuda_runtime::pace Pace>
class elastic_device {
 public:
  using bank_type = cuda::slot_bank;
  using backend_type = cuda::cuda_backend<memory_expert_source>;
  static constexpr std::size_t page = 4096;

 private:
  /// Outlives all objects made from it, then checks for leaks.
  struct fakes {
    fake_cuda_runtime api{Pace, 7};
    fake_cuda_driver driver{page};

    fakes() = default;
    fakes(const fakes&) = delete;
    fakes& operator=(const fakes&) = delete;
    ~fakes() {
      EXPECT_THAT(api.violations(), testing::IsEmpty());
      EXPECT_THAT(driver.violations(), testing::IsEmpty());
      EXPECT_THAT(driver.leaks(), testing::IsEmpty());
      EXPECT_EQ(api.leaks(), 0U);
    }
  };
  static bank_type make_bank(fakes& on, cuda::virtual_memory& memory, const pool_layout& layout,
                             const std::vector<expert_layout>& layouts, memory_budget& budget) {
    auto bank = cuda::slot_bank::create_elastic(on.api, memory, layout, layouts, budget,
                                                {.alignment = 64, .tail_padding = 100})
                    .value();
    for (std::size_t a = 0; a < bank.places().arrays().size(); ++a)
      on.api.reserved({bank.base(a), bank.places().arrays()[a].total()}, 0);
    return bank;
  }

  fakes fakes_;
  cuda::virtual_memory memory_ = cuda::virtual_memory::create(fakes_.driver, 0).value();
  cuda::pinned_memory pages_{fakes_.api, 1U << 20U};

 public:
  elastic_device(const memory_expert_source& source, const pool_layout& layout,
                 const std::vector<expert_layout>& layouts, memory_budget& budget)
      : bank(make_bank(fakes_, memory_, layout, layouts, budget)),
        stream(cuda::stream::create(fakes_.api, 0).value()),
        backend_(backend_type::create(fakes_.api, source, bank, pages_,
                                      {.staging_pieces = 3, .staging_piece_bytes = 100})
                     .value()),
        backend(*backend_) {}

  [[nodiscard]] fake_cuda_runtime& api() noexcept { return fakes_.api; }
  [[nodiscard]] fake_cuda_driver& driver() noexcept { return fakes_.driver; }

  bank_type bank;
  cuda::stream stream;

 private:
  std::unique_ptr<backend_type> backend_;

 public:
  backend_type& backend;
};

}  // namespace hotset::support
