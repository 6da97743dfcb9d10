// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Interface between a decode loop and the component that keeps experts on the device.

#include <cstdint>
#include <functional>
#include <span>

#include "cuda_decode/decoder/decode_kernels.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/cuda/stream.hpp"

namespace cuda_decode {

/// Totals since construction, without the initial fills.
struct expert_traffic {
  std::uint64_t accesses = 0;     ///< distinct experts of visits
  std::uint64_t hits = 0;         ///< distinct experts that were on the device before their visit
  std::uint64_t bytes_moved = 0;  ///< from host to device, counted by the backend
};

/// Errors of all calls: std::runtime_error if the cache or the device refuses.
class experts_on_device {
 public:
  experts_on_device() = default;
  experts_on_device(const experts_on_device&) = delete;
  experts_on_device& operator=(const experts_on_device&) = delete;
  virtual ~experts_on_device() = default;

  /// Whether the host must know the layer's routing before its kernels are enqueued.
  [[nodiscard]] virtual bool is_decided_by_host(hotset::layer_id /*layer*/) const noexcept {
    return true;
  }
  /// Enqueues kernels for these tokens of the visit; they look slots up in `row(layer)`.
  using enqueue_kernels = std::function<void(std::span<const std::uint32_t> tokens)>;
  /// For each group of the visit (all of its tokens if they fit): enqueues copies, the fence, and the layer's row,
  /// then the kernels.
  virtual void serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
                     const enqueue_kernels& kernels) = 0;

  /// Whether a whole step may be captured: the rows of all layers can be published before it.
  [[nodiscard]] virtual bool can_capture_steps() const noexcept { return true; }
  /// Enqueues the current rows of all layers.
  virtual void publish(hotset::cuda::stream& stream) = 0;

  /// Row in device memory at a fixed address. Shape: [experts].
  [[nodiscard]] virtual const hotset::slot_id* row(hotset::layer_id layer) const noexcept = 0;
  [[nodiscard]] virtual const hotset::cuda::slot_bank& bank() const noexcept = 0;
  [[nodiscard]] virtual expert_traffic traffic() const noexcept = 0;
};

/// Pre: all slots have one size class.
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
