// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shape of a model's routed experts: layers, experts, top-k, bytes and size classes; and the tensors of one expert.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Units: bytes count one whole expert, all of its tensors.
struct geometry {
  std::int32_t layers = 0;                ///< MoE layers, L
  std::int32_t experts = 0;               ///< routed experts in a layer, E
  std::int32_t top_k = 0;                 ///< experts of one token, K
  std::int32_t max_tokens_per_visit = 1;  ///< sizes every scratch buffer
  /// [layers], or one entry for all layers. Empty: unknown, counted as 1 byte.
  std::vector<std::uint64_t> expert_bytes{};
  /// [layers]. Empty: layers with equal bytes share a class.
  std::vector<size_class_id> layer_size_class{};
  /// Bytes of an expert at precisions 1, 2, ..., highest first. Each entry has the form of expert_bytes. Empty: one
  /// precision.
  std::vector<std::vector<std::uint64_t>> lower_precisions{};

  static constexpr std::int64_t max_keys = std::int64_t{1} << 28;
  static constexpr std::size_t max_precisions = 8;
  /// Ranks have 16 bits, and one value means no rank.
  static constexpr std::int32_t max_top_k = 65535;
  static constexpr std::int64_t max_ids_per_visit = std::int64_t{1} << 31;  ///< tokens x top_k

