// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The seam between a decode loop and what keeps experts on the device.

#include <cstdint>
#include <functional>
#include <span>

#include "cuda_decode/decoder/decode_kernels.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/cuda/stream.hpp"

namespace cuda_decode {

/// Since the object was made, without what was put in place before the first visit.
struct expert_traffic {
  std::uint64_t accesses = 0;     ///< distinct experts of visits
  std::uint64_t hits = 0;         ///< of them, on the device before their visit
  std::uint64_t bytes_moved = 0;  ///< from host to device, as the backend counted them
};

/// All calls throw std::runtime_error for what the cache or the device refuses.
class experts_on_device {
 public:
  experts_on_device() = default;
  experts_on_device(const experts_on_device&) = delete;
  experts_on_device& operator=(const experts_on_device&) = delete;
  virtual ~experts_on_device() = default;

  /// Whether the host must know what the layer routes before its kernels are enqueued.
  [[nodiscard]] virtual bool is_decided_by_host(hotset::layer_id /*layer*/) const noexcept {
    return true;
  }
  /// Enqueues kernels that look slots up in `row(layer)`, for these tokens of the visit.
  using enqueue_kernels = std::function<void(std::span<const std::uint32_t> tokens)>;
  /// For each group of the visit (all of its tokens, where they fit): enqueues what its kernels need, which is copies, the
  /// fence, and the layer's row, then the kernels.
  virtual void serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
                     const enqueue_kernels& kernels) = 0;

  /// Whether a whole step may be captured: rows of all layers can be published before it.
  [[nodiscard]] virtual bool can_capture_steps() const noexcept { return true; }
  /// Enqueues the rows of all layers as they are now.
  virtual void publish(hotset::cuda::stream& stream) = 0;

  /// Device memory, its address stays. Shape: [experts].
  [[nodiscard]] virtual const hotset::slot_id* row(hotset::layer_id layer) const noexcept = 0;
  [[nodiscard]] virtual const hotset::cuda::slot_bank& bank() const noexcept = 0;
  [[nodiscard]] virtual expert_traffic traffic() const noexcept = 0;
};

/// Pre: all slots are of one size class.
[[nodiscard]] inline bank_view view_of(const hotset::cuda::slot_bank& bank) noexcept {
  bank_view out;
  const auto arrays = bank.places().arrays();
  for (std::size_t t = 0; t < arrays.size(); ++t) {
    out.base[t] = bank.base(t);
    out.stride[t] = arrays[t].stride;
  }
  return out;
}

}  // namespace cuda_decode
