// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on the host: all of it for good, or as much as is held at a time.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/expert_layout.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/memory/slot_bank_layout.hpp"

namespace hotset::inline v0 {

/// Addresses are stable for as long as the slot is held. Memory: slots * expert bytes, padded to cache lines.
class host_slot_bank {
 public:
  /// All slots in one array for each tensor, for the bank's life; `beside` more of them, numbered after the cache's, are the
  /// engine's own. Errors: those of slot_bank_layout, no host memory.
  static result<host_slot_bank> create(const pool_layout& layout,
                                       const std::vector<expert_layout>& layouts,
                                       std::size_t beside = 0) noexcept {
    return build(layout, layouts, beside, [](host_slot_bank& out) { out.take_all(); });
  }
  /// No slot is held yet: `hold` takes memory from `budget`, which outlives the bank, slot by slot.
  static result<host_slot_bank> create_elastic(const pool_layout& layout,
                                               const std::vector<expert_layout>& layouts,
                                               memory_budget& budget) noexcept {
    return build(layout, layouts, 0, [&](host_slot_bank& out) { out.budget_ = &budget; });
  }
  host_slot_bank(host_slot_bank&& other) noexcept
      : places_(std::move(other.places_)),
        arrays_(std::move(other.arrays_)),
        pieces_(std::move(other.pieces_)),
        first_(std::move(other.first_)),
        held_(std::move(other.held_)),
        budget_(std::exchange(other.budget_, nullptr)) {}
  host_slot_bank& operator=(host_slot_bank&&) = delete;
  ~host_slot_bank() {
    if (budget_ == nullptr) return;
    for (std::size_t c = 0; c < held_.size(); ++c) (void)hold(c, 0);
  }

  /// Why a cache of `layout` cannot live here; nothing if it can.
  [[nodiscard]] validation check(const pool_layout& layout) const { return places_.check(layout); }
  [[nodiscard]] std::size_t slots() const noexcept { return places_.slots(); }
  [[nodiscard]] std::size_t beside() const noexcept { return places_.beside(); }
  /// Tensors of the experts that the slot can hold.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept { return places_.tensors(slot); }
  /// Pre: slot and tensor in range, the slot is held.
  [[nodiscard]] std::span<std::byte> bytes(slot_id slot, std::size_t tensor) const noexcept {
    const auto where = places_.at(slot, tensor);
    return {first_[where.array][places_.local(slot)], where.bytes};
  }

  /// Memory of one slot of a size class.
  [[nodiscard]] std::uint64_t slot_bytes(std::size_t size_class) const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& array : places_.arrays())
      if (array.size_class == size_class) bytes += array.stride;
    return bytes;
  }
  /// Slots of a size class that have memory: the first ones.
  [[nodiscard]] std::size_t held(std::size_t size_class) const noexcept {
    return held_[size_class];
  }
  /// Gives the first `slots` slots of a size class memory, and no others. Their contents stay; new ones are unknown.
  /// Pre: elastic; nobody uses the slots that go. Errors: invalid_argument (more slots than there are),
  /// exceeds_memory (the budget or the machine refuses); then nothing has changed.
  status hold(std::size_t size_class, std::size_t slots) noexcept {
    if (budget_ == nullptr || size_class >= held_.size() || slots > slots_of(size_class))
      return status::invalid_argument;
    const auto before = held_[size_class];
    while (held_[size_class] < slots)
      if (!take_slot(size_class)) {
        while (held_[size_class] > before) drop_slot(size_class);
        return status::exceeds_memory;
      }
    while (held_[size_class] > slots) drop_slot(size_class);
    return status::ok;
  }
  [[nodiscard]] bool is_elastic() const noexcept { return budget_ != nullptr; }

 private:
  static constexpr std::size_t alignment = 64;
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept {
      ::operator delete (p, std::align_val_t{alignment});
    }
  };
  using memory = std::unique_ptr<std::byte[], aligned_delete>;

  template <class Finish>
  static result<host_slot_bank> build(const pool_layout& layout,
                                      const std::vector<expert_layout>& layouts, std::size_t beside,
                                      Finish finish) noexcept {
    return unless_out_of_memory(
        [&]() -> result<host_slot_bank> {
          auto places = slot_bank_layout::create(layout, layouts, alignment, beside);
          if (!places) return places.reason();
          host_slot_bank out(*std::move(places));
          finish(out);
          return out;
        },
        no_host_memory());
  }
  explicit host_slot_bank(slot_bank_layout places) : places_(std::move(places)) {
    for (const auto& array : places_.arrays()) {
      pieces_.emplace_back(array.slots);
      first_.emplace_back(array.slots, nullptr);
      if (array.size_class >= held_.size()) held_.resize(array.size_class + 1, 0);
    }
  }
  void take_all() {
    for (std::size_t a = 0; a < places_.arrays().size(); ++a) {
      const auto& array = places_.arrays()[a];
      arrays_.emplace_back();  // its own memory may be refused
      arrays_.back().reset(
          static_cast<std::byte*>(::operator new (array.total(), std::align_val_t{alignment})));
      for (std::size_t s = 0; s < array.slots; ++s)
        first_[a][s] = arrays_.back().get() + s * array.stride;
      held_[array.size_class] = array.slots;
    }
  }

  [[nodiscard]] std::size_t slots_of(std::size_t size_class) const noexcept {
    for (const auto& array : places_.arrays())
      if (array.size_class == size_class) return array.slots;
    return 0;
  }
  /// The next slot of the class, all its tensors or none.
  bool take_slot(std::size_t size_class) noexcept {
    if (!budget_->take(slot_bytes(size_class))) return false;
    const auto slot = held_[size_class]++;
    for (std::size_t a = 0; a < places_.arrays().size(); ++a) {
      const auto& array = places_.arrays()[a];
      if (array.size_class != size_class) continue;
      pieces_[a][slot].reset(static_cast<std::byte*>(
          ::operator new (array.stride, std::align_val_t{alignment}, std::nothrow)));
      first_[a][slot] = pieces_[a][slot].get();
      if (first_[a][slot] != nullptr) continue;
      drop_slot(size_class);
      return false;
    }
    return true;
  }
  void drop_slot(std::size_t size_class) noexcept {
    const auto slot = --held_[size_class];
    for (std::size_t a = 0; a < places_.arrays().size(); ++a) {
      if (places_.arrays()[a].size_class != size_class) continue;
      pieces_[a][slot].reset();
      first_[a][slot] = nullptr;
    }
    budget_->give_back(slot_bytes(size_class));
  }

  slot_bank_layout places_;
  std::vector<memory> arrays_;               ///< of a bank that holds all for good
  std::vector<std::vector<memory>> pieces_;  ///< [arrays][slots of its class], of an elastic bank
  std::vector<std::vector<std::byte*>> first_;  ///< [arrays][slots of its class]
  std::vector<std::size_t> held_;               ///< by size class
  memory_budget* budget_ = nullptr;             ///< of an elastic bank
};

}  // namespace hotset::inline v0
