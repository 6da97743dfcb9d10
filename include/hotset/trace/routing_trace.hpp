// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Choices of a model's routers, token by token: the in-memory form of every trace.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/trace/half_array.hpp"

namespace hotset {

namespace detail {

/// Returns the product, or nothing if it exceeds 2^63 - 1.
[[nodiscard]] inline std::optional<std::size_t> product(
    std::initializer_list<std::size_t> factors) noexcept {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  std::size_t total = 1;
  for (const auto f : factors) {
    if (f != 0 && total > most / f) return std::nullopt;
    total *= f;
  }
  return total;
}

}  // namespace detail

/// One row per token. Rows of one step are contiguous: they pass each layer in one visit.
///
/// Shape: T tokens, L layers, K top_k, E experts, d hidden_width, D prediction_depth; row-major.
/// Empty optional arrays mean: not recorded.
struct routing_trace {
  /// Most experts of a layer in a trace file: ids have 16 bits, and one value means none.
  static constexpr std::int32_t max_experts_in_file = 65535;

  std::string name;                                           ///< name in reports
  std::string model;                                          ///< as the recording named it
  std::string source;                                         ///< recorder, and the file's format
  std::vector<std::pair<std::string, std::string>> metadata;  ///< further facts, sorted by key

  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::vector<std::uint64_t> expert_bytes;  ///< [L]; one entry stands for all; empty: unknown

  std::vector<std::uint32_t> step;      ///< [T], non-decreasing
  std::vector<std::uint32_t> sequence;  ///< [T]
  std::vector<request_class> kind;      ///< [T]
  std::vector<expert_id> ids;           ///< [T, L, K] in rank order; -1 absent

  std::vector<float> weights;           ///< [T, L, K] or empty; 0 where the id is absent
  std::vector<float> logits;            ///< [T, L, E] or empty
  half_array probabilities;             ///< [T, L, E] or empty
  half_array hidden;                    ///< [T, L, d] or empty
  half_array predictions;               ///< [T, L, D, E] or empty: scores of the next D layers
  std::vector<std::int16_t> adapter;    ///< [T] or empty; -1 none
  std::vector<std::int32_t> token_ids;  ///< [T] or empty: in the model's vocabulary
  std::int32_t hidden_width = 0;
  std::int32_t prediction_depth = 0;

  [[nodiscard]] std::size_t tokens() const noexcept { return step.size(); }
  /// Position of (token, layer, rank 0) in ids and weights.
  [[nodiscard]] std::size_t index(std::size_t token, layer_id layer) const noexcept {
    return (token * static_cast<std::size_t>(layers) + index_of(layer)) *
           static_cast<std::size_t>(top_k);
  }
  /// The K ids of one token in one layer. Pre: token < tokens(), 0 <= layer < layers.
  [[nodiscard]] id_view<expert_id> ids_of(std::size_t token, layer_id layer) const noexcept {
    return std::span(ids).subspan(index(token, layer), static_cast<std::size_t>(top_k));
  }
  /// The K weights of one token in one layer; empty if there are none.
  [[nodiscard]] std::span<const float> weights_of(std::size_t token,
                                                  layer_id layer) const noexcept {
    if (weights.empty()) return {};
    return std::span(weights).subspan(index(token, layer), static_cast<std::size_t>(top_k));
  }
  /// Value of a metadata key, or nothing.
  [[nodiscard]] std::optional<std::string> fact(std::string_view key) const {
    for (const auto& [k, v] : metadata)
      if (k == key) return v;
    return std::nullopt;
  }
  /// The model's shape, for visits of at most max_tokens tokens.
  [[nodiscard]] geometry shape(std::int32_t max_tokens = 1) const {
    return {layers, experts, top_k, max_tokens, expert_bytes, {}};
  }

