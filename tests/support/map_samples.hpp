// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Synthetic expert maps: softmax rows, some repeating earlier ones with noise.

#include <cmath>
#include <cstddef>
#include <vector>

#include "random_source.hpp"

namespace hotset::support {

/// Uniform in -1..1.
inline double signed_uniform(random_source& random) {
  return static_cast<double>(random.next() >> 11U) * 0x1p-52 - 1.0;
}

/// Appends a map of `layers` softmax rows to `out`.
inline void add_map(random_source& random, std::size_t layers, std::size_t experts,
                    const std::vector<double>& logits, double noise, std::vector<float>& out) {
  std::vector<double> row(experts);
  for (std::size_t l = 0; l < layers; ++l) {
    double sum = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      row[e] = std::exp(logits[l * experts + e] + noise * signed_uniform(random));
      sum += row[e];
    }
    for (const auto p : row) out.push_back(static_cast<float>(p / sum));
  }
}

/// Shape: [count, layers, experts]. Each map is a noisy copy of one of `kinds`, like a recorded run's
/// near-duplicates.
inline std::vector<float> repeating_maps(random_source& random, std::size_t count,
                                         std::size_t layers, std::size_t experts, std::size_t kinds,
                                         double noise) {
  std::vector<std::vector<double>> logits(kinds);
  for (auto& of_kind : logits)
    for (std::size_t i = 0; i < layers * experts; ++i)
      of_kind.push_back(3.0 * signed_uniform(random));
  std::vector<float> out;
  out.reserve(count * layers * experts);
  for (std::size_t i = 0; i < count; ++i)
    add_map(random, layers, experts, logits[random.below(kinds)], noise, out);
  return out;
}

/// Cosine over the width of `a`; 0 if either row is zero there.
template <class A, class B>
double cosine(const A& a, const B& b) {
  double dot = 0;
  double one = 0;
  double two = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * b[i];
    one += double{a[i]} * a[i];
    two += double{b[i]} * b[i];
  }
  return one == 0 || two == 0 ? 0 : dot / std::sqrt(one * two);
}

}  // namespace hotset::support
