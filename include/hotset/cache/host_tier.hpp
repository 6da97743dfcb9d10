// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cache of experts in host memory, between disk and slots: a second pager chooses which experts stay within a byte
/// limit.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"

namespace hotset {

/// Returns the shape for a host tier of a model: top-1, and one layer for each layer and precision, because an entry
/// is an expert at one precision. Size classes match those of a bank (slot_bank_layout::create), so the same layouts
/// fit. Pre: the model's shape is valid.
[[nodiscard]] inline geometry host_tier_shape(const geometry& model) {
  const auto precisions = model.precisions();
  const auto classes = model.size_classes();
  geometry out;
  out.layers = model.layers * static_cast<std::int32_t>(precisions);
  out.experts = model.experts;
  out.top_k = 1;
  for (std::size_t p = 0; p < precisions; ++p)
    for (const auto l : each<layer_id>(model.layers)) {
      out.expert_bytes.push_back(model.bytes_of(l, static_cast<precision_id>(p)));
      out.layer_size_class.push_back(
          static_cast<size_class_id>(index_of(classes[index_of(l)]) * precisions + p));
    }
  return out;
}

/// Reads missing experts whole from disk and keeps them until its policy evicts them. A backend reads through it like
/// from the disk.
///
///     const auto room = pool_layout::within(host_tier_shape(model), cache_scope::shared, 8 * gib).value();
///     const auto tier = host_tier<file_expert_source, pager<lfu>>::create(
///         model, pager<lfu>({.layout = room}), disk, layouts);
///     host_backend backend(**tier, bank, {.threads = 4});
///
/// Several threads read several experts in parallel; a thread that needs an expert that is being read waits for it. If
/// every slot is being read from, or if admission refuses the expert, its bytes bypass the tier. Threads: safe if the
/// disk's reads are. No allocation after construction.
template <expert_reader Disk, class Pager>
class host_tier {
 public:
  /// Pre: `disk` outlives the tier; `decisions` has the shape host_tier_shape(model). Errors: a pager of another
  /// shape; those of host_slot_bank::create.
  static result<std::unique_ptr<host_tier>> create(const geometry& model, Pager decisions,
                                                   const Disk& disk,
                                                   const std::vector<expert_layout>& layouts) {
    if (auto bad = model.validate()) return *std::move(bad);
    const auto wanted = host_tier_shape(model);
    const auto& shape = decisions.shape();
    if (shape.layers != wanted.layers || shape.experts != wanted.experts || shape.top_k != 1)
      return refusal("a host tier of ", shape.layers, " layers of ", shape.experts,
                     " experts, top-", shape.top_k, ", accepted: ", wanted.layers, " of ",
                     wanted.experts, ", top-1 (host_tier_shape)");
    auto bank = host_slot_bank::create(decisions.layout(), layouts);
    if (!bank) return bank.error();
    return std::unique_ptr<host_tier>(
        new host_tier(model.layers, std::move(decisions), disk, *std::move(bank)));
  }
  host_tier(const host_tier&) = delete;
  host_tier& operator=(const host_tier&) = delete;