  /// Returns why the trace cannot be replayed, or nothing. Half-precision arrays are checked by size only.
  /// Complexity: O(T L (K + E)).
  [[nodiscard]] validation validate() const {
    if (auto bad = shape().validate()) return bad;
    if (auto bad = validate_lengths()) return bad;
    if (auto bad = validate_rows()) return bad;
    return validate_values();
  }

 private:
  [[nodiscard]] validation validate_lengths() const {
    const auto t = tokens();
    if (t == 0) return error{"the trace has no tokens, accepted: 1 or more"};
    if (t >= std::numeric_limits<std::uint32_t>::max())
      return refusal(t, " tokens, accepted: fewer than 2^32 - 1");
    if (hidden_width < 0 || (hidden_width == 0 && !hidden.empty()))
      return refusal("hidden_width = ", hidden_width, ", accepted: 1 or more");
    if (prediction_depth < 0 || (prediction_depth == 0 && !predictions.empty()))
      return refusal("prediction_depth = ", prediction_depth, ", accepted: 1 or more");
    const auto l = static_cast<std::size_t>(layers);
    const auto k = static_cast<std::size_t>(top_k);
    const auto e = static_cast<std::size_t>(experts);
    const auto d = static_cast<std::size_t>(hidden_width);
    const auto ahead = static_cast<std::size_t>(prediction_depth);
    const auto ranked = detail::product({t, l, k});
    const auto scored = detail::product({t, l, e});
    struct part {
      const char* what;
      std::size_t size;
      std::optional<std::size_t> wanted;
      bool optional = true;
    };
    for (const auto& [what, size, wanted, optional] :
         {part{"sequence", sequence.size(), t, false}, part{"kind", kind.size(), t, false},
          part{"ids", ids.size(), ranked, false}, part{"weights", weights.size(), ranked},
          part{"logits", logits.size(), scored},
          part{"probabilities", probabilities.size(), scored},
          part{"hidden", hidden.size(), detail::product({t, l, d})},
          part{"predictions", predictions.size(), detail::product({t, l, ahead, e})},
          part{"adapter", adapter.size(), t}, part{"token_ids", token_ids.size(), t}})
      if (!(optional && size == 0) && size != wanted)
        return refusal(what, " has ", size,
                       " entries, accepted: ", wanted ? std::to_string(*wanted) : "fewer than 2^63",
                       optional ? " or none" : "");
    return std::nullopt;
  }

  [[nodiscard]] validation validate_rows() const {
    for (std::size_t t = 0; t < tokens(); ++t) {
      if (t > 0 && step[t] < step[t - 1])
        return refusal("step[", t, "] = ", step[t], ", accepted: ", step[t - 1],
                       " or more (steps never decrease)");
      if (kind[t] > request_class::verify)
        return refusal("kind[", t, "] = ", static_cast<unsigned>(kind[t]),
                       ", accepted: 0 (decode), 1 (prefill), 2 (verify)");
    }
    return std::nullopt;
  }
  /// Refuses the value at `i` of an array with `width` values for each layer of a token.
  template <class... Reason>
  [[nodiscard]] validation refuse_at(const char* what, std::size_t i, std::int32_t width,
                                     const Reason&... reason) const {
    const auto k = static_cast<std::size_t>(width);
    const auto l = static_cast<std::size_t>(layers);
    return refusal(what, " of token ", i / (k * l), ", layer ", i / k % l, ", position ", i % k,
                   " is ", reason...);
  }
  [[nodiscard]] validation validate_values() const {
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < no_expert || ids[i] >= experts)
        return refuse_at("id", i, top_k, ids[i], ", accepted: 0..", experts - 1, " or -1 (absent)");
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (!std::isfinite(weights[i]))
        return refuse_at("weight", i, top_k, "not finite, accepted: finite numbers");
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isnan(logits[i]))
        return refuse_at("logit", i, experts, "NaN, accepted: numbers or -infinity");
    return std::nullopt;
  }
};

}  // namespace hotset
