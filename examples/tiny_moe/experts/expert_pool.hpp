// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A provider's slots as a resizable pool, independent of its policies.

#include <cstdint>

#include "hotset/cache/expert_slots.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"

namespace tiny_moe {

/// Models hotset::resizable_pool: a unit is one slot in every layer. Calls are those of hotset::expert_slots.
class expert_pool {
 public:
  virtual ~expert_pool() = default;
  /// Allocates memory for the first time.
  [[nodiscard]] virtual hotset::status open(std::uint64_t units) = 0;

  [[nodiscard]] virtual std::uint64_t unit_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t capacity() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t in_use() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t peak() const noexcept = 0;
  virtual void reset_peak() noexcept = 0;
  [[nodiscard]] virtual bool drained() const noexcept = 0;
  virtual hotset::status shrink(std::uint64_t units) noexcept = 0;
  virtual hotset::status grow(std::uint64_t units) noexcept = 0;
  /// Reverts the last resize.
  virtual hotset::status undo() noexcept = 0;

 protected:
  expert_pool() = default;
  expert_pool(const expert_pool&) = default;
  expert_pool& operator=(const expert_pool&) = default;
};
static_assert(hotset::resizable_pool<expert_pool>);

template <class Cache>
class expert_pool_of final : public expert_pool {
 public:
  expert_pool_of(Cache& cache, hotset::host_slot_bank& bank, typename Cache::stream_type& stream)
      : slots_(cache, bank, stream) {}

  [[nodiscard]] hotset::status open(std::uint64_t units) override { return slots_.open(units); }
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept override { return slots_.unit_bytes(); }
  [[nodiscard]] std::uint64_t capacity() const noexcept override { return slots_.capacity(); }
  [[nodiscard]] std::uint64_t in_use() const noexcept override { return slots_.in_use(); }
  [[nodiscard]] std::uint64_t peak() const noexcept override { return slots_.peak(); }
  void reset_peak() noexcept override { slots_.reset_peak(); }
  [[nodiscard]] bool drained() const noexcept override { return slots_.drained(); }
  hotset::status shrink(std::uint64_t units) noexcept override { return slots_.shrink(units); }
  hotset::status grow(std::uint64_t units) noexcept override { return slots_.grow(units); }
  hotset::status undo() noexcept override { return slots_.undo(); }

 private:
  hotset::expert_slots<Cache, hotset::host_slot_bank> slots_;
};

}  // namespace tiny_moe