  /// Sizes as defined by expert_reader.
  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id precision) const noexcept {
    return disk_.sizes(key, precision);
  }
  /// Reads as defined by expert_reader. A failed read keeps nothing of its expert in the tier.
  [[nodiscard]] bool read(expert_key key, precision_id precision, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept {
    return read_parts(key, precision, std::array{tensor_part{tensor, at, to}});
  }
  /// Reads several tensors, if the disk can read them together.
  [[nodiscard]] bool read_all(
      expert_key key, precision_id precision,
      std::span<const tensor_part> parts) const noexcept requires detail::has_read_all<Disk> {
    return read_parts(key, precision, parts);
  }
  /// Drops the expert at every precision, first from the disk's own cache if it has one. Waits for running reads of
  /// the expert. Reads that begin after the call return the disk's current bytes.
  void invalidate(expert_key key) const noexcept {
    detail::invalidate_in(disk_, key);
    forget(key);
  }
  /// Drops all experts of the layer, one by one.
  void invalidate(layer_id layer) const noexcept {
    detail::invalidate_in(disk_, layer);
    for (const auto e : each<expert_id>(pager_.shape().experts)) forget({layer, e});
  }

  /// Statistics of the tier's pager. An access is an expert that a caller began to read.
  [[nodiscard]] pager_stats stats() const {
    const std::lock_guard lock(mutex_);
    return pager_.stats();
  }
  /// Number of reads that bypassed the tier. Each part of an expert counts once.
  [[nodiscard]] std::uint64_t passed_by() const noexcept {
    const std::lock_guard lock(mutex_);
    return passed_by_;
  }

 private:
  host_tier(std::int32_t layers, Pager&& decisions, const Disk& disk, host_slot_bank&& bank)
      : layers_(layers),
        disk_(disk),
        bank_(std::move(bank)),
        pager_(std::move(decisions)),
        plan_(pager_.make_plan()),
        being_read_(pager_.layout().slots(), 0) {}
  enum class outcome : std::uint8_t { held, failed, passed_by };
  struct holding {
    outcome what = outcome::failed;
    slot_pin pin{};
  };

  bool read_parts(expert_key key, precision_id precision,
                  std::span<const tensor_part> parts) const noexcept {
    const auto found = hold(key, precision, parts);
    if (found.what == outcome::failed) return false;
    if (found.what == outcome::passed_by) return detail::read_parts(disk_, key, precision, parts);
    for (const auto& [tensor, at, to] : parts)
      std::memcpy(to.data(), bank_.bytes(found.pin.slot, tensor).data() + at, to.size());
    const std::lock_guard lock(mutex_);
    unpin(found.pin);
    return true;
  }
  /// Finds the expert or reads it, and pins its slot. The expert's first part counts as an access. Its other parts
  /// belong to the same access, and bypass the tier if the first part did.
  holding hold(expert_key key, precision_id precision,
               std::span<const tensor_part> parts) const noexcept {
    const bool begins = std::ranges::any_of(
        parts, [](const tensor_part& part) { return part.tensor == 0 && part.at == 0; });
    const auto inner = inner_key(key, precision);
    std::unique_lock lock(mutex_);
    const auto slot = begins ? visit(inner, key.layer) : pager_.locate(inner);
    if (slot == no_slot) {
      passed_by_ += parts.size();
      return {outcome::passed_by, {}};
    }
    const auto pin = pager_.pin(slot);
    if (begins && !plan_.fills().empty())
      fill_slot(lock, key, precision, pin);
    else
      arrived_.wait(lock, [&] { return being_read_[index_of(slot)] == 0; });
    // Another reader's copy may have failed and restarted meanwhile; the pin does not cover the new copy.
    if (pager_.locate(inner) == slot && pager_.slot(slot).generation == pin.generation)
      return {outcome::held, pin};
    unpin(pin);
    return {outcome::failed, {}};
  }
  [[nodiscard]] expert_key inner_key(expert_key key, precision_id precision) const noexcept {
    return {layer_id{number(precision) * layers_ + number(key.layer)}, key.expert};
  }
  /// Pre: the caller holds the lock.
  void unpin(slot_pin pin) const noexcept {
    pager_.unpin(pin);
    unpinned_.notify_all();
  }
  /// Waits while a slot is pinned (busy): its bytes are being read from disk or copied to a slot above.
  void forget(expert_key key) const noexcept {
    const auto precisions = pager_.shape().layers / layers_;
    std::unique_lock lock(mutex_);
    for (std::int32_t p = 0; p < precisions; ++p)
      unpinned_.wait(lock, [&] {
        return pager_.invalidate(inner_key(key, static_cast<precision_id>(p))) != status::busy;
      });
  }
  /// Counts an access. Returns the slot, or no_slot if the expert bypasses the tier. The plan has a fill if the bytes
  /// must be read.
  slot_id visit(expert_key inner, layer_id layer) const noexcept {
    if (layer <= last_layer_) ++step_;
    last_layer_ = layer;
    const auto expert = number(inner.expert);
    const routing_view view{.layer = inner.layer, .step = step_, .experts = std::span(&expert, 1)};
    if (pager_.plan(view, plan_) != status::ok) return no_slot;
    const auto slot = plan_.slots().front();
    return pager_.commit(plan_) == status::ok ? slot : no_slot;
  }
  /// Reads without the lock: the slot is pinned, and other readers of it wait.
  void fill_slot(std::unique_lock<std::mutex>& lock, expert_key key, precision_id precision,
                 slot_pin pin) const noexcept {
    being_read_[index_of(pin.slot)] = 1;
    lock.unlock();
    const bool whole = read_whole(key, precision, pin.slot);
    lock.lock();
    being_read_[index_of(pin.slot)] = 0;
    if (!whole) pager_.failed(pin.slot, pin.generation);
    arrived_.notify_all();
  }
  [[nodiscard]] bool read_whole(expert_key key, precision_id precision,
                                slot_id slot) const noexcept {
    const auto sizes = disk_.sizes(key, precision);
    if (sizes.empty() || sizes.size() != bank_.tensors(slot)) return false;
    std::array<tensor_part, expert_layout::max_tensors> parts;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      parts[t] = {t, 0, bank_.bytes(slot, t)};
      if (sizes[t] != parts[t].to.size()) return false;
    }
    return detail::read_parts(disk_, key, precision,
                              std::span<const tensor_part>(parts).first(sizes.size()));
  }

  std::int32_t layers_;  ///< layers of the model
  const Disk& disk_;
  host_slot_bank bank_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  mutable std::condition_variable unpinned_;
  mutable Pager pager_;
  mutable visit_plan plan_;
  mutable std::vector<std::uint8_t> being_read_;  ///< [slots]
  mutable layer_id last_layer_ = before_layers;
  mutable step_id step_ = 0;
  mutable std::uint64_t passed_by_ = 0;
};

}  // namespace hotset
