// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files of learned_gate weights, as `python3 -m hotset train-gate` writes them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hotset/predict/learned_gate.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset::support {

/// Calls take(network) for each network of the weights, in the order of a file.
template <class Weights, class Take>
void each_network(Weights& of, Take take) {
  const auto& size = of.size();
  for (std::int32_t l = 0; l + 1 < size.layers; ++l)
    for (std::int32_t d = 1; d <= size.depth && l + d < size.layers; ++d)
      take(of.of(layer_id{l}, d));
}
/// Calls take(value) for each value of a network, in the order of a file.
template <class T, class Take>
void each_value(const learned_gate::network<T>& of, Take take) {
  for (const auto part : {of.hidden, of.hidden_bias, of.scores, of.scores_bias})
    for (auto& value : part) take(value);
}
inline std::vector<std::byte> saved(const learned_gate::weights& of) {
  constexpr detail::file_kind kind = {'h', 's', 'l', 'e', 'a', 'r', 'n', 'g'};
  const auto& size = of.size();
  detail::saved_writer out(kind, 0);
  out.add_all(std::array{1, size.layers, size.experts, size.d_model, size.depth, size.width});
  each_network(of, [&](const auto& net) { each_value(net, [&](float value) { out.add(value); }); });
  return std::move(out).take();
}

}  // namespace hotset::support
