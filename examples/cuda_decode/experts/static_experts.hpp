// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Static offload of whole layers: the first n layers stay on the device, the experts of the others are fetched at
/// each visit. With all layers on the device it is full residency.

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_decode/experts/experts_on_device.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace cuda_decode {

/// Experts that are fetched for a layer outside the device.
enum class offload_fetch : std::uint8_t {
  routed,  ///< the experts that the visit routes, as with a kernel that reads host memory
  layer,   ///< all of them, regardless of the routing
};

struct static_config {
  std::int32_t resident_layers = 0;
  offload_fetch fetch = offload_fetch::routed;
  int device = 0;
};

/// Slots on the device: those of the resident layers, and those shared by the others.
[[nodiscard]] std::int64_t static_slots(const hotset::geometry& shape,
                                        const static_config& setup) noexcept;
/// The most resident layers whose static offload takes at most `slots` slots; -1 if even 0 layers take more.
[[nodiscard]] std::int32_t static_layers_within(const hotset::geometry& shape, std::int64_t slots,
                                                offload_fetch fetch) noexcept;

/// Copies run in the engine's stream: a layer is routed just before its experts are needed, so nothing overlaps.
class static_experts final : public experts_on_device {
 public:
  /// Fills the resident layers. `source` and `pages` outlive the object, and every expert is page-locked.
  /// Errors: hotset::invalid_config, device_error.
  static_experts(hotset::cuda::runtime& api, const hotset::geometry& shape,
                 const std::vector<hotset::expert_layout>& layouts,
                 const hotset::memory_expert_source& source,
                 const hotset::cuda::pinned_memory& pages, const static_config& setup,
                 hotset::cuda::stream& stream);

  [[nodiscard]] bool is_decided_by_host(hotset::layer_id layer) const noexcept override {
    return layer >= resident_layers_;
  }
  void serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
             const enqueue_kernels& kernels) override;
  [[nodiscard]] bool can_capture_steps() const noexcept override {
    return resident_layers_ == shape_.layers;
  }
  void publish(hotset::cuda::stream& stream) override;
  [[nodiscard]] const hotset::slot_id* row(hotset::layer_id layer) const noexcept override {
    return rows_.row(layer);
  }
  [[nodiscard]] const hotset::cuda::slot_bank& bank() const noexcept override { return bank_; }
  [[nodiscard]] expert_traffic traffic() const noexcept override;

 private:
  using backend = hotset::cuda::cuda_backend<hotset::memory_expert_source>;

  /// The slot map, with the members that map_rows needs.
  struct slot_rows {
    explicit slot_rows(const hotset::geometry& shape)
        : slots(shape, hotset::no_slot), versions(shape.layer_count(), 0) {}
    [[nodiscard]] std::span<const hotset::slot_id> row(hotset::layer_id layer) const noexcept {
      return slots.row(layer);
    }
    [[nodiscard]] std::uint64_t row_version(hotset::layer_id layer) const noexcept {
      return versions[layer];
    }
    hotset::per_key<hotset::slot_id> slots;
    hotset::per_layer<std::uint64_t> versions;
  };

  void make_resident(const hotset::routing_view& visit, hotset::cuda::stream& stream);
  void fetch(hotset::layer_id layer, std::span<const hotset::expert_id> experts,
             hotset::slot_id first_slot, hotset::cuda::stream& stream);
  void require_ok(hotset::cuda::error_code code) const;

  hotset::cuda::runtime& api_;
  hotset::geometry shape_;
  std::int32_t resident_layers_;
  offload_fetch fetch_;
  hotset::cuda::slot_bank bank_;
  std::unique_ptr<backend> copies_;
  hotset::cuda::sticky_failure failures_;
  hotset::cuda::map_rows rows_;
  slot_rows map_;
  hotset::unique_ids unique_;
  std::vector<hotset::expert_id> wanted_;  ///< scratch: experts of the visit
  std::vector<hotset::expert_id> all_;     ///< 0..experts-1
  std::vector<std::uint32_t> tokens_;      ///< 0..max_tokens_per_visit-1
  std::vector<hotset::fill> fills_;
  expert_traffic counts_{};
  std::uint64_t bytes_before_ = 0;  ///< bytes moved by the initial fills
};

}  // namespace cuda_decode
