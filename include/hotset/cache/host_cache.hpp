// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A cache of experts in host memory with slots in host memory: source, slots, one copy thread and a stream in one
/// object.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset {

/// Each expert is one tensor. Threads: one at a time.
template <eviction_policy Eviction>
class host_cache {
  using backend = host_backend<memory_expert_source>;
  using cache = slot_cache<pager<Eviction>, backend>;

 public:
  /// `experts`: [layers * experts], layer by layer, `shape.bytes_of(layer)` bytes each. The bytes must outlive the
  /// cache. Errors: those of the parts; a wrong number of experts, or a wrong size of an expert.
  static result<std::unique_ptr<host_cache>> create(
      const pool_layout& layout, std::span<const std::span<const std::byte>> experts,
      const typename Eviction::config& eviction = {}) {
    const auto& shape = layout.shape();
    auto source = source_of(shape, experts);
    if (!source) return source.error();
    auto bank = host_slot_bank::create(layout, layouts_of(shape));
    if (!bank) return bank.error();
    auto decisions = pager<Eviction>::create({.layout = layout, .eviction = eviction});
    if (!decisions) return decisions.error();
    std::unique_ptr<host_cache> out(new host_cache(*std::move(source), *std::move(bank)));
    auto copies = backend::create(out->source_, out->bank_);
    if (!copies) return copies.error();
    out->backend_ = *std::move(copies);
    auto made = cache::create(*std::move(decisions), *out->backend_);
    if (!made) return made.error();
    out->cache_ = *std::move(made);
    out->visit_.emplace(out->cache_->make_visit());
    return out;
  }

  /// Serves a visit like slot_cache::serve: use(group) reads the slots before it returns.
  template <class Use>
  status serve(const routing_view& view, Use&& use) {
    return cache_->serve(view, stream_, *visit_, std::forward<Use>(use));
  }
  /// The bytes of the expert in a slot of a group.
  [[nodiscard]] std::span<const std::byte> bytes(slot_id slot) const noexcept {
    return bank_.bytes(slot, 0);
  }
  [[nodiscard]] pager_stats stats() const { return cache_->stats(); }
  /// Reports failed copies like slot_cache::settle. Call it at the end of each step.
  status settle() noexcept { return cache_->settle(); }

 private:
  host_cache(memory_expert_source source, host_slot_bank bank)
      : source_(std::move(source)), bank_(std::move(bank)) {}

  static std::vector<expert_layout> layouts_of(const geometry& shape) {
    std::vector<expert_layout> out;
    const auto classes = shape.size_classes();
    for (const auto layer : each<layer_id>(shape.layers)) {
      const auto c = index_of(classes[index_of(layer)]);
      if (c >= out.size()) out.resize(c + 1);
      out[c] = {{{"expert", shape.bytes_of(layer)}}};
    }
    return out;
  }
  static result<memory_expert_source> source_of(
      const geometry& shape, std::span<const std::span<const std::byte>> experts) {
    if (experts.size() != shape.keys())
      return refusal(experts.size(), " experts, accepted: layers x experts (", shape.keys(), ")");
    auto out = memory_expert_source::create(shape, layouts_of(shape));
    if (!out) return out;
    for (std::size_t k = 0; k < experts.size(); ++k)
      if (auto bad = out->add(shape.key(k), experts.subspan(k, 1))) return *std::move(bad);
    return out;
  }

  memory_expert_source source_;
  host_slot_bank bank_;
  std::unique_ptr<backend> backend_;
  host_stream stream_;
  std::unique_ptr<cache> cache_;
  std::optional<cache_visit> visit_;
};

/// Creates a cache with `slots_each` slots in every layer. Errors: those of pool_layout and host_cache::create.
template <eviction_policy Eviction>
[[nodiscard]] result<std::unique_ptr<host_cache<Eviction>>> make_host_cache(
    const geometry& shape, std::int64_t slots_each,
    std::span<const std::span<const std::byte>> experts,
    const typename Eviction::config& eviction = {}) {
  const auto layout = pool_layout::per_layer(shape, slots_each);
  if (!layout) return layout.error();
  return host_cache<Eviction>::create(*layout, experts, eviction);
}

}  // namespace hotset
