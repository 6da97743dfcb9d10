// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on the host, for all slots permanently or for the held slots only.

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/elastic_arrays.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"

namespace hotset {

/// Memory of an engine for one tensor of all slots of a size class.
struct slot_array {
  std::span<std::byte> bytes;
  std::size_t stride = 0;  ///< bytes from one slot to the next
};

/// Addresses are stable for the bank's life. Memory: slots * expert bytes, padded to cache lines; for an elastic bank
/// the held slots, padded to pages (elastic_arrays).
class host_slot_bank : public bank_slots<host_virtual_memory> {
 public:
  /// Allocates all slots for the bank's life, in one array for each tensor. `beside`: additional slots for the engine,
  /// numbered after the cache's. Errors: those of slot_bank_layout, no host memory.
  static result<host_slot_bank> create(const pool_layout& layout,
                                       const std::vector<expert_layout>& layouts,
                                       std::size_t beside = 0) noexcept {
    return build(layout, layouts, beside, [](host_slot_bank& out) { return out.take_all(); });
  }
  /// Uses memory of the engine: one array for each tensor of each size class, classes first. Pre: the memory outlives
  /// the bank. Layers whose tensors are in separate arrays need their own size class (geometry::layer_size_class).
  /// Errors: those of slot_bank_layout; another number of arrays; a stride below a tensor's bytes; an array that is
  /// too short.
  static result<host_slot_bank> create_over(const pool_layout& layout,
                                            const std::vector<expert_layout>& layouts,
                                            std::span<const slot_array> arrays) noexcept {
    return build(layout, layouts, 0, [&](host_slot_bank& out) { return out.take_given(arrays); });
  }
  /// Creates an elastic bank that holds no slot at first; `hold` takes memory from `budget`. Pre: `budget` outlives
  /// the bank. Errors: those of slot_bank_layout; no memory file or no addresses are available; the system is not
  /// Linux.
  static result<host_slot_bank> create_elastic(const pool_layout& layout,
                                               const std::vector<expert_layout>& layouts,
                                               memory_budget& budget) noexcept {
    return build(layout, layouts, 0, [&](host_slot_bank& out) { return out.reserve_all(budget); });
  }
  host_slot_bank(host_slot_bank&&) noexcept = default;
  host_slot_bank& operator=(host_slot_bank&&) = delete;
  ~host_slot_bank() = default;

  /// Copies at once. Pre: all work enqueued on the stream has run.
  template <class Stream>
  status copy_slot(slot_id from, slot_id to, Stream& /*stream*/) const noexcept {
    for (std::size_t t = 0; t < tensors(from); ++t) {
      const auto bytes = this->bytes(from, t);
      std::memcpy(this->bytes(to, t).data(), bytes.data(), bytes.size());
    }
    return status::ok;
  }
  template <class Stream>
  status finish(Stream& stream) const noexcept {
    stream.drain();
    return status::ok;
  }

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
          if (!places) return places.error();
          host_slot_bank out(*std::move(places));
          if (auto bad = finish(out)) return *std::move(bad);
          return out;
        },
        no_host_memory());
  }
  explicit host_slot_bank(slot_bank_layout places) : bank_slots(std::move(places)) {}

  validation take_all() {
    for (const auto& array : places_.arrays()) {
      arrays_.emplace_back();  // first: if the vector cannot grow, no slot memory leaks
      arrays_.back().reset(
          static_cast<std::byte*>(::operator new (array.total(), std::align_val_t{alignment})));
      first_.push_back(arrays_.back().get());
    }
    return std::nullopt;
  }
  validation take_given(std::span<const slot_array> given) {
    std::vector<std::size_t> strides;
    for (const auto& one : given) strides.push_back(one.stride);
    if (auto bad = places_.set_strides(strides)) return bad;
    for (std::size_t a = 0; a < given.size(); ++a) {
      const auto& array = places_.arrays()[a];
      const auto needed = array.slots == 0 ? 0 : (array.slots - 1) * array.stride + array.bytes;
      if (given[a].bytes.size() < needed)
        return refusal("slot array ", a, " has ", given[a].bytes.size(),
                       " bytes, accepted: ", needed, " or more, for ", array.slots, " slots");
      first_.push_back(given[a].bytes.data());
    }
    return std::nullopt;
  }
  validation reserve_all(memory_budget& budget) {
    auto pages = host_virtual_memory::create();
    if (!pages) return pages.error();
    auto own = std::make_unique<host_virtual_memory>(*std::move(pages));
    auto& from = *own;
    return reserve(from, budget, 0, std::move(own));
  }

  std::vector<memory> arrays_;  ///< only if the bank holds all slots permanently
};

}  // namespace hotset
