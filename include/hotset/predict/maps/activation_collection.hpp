// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A bounded collection of finished requests' activation matrices, [layers, experts] each: the EAMC of MoE-Infinity.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/refusals.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// A matrix's rows are shares: they sum to 1, or are zeros if the request used nothing in that layer. A matrix that
/// represents several requests holds their mean, with equal weight for each request regardless of its length.
/// Similarity of two matrices: the mean over the layers of the cosine of their rows. It does not depend on the rows'
/// lengths.
/// Threads: compatible. add allocates nothing.
class activation_collection {
 public:
  struct config {
    std::int32_t capacity = 120;  ///< maximum number of matrices

    [[nodiscard]] validation validate() const {
      return detail::within("activation_matrix capacity", capacity, 1, most_capacity);
    }
  };
  static constexpr std::int32_t most_capacity = 65535;

  /// Memory of a collection in bytes. Pre: both validate. No product wraps: keys are at most 2^28, places 2^16.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    const auto places = static_cast<std::uint64_t>(options.capacity) + 1;
    const auto keys = static_cast<std::uint64_t>(shape.keys());
    return 4 * (2 * places * keys + 2 * keys + places * places);
  }
  /// Pre: shape and options validate, and bytes_of(shape, options) <= most_predictor_bytes.
  activation_collection(const geometry& shape, const config& options)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        capacity_(static_cast<std::size_t>(options.capacity)),
        matrices_(places()),
        shares_(matrices_.size() * keys()),
        inverse_(matrices_.size() * layers_),
        units_(layers_ * experts_ * (capacity_ + 1)),
        mean_(layers_ * experts_),
        weights_(layers_),
        alike_(places() * places()) {
    HOTSET_ASSERT(!shape.validate() && !options.validate());
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Places of a units_of row: one more than the capacity.
  [[nodiscard]] std::size_t places() const noexcept { return capacity_ + 1; }
  /// Increases with each change; changed_at(i) is the version at which matrix i last changed.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t changed_at(std::size_t i) const noexcept {
    return matrices_[i].changed;
  }
  /// Requests that a matrix represents.
  [[nodiscard]] std::uint32_t requests(std::size_t i) const noexcept {
    return matrices_[i].requests;
  }
  /// Shape: [layers, experts]. Pre: i < size().
  [[nodiscard]] std::span<const float> shares(std::size_t i) const noexcept {
    return std::span(shares_).subspan(i * keys(), keys());
  }
  /// 1 / length of a matrix's row; 0 for a row of zeros.
  [[nodiscard]] float inverse_length(std::size_t i, std::size_t layer) const noexcept {
    return inverse_[i * layers_ + layer];
  }
  /// One expert's share in every matrix, with rows scaled to length 1. Shape: [places]; entries past size() are
  /// meaningless.
  [[nodiscard]] std::span<const float> units_of(std::size_t layer,
                                                std::size_t expert) const noexcept {
    return std::span(units_).subspan((layer * experts_ + expert) * places(), places());
  }
  /// Mean of all matrices, with equal weight for each request. Shape: [layers, experts].
  [[nodiscard]] std::span<const float> mean() const noexcept { return mean_; }
  /// Pre: i, j < size().
  [[nodiscard]] float similarity(std::size_t i, std::size_t j) const noexcept {
    float total = 0;
    for (std::size_t l = 0; l < layers_; ++l)
      total += inverse_length(i, l) * inverse_length(j, l) *
               detail::dot(&shares_[i * keys() + l * experts_], &shares_[j * keys() + l * experts_],
                           experts_);
    return total / static_cast<float>(layers_);
  }

  /// Adds a request's counts; if the collection is full, the two most similar matrices are joined. Counts that are
  /// all 0 are ignored.
  /// Pre: counts are finite, not negative, [layers, experts].
  /// Complexity: O(capacity x (capacity + keys)).
  void add(std::span<const float> counts, std::uint32_t requests = 1) noexcept {
    HOTSET_ASSERT(counts.size() == keys() && requests >= 1);
    const auto i = size_;
    float sum = 0;
    for (std::size_t l = 0; l < layers_; ++l)
      sum += to_shares(counts.subspan(l * experts_, experts_), row_of(i, l));
    if (sum == 0) return;
    ++version_;
    ++size_;
    matrices_[i].requests = requests;
    took(i);
    if (size_ > capacity_) join_nearest();
    take_mean();
  }

  /// Returns the keys by falling share of the mean, ties to the lower key; keys without any use are left out.
  [[nodiscard]] std::vector<expert_key> hottest(std::size_t count) const {
    std::vector<std::size_t> order;
    for (std::size_t k = 0; k < keys(); ++k)
      if (mean_[k] > 0) order.push_back(k);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return mean_[a] > mean_[b]; });
    order.resize(std::min(count, order.size()));
    std::vector<expert_key> out;
    out.reserve(order.size());
    for (const auto k : order)
      out.push_back({static_cast<layer_id>(k / experts_), static_cast<expert_id>(k % experts_)});
    return out;
  }

  /// Adds the matrices of another collection, one after the other. Errors: another shape.
  validation merge(const activation_collection& other) {
    if (other.layers_ != layers_ || other.experts_ != experts_)
      return error{"a collection of " + other.shape_text() + ", accepted: " + shape_text()};
    if (&other == this) return merge(activation_collection(other));
    for (std::size_t i = 0; i < other.size_; ++i) add(other.shares(i), other.requests(i));
    return std::nullopt;
  }
  /// Serialises the matrices; the byte order does not depend on the machine.
  [[nodiscard]] std::vector<std::byte> save() const {
    detail::saved_writer out(kind, place_of(size_));
    out.add_all(std::array{layers_, experts_, size_});
    for (std::size_t i = 0; i < size_; ++i) {
      out.add(requests(i));
      out.add_all(shares(i));
    }
    return std::move(out).take();
  }
  /// Replaces the matrices by saved ones. Errors: bytes that are no collection, another shape, more matrices than the
  /// capacity, a wrong length, values that are no shares; nothing has changed then.
  validation load(std::span<const std::byte> bytes) {
    const detail::saved_reader saved(bytes);
    if (!saved.is(kind, 3)) return error{"no activation_matrix collection, accepted: a saved one"};
    const auto count = saved[2];
    const auto what =
        detail::shape_text(saved[0], saved[1]) + ", " + std::to_string(count) + " matrices";
    if (saved[0] != layers_ || saved[1] != experts_ || count > capacity_)
      return error{"a collection of " + what + ", accepted: " + shape_text()};
    if (auto bad = saved.check_count(place_of(count), what)) return bad;
    for (std::size_t i = 0; i < count; ++i)
      if (!holds_shares(saved, i))
        return refusal("matrix ", i,
                       " holds other than shares, accepted: rows from 0 to 1 that sum to 1 or 0");
    ++version_;
    size_ = count;
    for (std::size_t i = 0; i < size_; ++i) {
      matrices_[i].requests = saved[place_of(i)];
      for (std::size_t k = 0; k < keys(); ++k)
        shares_[i * keys() + k] = saved.real(place_of(i) + 1 + k);
      took(i);
    }
    take_mean();
    return std::nullopt;
  }

 private:
  struct matrix_facts {
    std::uint64_t changed = 0;
    std::uint32_t requests = 0;
  };
  static constexpr detail::file_kind kind = {'h', 's', 'a', 'c', 't', 'm', 'x', '1'};

  [[nodiscard]] std::size_t keys() const noexcept { return layers_ * experts_; }
  [[nodiscard]] std::span<float> row_of(std::size_t i, std::size_t layer) noexcept {
    return std::span(shares_).subspan(i * keys() + layer * experts_, experts_);
  }
  [[nodiscard]] float& alike(std::size_t i, std::size_t j) noexcept {
    return alike_[std::max(i, j) * places() + std::min(i, j)];
  }
  /// Writes counts as shares; returns their sum.
  static float to_shares(std::span<const float> counts, std::span<float> out) noexcept {
    double sum = 0;
    for (const auto n : counts) sum += double{n};
    for (std::size_t e = 0; e < counts.size(); ++e)
      out[e] = sum > 0 ? static_cast<float>(double{counts[e]} / sum) : 0.0F;
    return static_cast<float>(sum);
  }

  /// Recomputes everything derived from a matrix's shares.
  void took(std::size_t i) noexcept {
    matrices_[i].changed = version_;
    for (std::size_t l = 0; l < layers_; ++l) {
      const auto row = row_of(i, l);
      const auto square = detail::dot(row.data(), row.data(), row.size());
      const auto inverse = square > 0 ? 1.0F / std::sqrt(square) : 0.0F;
      inverse_[i * layers_ + l] = inverse;
      for (std::size_t e = 0; e < experts_; ++e)
        units_[(l * experts_ + e) * places() + i] = row[e] * inverse;
    }
    for (std::size_t j = 0; j < size_; ++j)
      if (j != i) alike(i, j) = similarity(i, j);
  }
  /// Computes the mean of all matrices, with equal weight for each request.
  void take_mean() noexcept {
    std::ranges::fill(mean_, 0.0F);
    std::ranges::fill(weights_, 0.0F);
    for (std::size_t i = 0; i < size_; ++i) {
      const auto requests = static_cast<float>(matrices_[i].requests);
      for (std::size_t l = 0; l < layers_; ++l) {
        if (inverse_length(i, l) == 0) continue;
        weights_[l] += requests;
        const auto row = row_of(i, l);
        for (std::size_t e = 0; e < experts_; ++e) mean_[l * experts_ + e] += requests * row[e];
      }
    }
    for (std::size_t l = 0; l < layers_; ++l)
      for (std::size_t e = 0; e < experts_ && weights_[l] > 0; ++e)
        mean_[l * experts_ + e] /= weights_[l];
  }

  /// Joins the two most similar matrices, ties to the lower places, into the lower place. The last matrix moves to
  /// the free place.
  void join_nearest() noexcept {
    std::size_t first = 0;
    std::size_t second = 1;
    for (std::size_t i = 0; i < size_; ++i)
      for (std::size_t j = i + 1; j < size_; ++j)
        if (alike(i, j) > alike(first, second)) first = i, second = j;
    const auto a = static_cast<float>(requests(first));
    const auto b = static_cast<float>(requests(second));
    for (std::size_t l = 0; l < layers_; ++l) {
      const auto weight = inverse_length(first, l) == 0    ? 1.0F
                          : inverse_length(second, l) == 0 ? 0.0F
                                                           : b / (a + b);
      const auto into = row_of(first, l);
      const auto from = row_of(second, l);
      for (std::size_t e = 0; e < experts_; ++e) into[e] += weight * (from[e] - into[e]);
    }
    matrices_[first].requests = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{requests(first)} + requests(second),
                                std::numeric_limits<std::uint32_t>::max()));
    const auto last = --size_;
    if (second != last) {
      std::copy_n(&shares_[last * keys()], keys(), &shares_[second * keys()]);
      matrices_[second].requests = matrices_[last].requests;
      took(second);
    }
    took(first);
  }

  /// Index of a saved matrix: its number of requests, then its shares.
  [[nodiscard]] std::size_t place_of(std::size_t i) const noexcept { return 3 + i * (1 + keys()); }
  [[nodiscard]] bool holds_shares(const detail::saved_reader& saved, std::size_t i) const noexcept {
    if (saved[place_of(i)] == 0) return false;
    for (std::size_t l = 0; l < layers_; ++l) {
      double sum = 0;
      for (std::size_t e = 0; e < experts_; ++e) {
        const auto share = saved.real(place_of(i) + 1 + l * experts_ + e);
        if (!(share >= 0 && share <= 1)) return false;
        sum += double{share};
      }
      if (sum != 0 && std::abs(sum - 1) > 1e-3) return false;
    }
    return true;
  }
  [[nodiscard]] std::string shape_text() const {
    return detail::shape_text(layers_, experts_) + ", at most " + std::to_string(capacity_) +
           " matrices";
  }

  std::size_t layers_ = 0;
  std::size_t experts_ = 0;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::uint64_t version_ = 0;
  std::vector<matrix_facts> matrices_;  ///< [places]
  std::vector<float> shares_;           ///< [matrices, layers, experts]
  std::vector<float> inverse_;          ///< [matrices, layers]: 1 / length of a row
  std::vector<float> units_;            ///< [layers, experts, places]: rows scaled to length 1
  std::vector<float> mean_;             ///< [layers, experts]
  std::vector<float> weights_;          ///< [layers]: requests in the mean that is being computed
  std::vector<float> alike_;            ///< similarities [places, places], lower triangle
};

}  // namespace hotset
