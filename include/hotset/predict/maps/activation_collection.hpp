// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A bounded collection of what finished requests activated, one matrix [layers, experts] each: MoE-Infinity's EAMC.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/predict/kernels/dot_product.hpp"

namespace hotset {

/// How a collection that is full makes room.
enum class collection_merge : std::uint8_t {
  nearest,  ///< the two most similar matrices become one
  k_means,  ///< all are grouped around half as many means
};

/// A matrix's rows are shares: they sum to 1, or are zeros where the request had nothing in that layer. A matrix that
/// stands for several requests holds their mean, in which each counts alike, however long it was.
/// Similarity of two matrices: the mean over the layers of the cosine of their rows, which sees no lengths.
/// Threads: compatible. add allocates nothing.
class activation_collection {
 public:
  struct config {
    std::int32_t capacity = 120;  ///< matrices, at most
    collection_merge merge = collection_merge::nearest;
    std::uint64_t seed = 1;  ///< of k_means: which matrix is the first mean

    [[nodiscard]] validation validate() const {
      if (capacity < 1 || capacity > most_capacity)
        return error{"activation_matrix capacity = " + std::to_string(capacity) +
                     ", accepted: 1.." + std::to_string(most_capacity)};
      if (merge != collection_merge::nearest && merge != collection_merge::k_means)
        return error{"activation_matrix merge = " + std::to_string(static_cast<int>(merge)) +
                     ", accepted: 0 (nearest), 1 (k_means)"};
      return std::nullopt;
    }
  };
  static constexpr std::int32_t most_capacity = 65535;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34U;

  /// Memory of a collection. Pre: both validate. No product wraps: keys are at most 2^28, places 2^16.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    const auto places = static_cast<std::uint64_t>(options.capacity) + 1;
    const auto keys = static_cast<std::uint64_t>(shape.keys());
    const auto means = options.merge == collection_merge::k_means ? places / 2 : 0;
    return 4 * (2 * places * keys + means * keys + 2 * keys +
                (options.merge == collection_merge::nearest ? places * places : 0));
  }
  /// Pre: shape and options validate, and bytes_of(shape, options) <= most_bytes.
  activation_collection(const geometry& shape, const config& options)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        capacity_(static_cast<std::size_t>(options.capacity)),
        merge_(options.merge),
        seed_(options.seed),
        matrices_(capacity_ + 1, matrix_facts{}),
        shares_((capacity_ + 1) * layers_ * experts_),
        inverse_((capacity_ + 1) * layers_),
        units_(layers_ * experts_ * (capacity_ + 1)),
        mean_(layers_ * experts_),
        weights_(layers_),
        alike_(merge_ == collection_merge::nearest ? (capacity_ + 1) * (capacity_ + 1) : 0),
        means_(merge_ == collection_merge::k_means ? most_means() * layers_ * experts_ : 0),
        means_inverse_(merge_ == collection_merge::k_means ? most_means() * layers_ : 0),
        means_requests_(merge_ == collection_merge::k_means ? most_means() : 0) {
    HOTSET_ASSERT(!shape.validate() && !options.validate());
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Places of a unit_of row: room for one matrix more than there may be.
  [[nodiscard]] std::size_t places() const noexcept { return capacity_ + 1; }
  /// Grows with each change; changed_at(i) is what it was made when matrix i last changed.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t changed_at(std::size_t i) const noexcept {
    return matrices_[i].changed;
  }
  /// Requests that a matrix stands for.
  [[nodiscard]] std::uint32_t requests(std::size_t i) const noexcept {
    return matrices_[i].requests;
  }
  /// Shape: [layers, experts]. Pre: i < size().
  [[nodiscard]] std::span<const float> shares(std::size_t i) const noexcept {
    return std::span(shares_).subspan(i * keys(), keys());
  }
  /// 1 / the length of a matrix's row, 0 for a row of zeros.
  [[nodiscard]] float inverse_length(std::size_t i, std::size_t layer) const noexcept {
    return inverse_[i * layers_ + layer];
  }
  /// One expert's part of every matrix's row, rows of length 1. Shape: [places]; what is past size() says nothing.
  [[nodiscard]] std::span<const float> units_of(std::size_t layer,
                                                std::size_t expert) const noexcept {
    return std::span(units_).subspan((layer * experts_ + expert) * places(), places());
  }
  /// The mean of all, in which each request counts alike. Shape: [layers, experts].
  [[nodiscard]] std::span<const float> mean() const noexcept { return mean_; }
  /// Pre: i, j < size().
  [[nodiscard]] float similarity(std::size_t i, std::size_t j) const noexcept {
    return similarity(&shares_[i * keys()], &inverse_[i * layers_], &shares_[j * keys()],
                      &inverse_[j * layers_]);
  }

