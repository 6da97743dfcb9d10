// SPDX-License-Identifier: Apache-2.0
#pragma once
/// For each row and layer, how many tokens later the row's sequence first used each expert. Four bits an expert; 0:
/// not used within the known tokens. The owner adds each following token once, when it reads the row.
///
/// Layout: 64 experts are eight words of 32 bits. Expert e is in word e % 8, at bit 4 * (e / 8): one shift aligns the
/// numbers of eight experts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/platform/in_vectors.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction. Memory: half a byte for each row, layer and expert
/// (experts rounded up to a multiple of 64), and one byte for each row and layer.
class first_uses {
 public:
  static constexpr std::size_t most_horizon = 15;
  static constexpr std::size_t experts_at_once = 64;
  /// Words that hold the numbers of experts_at_once experts.
  static constexpr std::size_t words_at_once = 8;

  /// Stores nothing if horizon is 0. Pre: horizon <= most_horizon.
  first_uses(std::size_t layers, std::size_t rows, std::size_t experts, std::size_t horizon)
      : layers_(layers),
        horizon_(horizon),
        words_((experts + experts_at_once - 1) / experts_at_once * words_at_once),
        numbers_(horizon == 0 ? 0 : rows * layers * words_, 0),
        known_(horizon == 0 ? 0 : rows * layers, 0) {}

  /// Maximum number of later tokens that are counted.
  [[nodiscard]] std::size_t horizon() const noexcept { return horizon_; }
  /// Number of experts, rounded up to a multiple of 64.
  [[nodiscard]] std::size_t experts() const noexcept {
    return words_ / words_at_once * experts_at_once;
  }
  /// Number of tokens after the row that were added. Pre, here and for all members below: horizon() > 0.
  [[nodiscard]] std::size_t known(std::size_t layer, std::size_t row) const noexcept {
    return known_[row * layers_ + layer];
  }
  /// Numbers of a row in a layer; numbers above known() are meaningless.
  [[nodiscard]] const std::uint32_t* of(std::size_t layer, std::size_t row) const noexcept {
    return numbers_.data() + (layer + row * layers_) * words_;
  }
  /// Prefetches known() and of() into the cache: several misses then overlap.
  void fetch(std::size_t layer, std::size_t row) const noexcept {
    fetch_soon(&known_[row * layers_ + layer]);
    fetch_soon(of(layer, row));
  }
  /// Adds the next token after the row: the experts that it used, one bit each. Pre: known() < horizon(); no bit at
  /// or above experts() is set.
  void add(std::size_t layer, std::size_t row, std::span<const std::uint64_t> used) noexcept {
    auto& known = known_[row * layers_ + layer];
    HOTSET_ASSERT(known < horizon_);
    auto* const numbers = numbers_.data() + (layer + row * layers_) * words_;
    if (known == 0) std::fill_n(numbers, words_, 0U);  // the old numbers are meaningless
    const auto number_of_all = 0x11111111U * ++known;
    detail::in_vectors(
        level_, [used = used.data(), numbers, groups = words_ / words_at_once, number_of_all] {
          for (std::size_t g = 0; g < groups; ++g)
            for (std::size_t w = 0; w < words_at_once; ++w) {
              const auto near = static_cast<std::uint32_t>(used[g]) >> w;
              const auto far = static_cast<std::uint32_t>(used[g] >> 32U) >> w;
              const auto uses = draw_together(near) | draw_together(far) << 16U;
              auto& now = numbers[g * words_at_once + w];
              const auto half = now | now >> 1U;
              // Lowest bit of each expert that has no number yet.
              const auto fresh = uses & ~(half | half >> 2U);
              now |= ((fresh << 4U) - fresh) & number_of_all;
            }
        });
  }
  /// Index of the word that holds an expert's number.
  [[nodiscard]] static constexpr std::size_t word_of(std::size_t expert) noexcept {
    return expert / experts_at_once * words_at_once + expert % words_at_once;
  }
  /// Bit at which an expert's number begins in its word.
  [[nodiscard]] static constexpr unsigned shift_of(std::size_t expert) noexcept {
    return static_cast<unsigned>(expert % experts_at_once / words_at_once * 4);
  }
  /// Limits known() to at most `tokens` for this row, in every layer.
  void forget_beyond(std::size_t row, std::size_t tokens) noexcept {
    for (auto& known : std::span(known_).subspan(row * layers_, layers_))
      known = std::min(known, static_cast<std::uint8_t>(tokens));
  }
  void forget_all() noexcept { std::ranges::fill(known_, std::uint8_t{0}); }

 private:
  /// Moves bits 0, 8, 16 and 24 to 0, 4, 8 and 12; drops the others.
  static constexpr std::uint32_t draw_together(std::uint32_t bits) noexcept {
    bits &= 0x01010101U;
    bits = (bits | bits >> 4U) & 0x00110011U;
    return (bits | bits >> 8U) & 0x1111U;
  }

  vector_level level_ = best_vector_level();
  std::size_t layers_;
  std::size_t horizon_;
  std::size_t words_;                      ///< words of a row in a layer
  aligned_vector<std::uint32_t> numbers_;  ///< [rows, layers, words]
  std::vector<std::uint8_t> known_;        ///< [rows, layers]
};

}  // namespace hotset
