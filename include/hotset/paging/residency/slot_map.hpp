// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where each expert lives: rows of int32 that an engine can upload unchanged, -1 for absent.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"

namespace hotset {

/// A key is *placed* when a slot is its own, *published* when its bytes may be read.
/// Memory: 8 bytes per key. Complexity: every operation is O(1).
class slot_map {
 public:
  slot_map() = default;
  explicit slot_map(const geometry& shape)
      : placed_(shape, no_slot), published_(shape, no_slot), versions_(shape.layer_count(), 0) {}

  /// Slot of a key whose bytes are in place or on their way, or no_slot.
  [[nodiscard]] slot_id locate(expert_key key) const noexcept { return placed_[key]; }
  [[nodiscard]] const slot_id* located(layer_id layer) const noexcept {
    return placed_.row(layer).data();
  }
  /// Shape: [experts]. The slots that kernels may read.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return published_.row(layer);
  }
  /// Changes when the row does; of a row that never changed it is 0.
  [[nodiscard]] std::uint64_t version(layer_id layer) const noexcept { return versions_[layer]; }
  void place(expert_key key, slot_id slot) noexcept { placed_[key] = slot; }
  void publish(expert_key key) noexcept { set_row(key, placed_[key]); }
  void place_and_publish(expert_key key, slot_id slot) noexcept { set_both(key, slot); }
  /// To place and publish keys of one layer; then `changed` is called.
  struct layer_rows {
    slot_id* placed;
    slot_id* published;
  };
  [[nodiscard]] layer_rows rows(layer_id layer) noexcept {
    return {placed_.row(layer).data(), published_.row(layer).data()};
  }
  void changed(layer_id layer, std::size_t times) noexcept { versions_[layer] += times; }
  void remove(expert_key key) noexcept { set_both(key, no_slot); }

 private:
  void set_both(expert_key key, slot_id slot) noexcept {
    const auto at = placed_.place_of(key);  // of both
    placed_.values()[at] = published_.values()[at] = slot;
    ++versions_[key.layer];
  }
  void set_row(expert_key key, slot_id slot) noexcept {
    published_[key] = slot;
    ++versions_[key.layer];
  }

  per_key<slot_id> placed_;
  per_key<slot_id> published_;
  per_layer<std::uint64_t> versions_;  ///< [layers]
};

}  // namespace hotset
