// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Device copy of an adapter_registry's expert maps, which the reroute kernel reads.

#include <cstdint>
#include <span>
#include <utility>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// `Registry` has `map(layer)`, an expert_redirect of equal shape in every layer, and `version()`.
/// Addresses are stable for the object's life, so captured graphs may hold them. Threads: one at a time, the
/// registry's.
class expert_maps {
 public:
  /// The rows hold -1 until `update`. `failures` must outlive the maps. Pre: the registry has `layers` layers.
  /// Errors: more ids than geometry::max_keys; those of the runtime.
  template <class Registry>
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
  static result<expert_maps> create(runtime& api, const Registry& registry, std::int32_t layers,
                                    int device, sticky_failure& failures) {
    const auto& map = registry.map(layer_id{0});
    const geometry shape{.layers = layers, .experts = map.adapters() * map.experts(), .top_k = 1};
    auto rows = device_rows<expert_id>::create(
        api, shape, {.device = device, .ring_rows = shape.layer_count()}, failures);
    if (!rows) return rows.error();
    return expert_maps(*std::move(rows), {nullptr, map.adapters(), map.experts()}, layers);
  }

  /// Kernels enqueued to `reader` after this call read the registry's current maps. Call it before a step's first
  /// launch. It does nothing if the version is unchanged. Pre and errors: those of device_rows::update.
  template <class Registry>
  error_code update(const Registry& registry, const stream& reader) noexcept {
    struct all_maps {
      const Registry& of;
      [[nodiscard]] std::span<const expert_id> row(layer_id l) const { return of.map(l).rows(); }
      /// Plus 1, so that version 0 is uploaded too.
      [[nodiscard]] std::uint64_t row_version(layer_id) const { return of.version() + 1; }
    };
    return rows_.update(all_maps{registry}, layer_id{0}, layer_id{layers_}, reader);
  }
  /// Map of a layer for reroute_arguments. Pre: 0 <= layer < layers.
  [[nodiscard]] redirect_rows rows(layer_id layer) const noexcept {
    return {rows_.row(layer), shape_.adapters, shape_.experts};
  }

 private:
  expert_maps(device_rows<expert_id> rows, redirect_rows shape, std::int32_t layers) noexcept
      : rows_(std::move(rows)), shape_(shape), layers_(layers) {}

  device_rows<expert_id> rows_;
  redirect_rows shape_;  ///< shape of a layer; its rows are null
  std::int32_t layers_;
};

}  // namespace hotset::cuda