  /// Takes in a request's counts; where the collection is full, others become one. Counts that are all 0 are no request.
  /// Pre: counts are finite, not negative, [layers, experts].
  /// Complexity: O(capacity x keys); k_means: now and then O(capacity^2 x keys x rounds).
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
    if (size_ > capacity_ && merge_ == collection_merge::nearest) join_nearest();
    if (size_ > capacity_ && merge_ == collection_merge::k_means) group();
    take_mean();
  }

  /// Keys by falling share of the mean, ties to the lower key; none that no request activated.
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

  /// Adds another user's matrices, one after the other. Errors: another shape.
  validation merge(const activation_collection& other) {
    if (other.layers_ != layers_ || other.experts_ != experts_)
      return error{"a collection of " + other.shape_text() + ", accepted: " + shape_text()};
    if (&other == this) return merge(activation_collection(other));
    for (std::size_t i = 0; i < other.size_; ++i) add(other.shares(i), other.requests(i));
    return std::nullopt;
  }
  /// The matrices, in an order of bytes that every machine reads alike.
  [[nodiscard]] std::vector<std::byte> save() const {
    std::vector<std::byte> out;
    out.reserve(header_bytes + size_ * (4 + 4 * keys()));
    for (const char c : magic) out.push_back(static_cast<std::byte>(c));
    for (const auto n : {layers_, experts_, size_}) save_number(static_cast<std::uint32_t>(n), out);
    for (std::size_t i = 0; i < size_; ++i) {
      save_number(requests(i), out);
      for (const auto share : shares(i)) save_number(std::bit_cast<std::uint32_t>(share), out);
    }
    return out;
  }
  /// What a saved collection was made for, and how many matrices it holds.
  struct saved_shape {
    std::int32_t layers = 0;
    std::int32_t experts = 0;
    std::int32_t matrices = 0;
    friend bool operator==(const saved_shape&, const saved_shape&) = default;
  };
  /// Errors: bytes that are no collection, or not as many as its shape needs.
  static result<saved_shape> shape_of(std::span<const std::byte> bytes) {
    if (bytes.size() < header_bytes || std::memcmp(bytes.data(), magic, sizeof magic) != 0)
      return error{"no activation_matrix collection, accepted: a saved one"};
    const std::uint64_t layers = number_of(bytes, 0), experts = number_of(bytes, 1),
                        matrices = number_of(bytes, 2);
    const auto sane = [](std::uint64_t n) { return n >= 1 && n <= 65536; };
    if (!sane(layers) || !sane(experts) || matrices > most_capacity ||
        4 * matrices * layers * experts > most_bytes)
      return error{"a collection of " + text_of(layers, experts, matrices) +
                   ", accepted: at most " + std::to_string(most_bytes) + " bytes"};
    const auto wanted = header_bytes + matrices * (4 + 4 * layers * experts);
    if (bytes.size() != wanted)
      return error{std::to_string(bytes.size()) + " bytes, accepted: " + std::to_string(wanted) +
                   " for " + text_of(layers, experts, matrices)};
    return saved_shape{static_cast<std::int32_t>(layers), static_cast<std::int32_t>(experts),
                       static_cast<std::int32_t>(matrices)};
  }
  /// Replaces the matrices by saved ones. Errors: as shape_of, another shape, more matrices than there is room for, values
  /// that are no shares; nothing has changed then.
  validation load(std::span<const std::byte> bytes) {
    const auto saved = shape_of(bytes);
    if (!saved) return saved.error();
    const auto count = number_of(bytes, 2);
    if (number_of(bytes, 0) != layers_ || number_of(bytes, 1) != experts_ || count > capacity_)
      return error{"a collection of " + text_of(number_of(bytes, 0), number_of(bytes, 1), count) +
                   ", accepted: " + shape_text()};
    for (std::size_t i = 0; i < count; ++i)
      if (!holds_shares(bytes, i))
        return error{"matrix " + std::to_string(i) +
                     " holds other than shares, accepted: rows from 0 to 1 that sum to 1 or 0"};
    ++version_;
    size_ = count;
    for (std::size_t i = 0; i < size_; ++i) {
      matrices_[i].requests = number_of(bytes, place_of(i));
      for (std::size_t k = 0; k < keys(); ++k)
        shares_[i * keys() + k] = share_of(bytes, place_of(i) + 1 + k);
      took(i);
    }
    take_mean();
    return std::nullopt;
  }

 private:
  struct matrix_facts {
    std::uint64_t changed = 0;
    std::uint32_t requests = 0;
    std::uint32_t group = 0;  ///< of k_means: its mean
    float nearest = 0;        ///< of k_means: similarity to the nearest mean so far
  };
  static constexpr char magic[8] = {'h', 's', 'a', 'c', 't', 'm', 'x', '1'};
  static constexpr std::size_t header_bytes = sizeof magic + 12;
  static constexpr int most_rounds = 16;  // of k_means; it stops before where nothing moves

  [[nodiscard]] std::size_t keys() const noexcept { return layers_ * experts_; }
  [[nodiscard]] std::size_t most_means() const noexcept { return (capacity_ + 1) / 2; }
  [[nodiscard]] std::span<float> row_of(std::size_t i, std::size_t layer) noexcept {
    return std::span(shares_).subspan(i * keys() + layer * experts_, experts_);
  }
  [[nodiscard]] float& alike(std::size_t i, std::size_t j) noexcept {
    return alike_[std::max(i, j) * (capacity_ + 1) + std::min(i, j)];
  }
  static std::uint32_t sum(std::uint32_t a, std::uint32_t b) noexcept {
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    return b > most - a ? most : a + b;
  }
  [[nodiscard]] float similarity(const float* a, const float* a_inverse, const float* b,
                                 const float* b_inverse) const noexcept {
    float total = 0;
    for (std::size_t l = 0; l < layers_; ++l)
      total +=
          a_inverse[l] * b_inverse[l] * detail::dot(a + l * experts_, b + l * experts_, experts_);
    return total / static_cast<float>(layers_);
  }
  static float inverse_length(std::span<const float> row) noexcept {
    const auto square = detail::dot(row.data(), row.data(), row.size());
    return square > 0 ? 1.0F / std::sqrt(square) : 0.0F;
  }
  /// Returns the sum of the counts.
  static float to_shares(std::span<const float> counts, std::span<float> out) noexcept {
    double sum = 0;
    for (const auto n : counts) sum += double{n};
    for (std::size_t e = 0; e < counts.size(); ++e)
      out[e] = sum > 0 ? static_cast<float>(double{counts[e]} / sum) : 0.0F;
    return static_cast<float>(sum);
  }

  /// What goes with a matrix's shares, anew.
  void took(std::size_t i) noexcept {
    matrices_[i].changed = version_;
    for (std::size_t l = 0; l < layers_; ++l) {
      const auto row = row_of(i, l);
      const auto inverse = inverse_[i * layers_ + l] = inverse_length(row);
      for (std::size_t e = 0; e < experts_; ++e)
        units_[(l * experts_ + e) * places() + i] = row[e] * inverse;
    }
    if (merge_ == collection_merge::nearest)
      for (std::size_t j = 0; j < size_; ++j)
        if (j != i) alike(i, j) = similarity(i, j);
  }
  void take_mean() noexcept {
    std::ranges::fill(mean_, 0.0F);
    std::ranges::fill(weights_, 0.0F);
    for (std::size_t i = 0; i < size_; ++i) add_to(mean_.data(), i);
    finish_mean(mean_.data());
  }
  /// Adds a matrix, for each of its requests once, to a sum whose requests are counted in weights_, layer by layer.
  void add_to(float* total, std::size_t i) noexcept {
    const auto requests = static_cast<float>(matrices_[i].requests);
    for (std::size_t l = 0; l < layers_; ++l) {
      if (inverse_length(i, l) == 0) continue;
      weights_[l] += requests;
      const auto row = row_of(i, l);
      for (std::size_t e = 0; e < experts_; ++e) total[l * experts_ + e] += requests * row[e];
    }
  }
  void finish_mean(float* total) noexcept {
    for (std::size_t l = 0; l < layers_; ++l)
      for (std::size_t e = 0; e < experts_ && weights_[l] > 0; ++e)
        total[l * experts_ + e] /= weights_[l];
  }

  /// The two most similar, ties to the lower places, become one in the lower place; the last takes the other's.
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
    matrices_[first].requests = sum(requests(first), requests(second));
    const auto last = --size_;
    if (second != last) {
      std::copy_n(&shares_[last * keys()], keys(), &shares_[second * keys()]);
      matrices_[second].requests = requests(last);
      took(second);
    }
    took(first);
  }

  /// k-means, by the same similarity: means are placed each as far as can be from those before it, then move to the mean of
  /// what is nearest to them. A mean that nothing is nearest to is dropped.
  void group() noexcept {
    const auto count = std::min(most_means(), size_);
    place_means(count);
    for (int round = 0; assign(count) && round < most_rounds; ++round)
      for (std::size_t c = 0; c < count; ++c) move_mean(c);
    adopt(count);
  }
  void place_means(std::size_t count) noexcept {
    auto chosen = static_cast<std::size_t>(drawn(seed_ + version_) % size_);
    for (std::size_t i = 0; i < size_; ++i)
      matrices_[i].nearest = -1.0F, matrices_[i].group = static_cast<std::uint32_t>(count);
    for (std::size_t c = 0; c < count; ++c) {
      std::copy_n(&shares_[chosen * keys()], keys(), &means_[c * keys()]);
      std::copy_n(&inverse_[chosen * layers_], layers_, &means_inverse_[c * layers_]);
      matrices_[chosen].nearest = std::numeric_limits<float>::infinity();
      for (std::size_t i = 0; i < size_; ++i)
        matrices_[i].nearest = std::max(matrices_[i].nearest, similarity(chosen, i));
      for (std::size_t i = 0; i < size_; ++i)
        if (matrices_[i].nearest < matrices_[chosen].nearest) chosen = i;
    }
  }
  /// Each matrix to its nearest mean, ties to the lower one. Returns whether one changed.
  [[nodiscard]] bool assign(std::size_t count) noexcept {
    bool changed = false;
    for (std::size_t i = 0; i < size_; ++i) {
      std::uint32_t best = 0;
      float highest = -1.0F;
      for (std::size_t c = 0; c < count; ++c) {
        const auto found = similarity(&shares_[i * keys()], &inverse_[i * layers_],
                                      &means_[c * keys()], &means_inverse_[c * layers_]);
        if (found > highest) highest = found, best = static_cast<std::uint32_t>(c);
      }
      changed |= matrices_[i].group != best;
      matrices_[i].group = best;
    }
    return changed;
  }
  void move_mean(std::size_t c) noexcept {
    float* const mean = &means_[c * keys()];
    std::fill_n(mean, keys(), 0.0F);
    std::ranges::fill(weights_, 0.0F);
    for (std::size_t i = 0; i < size_; ++i)
      if (matrices_[i].group == c) add_to(mean, i);
    finish_mean(mean);
    for (std::size_t l = 0; l < layers_; ++l)
      means_inverse_[c * layers_ + l] =
          inverse_length(std::span<const float>(mean + l * experts_, experts_));
  }
  /// The means of the groups instead of the matrices.
  void adopt(std::size_t count) noexcept {
    std::ranges::fill(means_requests_, 0U);
    for (std::size_t i = 0; i < size_; ++i) {
      auto& requests = means_requests_[matrices_[i].group];
      requests = sum(requests, matrices_[i].requests);
    }
    for (std::size_t c = 0; c < count; ++c) move_mean(c);
    size_ = 0;
    for (std::size_t c = 0; c < count; ++c) {
      if (means_requests_[c] == 0) continue;
      std::copy_n(&means_[c * keys()], keys(), &shares_[size_ * keys()]);
      matrices_[size_++].requests = means_requests_[c];
    }
    for (std::size_t i = 0; i < size_; ++i) took(i);
  }
  /// splitmix64, one draw.
  static std::uint64_t drawn(std::uint64_t seed) noexcept {
    auto z = seed + 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  /// A saved matrix begins with its number of requests; its shares follow.
  [[nodiscard]] std::size_t place_of(std::size_t i) const noexcept { return 3 + i * (1 + keys()); }
  static float share_of(std::span<const std::byte> bytes, std::size_t place) noexcept {
    return std::bit_cast<float>(number_of(bytes, place));
  }
  [[nodiscard]] bool holds_shares(std::span<const std::byte> bytes, std::size_t i) const noexcept {
    if (number_of(bytes, place_of(i)) == 0) return false;
    for (std::size_t l = 0; l < layers_; ++l) {
      double sum = 0;
      for (std::size_t e = 0; e < experts_; ++e) {
        const auto share = share_of(bytes, place_of(i) + 1 + l * experts_ + e);
        if (!(share >= 0 && share <= 1)) return false;
        sum += double{share};
      }
      if (sum != 0 && std::abs(sum - 1) > 1e-3) return false;
    }
    return true;
  }
  [[nodiscard]] std::string shape_text() const {
    return std::to_string(layers_) + " layers x " + std::to_string(experts_) +
           " experts, at most " + std::to_string(capacity_) + " matrices";
  }
  static std::string text_of(std::uint64_t layers, std::uint64_t experts, std::uint64_t matrices) {
    return std::to_string(layers) + " layers x " + std::to_string(experts) + " experts, " +
           std::to_string(matrices) + " matrices";
  }
  /// The number at place i after the magic.
  static std::uint32_t number_of(std::span<const std::byte> bytes, std::size_t i) noexcept {
    return saved_number(bytes, sizeof magic + 4 * i);
  }

  std::size_t layers_ = 0;
  std::size_t experts_ = 0;
  std::size_t capacity_ = 0;
  collection_merge merge_ = collection_merge::nearest;
  std::uint64_t seed_ = 0;
  std::size_t size_ = 0;
  std::uint64_t version_ = 0;
  std::vector<matrix_facts> matrices_;         ///< [places]
  std::vector<float> shares_;                  ///< [places, layers, experts]
  std::vector<float> inverse_;                 ///< [places, layers]: 1 / the length of a row
  std::vector<float> units_;                   ///< [layers, experts, places]: rows of length 1
  std::vector<float> mean_;                    ///< [layers, experts]
  std::vector<float> weights_;                 ///< [layers]: requests in a mean that is being made
  std::vector<float> alike_;                   ///< of nearest: [places, places], the lower triangle
  std::vector<float> means_;                   ///< of k_means: [means, layers, experts]
  std::vector<float> means_inverse_;           ///< of k_means: [means, layers]
  std::vector<std::uint32_t> means_requests_;  ///< of k_means: [means]
};

}  // namespace hotset
