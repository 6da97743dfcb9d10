// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sets of layers, one for each pool, walked upwards or downwards.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"

namespace hotset {

/// Layers [first, end).
struct layer_range {
  std::size_t first = 0;
  std::size_t end = 0;
};

/// Memory: a bit a pool and layer.
class pool_layers {
 public:
  /// In which layers are walked: from the first to the last, or back.
  enum class direction : std::uint8_t { up, down };

  pool_layers(std::size_t pools, std::size_t layers)
      : words_((layers + 63) / 64), bits_(pools * words_, 0) {}

  void set(pool_id pool, layer_id layer) noexcept { word(pool, layer) |= bit(layer); }
  void reset(pool_id pool, layer_id layer) noexcept { word(pool, layer) &= ~bit(layer); }
  /// The pool's set becomes that of `other`. Pre: both are of the same pools and layers.
  void assign(pool_id pool, const pool_layers& other) noexcept {
    std::copy_n(&other.bits_[index_of(pool) * words_], words_, &bits_[index_of(pool) * words_]);
  }
  /// Calls use(layer) for each layer of the range that is in the pool's set, until it returns false. It may reset
  /// that layer.
  template <class Use>
  void each(pool_id pool, layer_range layers, direction to, Use use) const noexcept {
    for (auto layer = first_of(pool, layers, to); layer != none;
         layer = first_of(pool, layers, to)) {
      if (!use(static_cast<layer_id>(layer))) return;
      (to == direction::up ? layers.first : layers.end) = to == direction::up ? layer + 1 : layer;
    }
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  static std::uint64_t bit(layer_id layer) noexcept {
    return std::uint64_t{1} << index_of(layer) % 64;
  }
  std::uint64_t& word(pool_id pool, layer_id layer) noexcept {
    return bits_[index_of(pool) * words_ + index_of(layer) / 64];
  }
  [[nodiscard]] std::size_t first_of(pool_id pool, layer_range layers,
                                     direction to) const noexcept {
    const auto* const words = &bits_[index_of(pool) * words_];
    const auto begin = layers.first / 64;
    const auto end = (layers.end + 63) / 64;
    for (auto n = begin; n < end; ++n) {
      const auto w = to == direction::up ? n : end - 1 - (n - begin);
      auto rest = words[w];
      if (w == begin) rest &= ~std::uint64_t{0} << layers.first % 64;
      if (w == layers.end / 64) rest &= (std::uint64_t{1} << layers.end % 64) - 1;
      if (rest == 0) continue;
      return w * 64 + static_cast<std::size_t>(to == direction::up ? std::countr_zero(rest)
                                                                   : 63 - std::countl_zero(rest));
    }
    return none;
  }

  std::size_t words_;  // of a pool
  std::vector<std::uint64_t> bits_;
};

}  // namespace hotset
