// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides slots into pools and assigns layers to them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"

namespace hotset {

/// Selects one pool of slots that all layers share, or a quota for each layer.
enum class cache_scope : std::uint8_t { shared, per_layer };

/// Slot ids are global. The initial slots of a pool are contiguous.
class pool_layout {
 public:
  /// A contiguous range of slots and the layers that it serves.
  struct pool {
    slot_id first_slot{};
    std::int32_t slots = 0;
    size_class_id size_class{};
    std::vector<layer_id> layers{};  ///< ascending
    precision_id precision{};        ///< precision of its experts
  };

  /// Slot entries store the pool number in 16 bits.
  static constexpr std::size_t most_pools = 65'535;

  /// One pool for all layers. Every slot counts as one, whatever its bytes (the simulator's shared scope).
  static result<pool_layout> shared(const geometry& shape, std::int64_t slots) {
    if (auto bad = shape.validate()) return *std::move(bad);
    return assemble(shape, {{.layers = all_layers(shape)}}, {slots});
  }

  /// One pool for each size class; `slots[c]` slots for class c. For engines whose layers have different layouts.
  static result<pool_layout> shared_by_size_class(const geometry& shape,
                                                  std::span<const std::int64_t> slots) {
    if (auto bad = shape.validate()) return *std::move(bad);
    const auto classes = shape.size_classes();
    const auto count = index_of(*std::max_element(classes.begin(), classes.end())) + 1;
    std::vector<pool> groups(count);
    for (std::size_t c = 0; c < count; ++c) groups[c].size_class = static_cast<size_class_id>(c);
    for (const auto l : each<layer_id>(shape.layers))
      groups[index_of(classes[index_of(l)])].layers.push_back(l);
    return assemble(shape, std::move(groups), {slots.begin(), slots.end()});
  }

  /// One pool for each layer; `quotas` holds one number for all layers, or one for each.
  static result<pool_layout> per_layer(const geometry& shape,
                                       std::span<const std::int64_t> quotas) {
    if (auto bad = shape.validate()) return *std::move(bad);
    const auto classes = shape.size_classes();
    const auto layers = shape.layer_count();
    std::vector<pool> groups(layers);
    for (std::size_t l = 0; l < layers; ++l)
      groups[l] = {.size_class = classes[l], .layers = {static_cast<layer_id>(l)}};
    std::vector<std::int64_t> counts(quotas.begin(), quotas.end());
    if (counts.size() == 1) counts.assign(layers, quotas.front());
    return assemble(shape, std::move(groups), std::move(counts));
  }
  static result<pool_layout> per_layer(const geometry& shape, std::int64_t quota) {
    return per_layer(shape, std::span(&quota, 1));
  }

  /// Divides `bytes` into slots for experts of shape.expert_bytes, with the same share of each layer's experts. With
  /// shared scope, the layers of a size class share a pool. Errors: those of geometry; no expert_bytes, or several
  /// precisions; too few bytes for the experts of one token.
  static result<pool_layout> within(const geometry& shape, cache_scope scope, std::uint64_t bytes) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (shape.expert_bytes.empty() || shape.precisions() > 1)
      return error{"cannot divide bytes into slots: experts have " +
                   (shape.expert_bytes.empty()
                        ? std::string("unknown bytes")
                        : std::to_string(shape.precisions()) + " precisions") +
                   ", accepted: expert_bytes of one precision"};
    std::uint64_t of_each = 0;  // bytes of one expert in every layer
    for (const auto l : each<layer_id>(shape.layers)) of_each += shape.bytes_of(l);
    const auto whole = of_each * static_cast<std::uint64_t>(shape.experts);
    const auto slots_of = [of_each, used = std::min(bytes, whole)](std::uint64_t layers) {
      return static_cast<std::int64_t>(used / of_each * layers + used % of_each * layers / of_each);
    };
    const auto least = of_each * static_cast<std::uint64_t>(shape.top_k);
    if (scope == cache_scope::per_layer && bytes < least)
      return refusal(bytes, " bytes, accepted: ", least,
                     " or more, for top_k experts in every layer");
    if (scope == cache_scope::per_layer) return per_layer(shape, slots_of(1));
    std::vector<std::uint64_t> layers;
    for (const auto c : shape.size_classes()) {
      layers.resize(std::max(layers.size(), index_of(c) + 1));
      ++layers[index_of(c)];
    }
    std::vector<std::int64_t> slots(layers.size());
    std::transform(layers.begin(), layers.end(), slots.begin(), slots_of);
    return shared_by_size_class(shape, slots);
  }

  /// One pool for each precision, shared by all layers; `slots[p]` slots for precision p. As in `shared`, every slot
  /// counts as one. All pools together must hold the experts of one token.
  static result<pool_layout> shared_by_precision(const geometry& shape,
                                                 std::span<const std::int64_t> slots) {
    if (auto bad = shape.validate()) return *std::move(bad);
    std::vector<pool> groups;
    for (std::size_t p = 0; p < shape.precisions(); ++p)
      groups.push_back({.size_class = static_cast<size_class_id>(p),
                        .layers = all_layers(shape),
                        .precision = static_cast<precision_id>(p)});
    return assemble(shape, std::move(groups), {slots.begin(), slots.end()});
  }