  // Counts as array sizes.
  [[nodiscard]] std::size_t layer_count() const noexcept {
    return static_cast<std::size_t>(layers);
  }
  [[nodiscard]] std::size_t expert_count() const noexcept {
    return static_cast<std::size_t>(experts);
  }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(top_k); }
  [[nodiscard]] std::size_t tokens_per_visit() const noexcept {
    return static_cast<std::size_t>(max_tokens_per_visit);
  }
  /// Most ids that one visit may route, counting repeated experts.
  [[nodiscard]] std::size_t ids_per_visit() const noexcept { return tokens_per_visit() * ranks(); }
  /// Most distinct experts that one visit may route.
  [[nodiscard]] std::size_t distinct_per_visit() const noexcept {
    return std::min(expert_count(), ids_per_visit());
  }
  [[nodiscard]] std::size_t keys() const noexcept { return layer_count() * expert_count(); }
  /// Pre: contains(key).
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return index_of(key.layer) * expert_count() + index_of(key.expert);
  }
  [[nodiscard]] expert_key key(std::size_t index) const noexcept {
    const auto width = expert_count();
    return {static_cast<layer_id>(index / width), static_cast<expert_id>(index % width)};
  }
  [[nodiscard]] bool contains(expert_key k) const noexcept {
    return k.layer >= 0 && k.layer < layers && k.expert >= 0 && k.expert < experts;
  }
  /// Number of precisions in which an expert is stored.
  [[nodiscard]] std::size_t precisions() const noexcept { return 1 + lower_precisions.size(); }
  /// Pre: 0 <= layer < layers, precision < precisions().
  [[nodiscard]] std::uint64_t bytes_of(layer_id layer, precision_id precision = {}) const noexcept {
    const auto& bytes = precision == 0 ? expert_bytes : lower_precisions[index_of(precision) - 1];
    if (bytes.empty()) return 1;
    return bytes.size() == 1 ? bytes.front() : bytes[index_of(layer)];
  }
  /// Size class of each layer, numbered from 0 in order of first appearance.
  [[nodiscard]] std::vector<size_class_id> size_classes() const {
    if (!layer_size_class.empty()) return layer_size_class;
    std::vector<size_class_id> classes(layer_count());
    std::vector<std::uint64_t> seen;
    for (const auto l : each<layer_id>(layers)) {
      const auto bytes = bytes_of(l);
      std::size_t at = 0;
      while (at < seen.size() && seen[at] != bytes) ++at;
      if (at == seen.size()) seen.push_back(bytes);
      classes[index_of(l)] = static_cast<size_class_id>(at);
    }
    return classes;
  }

  [[nodiscard]] validation validate() const {
    if (layers < 1) return refusal("layers = ", layers, ", accepted: 1 or more");
    if (experts < 1) return refusal("experts = ", experts, ", accepted: 1 or more");
    const auto all = std::int64_t{layers} * experts;
    if (all > max_keys)
      return refusal("layers x experts = ", all, ", accepted: at most ", max_keys);
    const auto most = std::min(experts, max_top_k);
    if (top_k < 1 || top_k > most) return refusal("top_k = ", top_k, ", accepted: 1..", most);
    if (max_tokens_per_visit < 1 || max_tokens_per_visit > (1 << 24))
      return refusal("max_tokens_per_visit = ", max_tokens_per_visit, ", accepted: 1..16777216");
    const auto ids = std::int64_t{max_tokens_per_visit} * top_k;
    if (ids > max_ids_per_visit)
      return refusal("max_tokens_per_visit x top_k = ", ids, ", accepted: at most ",
                     max_ids_per_visit);
    if (auto bad = validate_bytes("expert_bytes", expert_bytes)) return bad;
    if (auto bad = validate_precisions()) return bad;
    return validate_classes();
  }

 private:
  [[nodiscard]] validation validate_bytes(const std::string& what,
                                          const std::vector<std::uint64_t>& bytes) const {
    if (bytes.size() > 1 && bytes.size() != layer_count())
      return refusal(what, " has ", bytes.size(), " entries, accepted: none, 1 or one per layer (",
                     layers, ")");
    for (std::size_t l = 0; l < bytes.size(); ++l)
      if (bytes[l] == 0) return refusal(what, "[", l, "] = 0, accepted: 1 or more");
    return std::nullopt;
  }
  [[nodiscard]] validation validate_precisions() const {
    if (lower_precisions.empty()) return std::nullopt;
    if (precisions() > max_precisions)
      return refusal(precisions(), " precisions, accepted: 1..", max_precisions);
    if (expert_bytes.empty())
      return error{"several precisions and no expert_bytes, accepted: the bytes of each precision"};
    for (std::size_t p = 1; p < precisions(); ++p) {
      const auto& bytes = lower_precisions[p - 1];
      const auto what = "lower_precisions[" + std::to_string(p - 1) + "]";
      if (bytes.empty()) return error{what + " is empty, accepted: 1 or one per layer"};
      if (auto bad = validate_bytes(what, bytes)) return bad;
      for (const auto l : each<layer_id>(layers))
        if (bytes_of(l, static_cast<precision_id>(p)) >=
            bytes_of(l, static_cast<precision_id>(p - 1)))
          return refusal(what, " of layer ", l,
                         " is not smaller than the precision above it, accepted: falling bytes");
    }
    return std::nullopt;
  }
  [[nodiscard]] validation validate_classes() const {
    if (layer_size_class.empty()) return std::nullopt;
    if (layer_size_class.size() != layer_count())
      return refusal("layer_size_class has ", layer_size_class.size(),
                     " entries, accepted: none or one per layer (", layers, ")");
    for (std::size_t l = 0; l < layer_size_class.size(); ++l)
      if (layer_size_class[l] < 0 || layer_size_class[l] >= layers)
        return refusal("layer_size_class[", l, "] = ", layer_size_class[l], ", accepted: 0..",
                       layers - 1);
    return std::nullopt;
  }
};

/// One tensor of an expert, such as `down_proj` or its block scales.
struct tensor_layout {
  std::string name;
  std::uint64_t bytes = 0;
};

/// Tensors of every expert of one size class: 1..8, of any dtype and shape. An expert is usable when all of its
/// tensors are in place.
struct expert_layout {
  std::vector<tensor_layout> tensors;

  static constexpr std::size_t max_tensors = 8;

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t total = 0;
    for (const auto& t : tensors) total += t.bytes;
    return total;
  }
  [[nodiscard]] validation validate() const {
    if (tensors.empty() || tensors.size() > max_tensors)
      return refusal("an expert of ", tensors.size(), " tensors, accepted: 1..", max_tensors);
    for (const auto& t : tensors)
      if (t.bytes == 0) return error{"tensor '" + t.name + "' has 0 bytes, accepted: 1 or more"};
    return std::nullopt;
  }
};

}  // namespace hotset
