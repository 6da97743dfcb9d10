// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in a hotset cache: the code that an engine writes to page them on a device.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_decode/experts/experts_on_device.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace cuda_decode {

/// Parses an eviction policy of the library, such as `similar_steps:rows=512`. Errors: usage_error, also for one that
/// needs the future.
[[nodiscard]] hotset::any_eviction_policy::config eviction_named(std::string_view text);
/// Parses an eviction policy that must work for this shape. Errors: those of eviction_named.
[[nodiscard]] hotset::any_eviction_policy::config eviction_for(std::string_view text,
                                                               const hotset::geometry& shape);

/// Demand paging only; with lru, the configuration of WiSP's Table 2. Copies overlap with the engine's stream.
class paged_experts final : public experts_on_device {
 public:
  struct config {
    int device = 0;
    hotset::cuda::copy_mode mode = hotset::cuda::copy_mode::side_stream;
    std::string eviction = "lru";
  };
  /// `source` and `pages` outlive the object, and every expert is page-locked. Errors: hotset::invalid_config,
  /// usage_error.
  paged_experts(hotset::cuda::runtime& api, const hotset::pool_layout& layout,
                const std::vector<hotset::expert_layout>& layouts,
                const hotset::memory_expert_source& source,
                const hotset::cuda::pinned_memory& pages, const config& setup);

  void serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
             const enqueue_kernels& kernels) override;
  void publish(hotset::cuda::stream& stream) override;
  [[nodiscard]] const hotset::slot_id* row(hotset::layer_id layer) const noexcept override {
    return rows_.row(layer);
  }
  [[nodiscard]] const hotset::cuda::slot_bank& bank() const noexcept override { return bank_; }
  [[nodiscard]] expert_traffic traffic() const noexcept override;
  [[nodiscard]] hotset::pager_stats stats() const { return cache_.stats(); }

 private:
  using backend = hotset::cuda::cuda_backend<hotset::memory_expert_source>;

  void require_resolved(hotset::status state, hotset::layer_id layer) const;
  void require_uploaded(hotset::cuda::error_code code) const;

  hotset::cuda::runtime& api_;
  hotset::cuda::slot_bank bank_;
  std::unique_ptr<backend> copies_;
  hotset::cuda::sticky_failure failures_;
  hotset::cuda::map_rows rows_;
  hotset::slot_cache<hotset::pager<hotset::any_eviction_policy>, backend> cache_;
  hotset::cache_visit visit_;
};

}  // namespace cuda_decode
