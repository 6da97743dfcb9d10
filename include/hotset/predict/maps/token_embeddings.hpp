// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How alike two tokens are: the cosine of their rows in the engine's input embedding table.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"

namespace hotset {

/// Views a table that the caller keeps alive. Threads: const use is safe.
/// The last bits of a sum of products are those of the build.
class token_embeddings {
 public:
  token_embeddings() = default;
  /// Shape: `table` is [vocabulary, width]; empty: nothing is known of any token.
  /// Errors: a table of another size, one value of which is not finite, or whose squares are not.
  static result<token_embeddings> create(std::span<const float> table, std::int32_t width) {
    if (auto bad = validate(table, width)) return *std::move(bad);
    token_embeddings out;
    if (table.empty()) return out;
    out.table_ = table;
    out.width_ = static_cast<std::size_t>(width);
    out.inverse_norms_.resize(table.size() / out.width_);
    for (std::size_t t = 0; t < out.inverse_norms_.size(); ++t) {
      const auto squares = dot(out.row(t), out.row(t));
      if (!std::isfinite(squares))
        return error{"embeddings of token " + std::to_string(t) +
                     " are not finite, accepted: finite values"};
      out.inverse_norms_[t] = squares > 0 ? 1.0F / std::sqrt(squares) : 0.0F;
    }
    return out;
  }
  static validation validate(std::span<const float> table, std::int32_t width) {
    if (table.empty()) return std::nullopt;
    if (width < 1 || table.size() % static_cast<std::size_t>(width) != 0)
      return error{"embeddings of " + std::to_string(table.size()) + " values and width " +
                   std::to_string(width) + ", accepted: vocabulary x width values"};
    return std::nullopt;
  }

  [[nodiscard]] bool knows(std::int32_t token) const noexcept {
    return token >= 0 && static_cast<std::size_t>(token) < inverse_norms_.size();
  }
  /// 1 for a token with itself, known or not; 0 where one is not known. Negative ids are no token's.
  [[nodiscard]] float cosine(std::int32_t a, std::int32_t b) const noexcept {
    if (a < 0 || b < 0) return 0.0F;
    if (a == b) return 1.0F;
    if (!knows(a) || !knows(b)) return 0.0F;
    const auto one = static_cast<std::size_t>(a);
    const auto two = static_cast<std::size_t>(b);
    return dot(row(one), row(two)) * inverse_norms_[one] * inverse_norms_[two];
  }
  /// What the table takes, which is the engine's.
  [[nodiscard]] std::uint64_t table_bytes() const noexcept { return table_.size_bytes(); }
  /// What is kept beside it.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return inverse_norms_.size() * sizeof(float);
  }

 private:
  [[nodiscard]] std::span<const float> row(std::size_t token) const noexcept {
    return table_.subspan(token * width_, width_);
  }
  /// Eight sums side by side, so that compilers may use vectors.
  static float dot(std::span<const float> a, std::span<const float> b) noexcept {
    std::array<float, 8> sums{};
    std::size_t i = 0;
    for (; i + sums.size() <= a.size(); i += sums.size())
      for (std::size_t lane = 0; lane < sums.size(); ++lane)
        sums[lane] += a[i + lane] * b[i + lane];
    for (std::size_t lane = 0; i < a.size(); ++i, ++lane) sums[lane] += a[i] * b[i];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  }

  std::span<const float> table_;
  std::size_t width_ = 0;
  std::vector<float> inverse_norms_;  ///< [vocabulary]
};

}  // namespace hotset