  /// One pool for each layer and precision; `quotas[p]` slots of precision p in every layer.
  static result<pool_layout> per_layer_by_precision(const geometry& shape,
                                                    std::span<const std::int64_t> quotas) {
    if (auto bad = shape.validate()) return *std::move(bad);
    const auto precisions = shape.precisions();
    if (quotas.size() != precisions)
      return refusal(quotas.size(), " quotas for ", precisions,
                     " precisions, accepted: one for each");
    const auto classes = shape.size_classes();
    std::vector<pool> groups;
    std::vector<std::int64_t> slots;
    for (const auto l : each<layer_id>(shape.layers))
      for (std::size_t p = 0; p < precisions; ++p) {
        const auto of_layer = index_of(classes[index_of(l)]);
        groups.push_back({.size_class = static_cast<size_class_id>(of_layer * precisions + p),
                          .layers = {l},
                          .precision = static_cast<precision_id>(p)});
        slots.push_back(quotas[p]);
      }
    return assemble(shape, std::move(groups), std::move(slots));
  }

  [[nodiscard]] const geometry& shape() const noexcept { return shape_; }
  /// Number of precisions with pools of their own.
  [[nodiscard]] std::size_t precisions() const noexcept { return precisions_; }
  /// The pool of the layer's experts at a precision. Pre: precision < precisions().
  [[nodiscard]] pool_id pool_of(layer_id layer, precision_id precision) const noexcept {
    return layer_pool_[index_of(layer) * precisions_ + index_of(precision)];
  }
  [[nodiscard]] std::size_t slots() const noexcept { return slot_pool_.size(); }
  [[nodiscard]] std::size_t pools() const noexcept { return pools_.size(); }
  [[nodiscard]] const pool& at(pool_id p) const noexcept { return pools_[p]; }
  /// The pool of the layer's experts at the highest precision.
  [[nodiscard]] pool_id pool_of_layer(layer_id layer) const noexcept {
    return layer_pool_[index_of(layer) * precisions_];
  }
  /// The initial pool of a slot. A quota change may move the slot later.
  [[nodiscard]] pool_id pool_of_slot(slot_id slot) const noexcept { return slot_pool_[slot]; }
  /// Upper bound on the slots of pool p: its layers' experts, or all slots of its size class.
  [[nodiscard]] std::size_t most_slots(pool_id p) const noexcept {
    std::size_t same_class = 0;
    for (const auto& other : pools_)
      if (other.size_class == at(p).size_class) same_class += static_cast<std::size_t>(other.slots);
    return std::min(same_class, at(p).layers.size() * shape_.expert_count());
  }

 private:
  static std::vector<layer_id> all_layers(const geometry& shape) {
    const auto ids = each<layer_id>(shape.layers);
    return {ids.begin(), ids.end()};
  }
  static result<pool_layout> assemble(const geometry& shape, std::vector<pool> groups,
                                      std::vector<std::int64_t> slots) {
    if (slots.size() != groups.size())
      return refusal(slots.size(), " slot counts for ", groups.size(),
                     " pools, accepted: one for each pool");
    if (groups.size() > most_pools)
      return refusal(groups.size(), " pools, accepted: at most ", most_pools);
    pool_layout out;
    out.shape_ = shape;
    for (const auto& g : groups)
      out.precisions_ = std::max(out.precisions_, index_of(g.precision) + 1);
    out.layer_pool_.resize(shape.layer_count() * out.precisions_);
    for (std::size_t p = 0; p < groups.size(); ++p) {
      if (groups[p].layers.empty())
        return refusal("size class ", p, " has no layer, accepted: classes 0, 1, ... without gaps");
      out.add(std::move(groups[p]), slots[p], static_cast<pool_id>(p));
    }
    if (auto bad = out.check_room(slots)) return *std::move(bad);
    return out;
  }
  void add(pool one, std::int64_t slots, pool_id p) {
    const auto most = static_cast<std::int64_t>(one.layers.size()) * shape_.experts;
    one.first_slot = static_cast<slot_id>(slot_pool_.size());
    one.slots = static_cast<std::int32_t>(std::clamp<std::int64_t>(slots, 0, most));
    for (const auto layer : one.layers)
      layer_pool_[index_of(layer) * precisions_ + index_of(one.precision)] = p;
    slot_pool_.insert(slot_pool_.end(), static_cast<std::size_t>(one.slots), p);
    pools_.push_back(std::move(one));
  }
  /// Checks that the experts of one token fit into the pools of each layer.
  [[nodiscard]] validation check_room(const std::vector<std::int64_t>& asked) const {
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const auto& one = pools_[static_cast<pool_id>(p)];
      const auto most = static_cast<std::int64_t>(one.layers.size()) * shape_.experts;
      if (precisions_ > 1 && asked[p] < 1)
        return refusal("the pool of precision ", one.precision, " has ", asked[p],
                       " slots, accepted: 1..", most);
      std::int64_t room = 0;
      for (std::size_t q = 0; q < precisions_; ++q)
        room += at(pool_of(one.layers.front(), static_cast<precision_id>(q))).slots;
      if (room < shape_.top_k)
        return refusal("pool ", p, " has ", precisions_ > 1 ? room : asked[p],
                       (precisions_ > 1 ? " slots of all precisions" : " slots"),
                       ", fewer than top_k: a token could never be served; accepted: ",
                       shape_.top_k, "..", most);
    }
    return std::nullopt;
  }

  geometry shape_{};
  per_pool<pool> pools_;
  std::size_t precisions_ = 1;
  std::vector<pool_id> layer_pool_;  ///< [layers][precisions]
  per_slot<pool_id> slot_pool_;
};

}  // namespace hotset
