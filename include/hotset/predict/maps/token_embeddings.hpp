// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Similarity of two token ids: the cosine of their rows in the engine's input embedding table.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"

namespace hotset {

/// Views a table that the caller keeps alive. An id without a row is similar only to itself. Memory: 4 bytes a row.
/// Threads: const use is safe.
class token_embeddings {
 public:
  /// Shape: `table` is [vocabulary, width], or empty.
  /// Errors: a table of another size; a row whose values or sum of squares are not finite.
  static result<token_embeddings> create(std::span<const float> table, std::int32_t width) {
    if (auto bad = validate(table, width)) return *std::move(bad);
    token_embeddings out;
    out.table_ = table;
    out.width_ = static_cast<std::size_t>(width);
    for (std::size_t t = 0; t * out.width_ < table.size(); ++t) {
      const auto squares = out.dot(t, t);
      if (!std::isfinite(squares))
        return refusal("embeddings of token ", t, " are not finite, accepted: finite values");
      out.inverse_norms_.push_back(squares > 0 ? 1.0F / std::sqrt(squares) : 0.0F);
    }
    return out;
  }
  static validation validate(std::span<const float> table, std::int32_t width) {
    if (table.empty()) return std::nullopt;
    if (width < 1 || table.size() % static_cast<std::size_t>(width) != 0)
      return refusal("embeddings of ", table.size(), " values and width ", width,
                     ", accepted: vocabulary x width values");
    return std::nullopt;
  }

  /// Rows of the table.
  [[nodiscard]] std::size_t size() const noexcept { return inverse_norms_.size(); }
  /// Whether the table has a row of the token.
  [[nodiscard]] bool knows(std::int32_t token) const noexcept {
    return token >= 0 && static_cast<std::size_t>(token) < size();
  }
  /// Returns 1 for a token and itself, with or without a row; 0 if one of two different tokens has no row. Negative
  /// ids are no tokens.
  [[nodiscard]] float cosine(std::int32_t a, std::int32_t b) const noexcept {
    if (a < 0 || b < 0) return 0.0F;
    if (a == b) return 1.0F;
    if (!knows(a) || !knows(b)) return 0.0F;
    const auto one = static_cast<std::size_t>(a);
    const auto two = static_cast<std::size_t>(b);
    return dot(one, two) * inverse_norms_[one] * inverse_norms_[two];
  }

 private:
  [[nodiscard]] float dot(std::size_t a, std::size_t b) const noexcept {
    return detail::dot(&table_[a * width_], &table_[b * width_], width_);
  }

  std::span<const float> table_;
  std::size_t width_ = 0;
  std::vector<float> inverse_norms_;  ///< [vocabulary]
};

}  // namespace hotset
