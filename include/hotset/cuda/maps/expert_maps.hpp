// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The expert maps of an adapter_registry on a device, where the reroute kernel reads them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Sizes of the maps.
struct expert_maps_config {
  int device = 0;
  std::int32_t layers = 0;
  std::int32_t experts = 0;   ///< of the base model's layers
  std::int32_t adapters = 0;  ///< on the device at once

  /// Units: ids.
  [[nodiscard]] std::int64_t entries_of_layer() const noexcept {
    return std::int64_t{adapters} * experts;
  }
  [[nodiscard]] validation validate() const {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (layers < 1 || experts < 1 || adapters < 1)
      return error{"expert maps of " + std::to_string(layers) + " layers, " +
                   std::to_string(experts) + " experts and " + std::to_string(adapters) +
                   " adapters, accepted: 1 or more of each"};
    if (entries_of_layer() > most / layers)
      return error{"expert maps of " + std::to_string(layers) + " x " +
                   std::to_string(entries_of_layer()) + " ids, accepted: at most " +
                   std::to_string(most)};
    return std::nullopt;
  }
};

/// Addresses are stable for its life, so captured graphs may hold them. Threads: one at a time, that of the registry.
class expert_maps {
 public:
  using config = expert_maps_config;

  /// The rows hold nothing until `update`. Errors: those of the configuration; what the runtime said.
  static result<expert_maps> create(runtime& api, const config& setup) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    const auto entries =
        static_cast<std::size_t>(setup.entries_of_layer()) * static_cast<std::size_t>(setup.layers);
    auto staging = pinned_buffer::allocate(api, entries * sizeof(expert_id));
    if (!staging) return staging.error();
    expert_maps made(api, setup, *std::move(staging));
    auto rows = allocate_memory(api, entries * sizeof(expert_id), "expert maps");
    if (!rows) return rows.error();
    made.rows_ = *std::move(rows);
    auto copied = create_event(api);
    if (!copied) return copied.error();
    made.copied_ = *std::move(copied);
    return made;
  }
  expert_maps(expert_maps&&) noexcept = default;
  expert_maps& operator=(expert_maps&&) = delete;
  /// Waits for the last copy. Pre: nobody reads the rows any more.
  ~expert_maps() {
    if (is_copying_ && copied_.get() != nullptr) (void)api_->synchronize_event(copied_.get());
  }

  /// Kernels that are enqueued to `reader` from now on read the registry's maps of now. Call it before a step's first
  /// launch; it does nothing while the version is the same. Registry: has `map(layer)`, an expert_redirect of this
  /// shape, and `version()`.
  /// Errors: stream_capture_unsupported (a stream under capture), invalid_value (maps of another shape), what the runtime
  /// said; the next call tries again. Pre: the registry has the layers.
  template <class Registry>
  error_code update(const Registry& registry, stream_handle reader) noexcept {
    if (version_ == registry.version()) return error_code::success;
    const device_scope scope(*api_, setup_.device);
    if (scope.what().happened()) return scope.what().code;
    bool capturing = false;
    if (const auto code = api_->is_capturing(reader, capturing); code != error_code::success)
      return code;
    if (capturing) return error_code::stream_capture_unsupported;
    if (is_copying_)
      if (const auto code = api_->synchronize_event(copied_.get()); code != error_code::success)
        return code;
    is_copying_ = false;
    auto to = staging_.bytes();
    for (const auto l : each<layer_id>(setup_.layers)) {
      const auto from = std::as_bytes(registry.map(l).rows());
      if (from.size() * static_cast<std::size_t>(setup_.layers) != staging_.bytes().size())
        return error_code::invalid_value;
      std::ranges::copy(from, to.begin());
      to = to.subspan(from.size());
    }
    const auto all = staging_.bytes();
    if (const auto code = api_->copy({rows_.get(), all.data(), all.size()}, reader);
        code != error_code::success)
      return code;
    const auto code = api_->record_event(copied_.get(), reader);
    is_copying_ = code == error_code::success;
    if (is_copying_)
      version_ = registry.version();
    else
      (void)api_->synchronize_stream(reader);  // before anything is staged again
    return code;
  }
  /// For reroute_arguments. Pre: 0 <= layer < layers.
  [[nodiscard]] redirect_rows rows(layer_id layer) const noexcept {
    const auto* const first = static_cast<const expert_id*>(rows_.get());
    return {first + number(layer) * setup_.entries_of_layer(), setup_.adapters, setup_.experts};
  }

 private:
  expert_maps(runtime& api, const config& setup, pinned_buffer staging) noexcept
      : api_(&api), setup_(setup), staging_(std::move(staging)) {}

  runtime* api_;
  config setup_;
  pinned_buffer staging_;
  owned_memory rows_;                       ///< [layers, adapters, experts], of the device
  owned_event copied_;                      ///< recorded behind the last copy
  std::optional<std::uint64_t> version_{};  ///< that the rows have; none: unknown
  bool is_copying_ = false;                 ///< the device may still read `staging_`
};

}  // namespace hotset::cuda
