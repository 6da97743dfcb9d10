// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on slot memory that is given back and taken while a cache serves from it, on a host or a device.
///
/// | expression | meaning |
/// |---|---|
/// | `slots()` | all slots, with memory or without |
/// | `tensors(slot)`, `bytes(slot, tensor)` | where an expert's tensors lie in a slot; the addresses stay for the bank's life |
/// | `slot_bytes(size_class)` | what a slot takes from the budget |
/// | `held(size_class)` | slots of the class that have memory: its first ones |
/// | `hold(size_class, slots)` | gives the first `slots` of the class memory and no others; their contents stay, new ones are unknown. `exceeds_memory`: nothing has changed |
/// | `copy_slot(from, to, stream)` | copies all tensors after what was enqueued on the stream; the bytes at `to` are there when `finish` returns. Both slots are of one size class and held |
/// | `finish(stream)` | waits until what was enqueued on the stream has run. `fill_failed`: it has not |
///
/// Calls are `noexcept`. `hold`, `copy_slot` and `finish` are for drained points.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/status.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

template <class B, class Stream>
concept slot_bank = requires(B bank, const B& fixed, slot_id slot, std::size_t n, Stream& stream) {
  { fixed.slots() } noexcept -> std::same_as<std::size_t>;
  { fixed.tensors(slot) } noexcept -> std::same_as<std::size_t>;
  { fixed.bytes(slot, n) } noexcept -> std::same_as<std::span<std::byte>>;
  { fixed.slot_bytes(n) } noexcept -> std::same_as<std::uint64_t>;
  { fixed.held(n) } noexcept -> std::same_as<std::size_t>;
  { bank.hold(n, n) } noexcept -> std::same_as<status>;
  { bank.copy_slot(slot, slot, stream) } noexcept -> std::same_as<status>;
  { bank.finish(stream) } noexcept -> std::same_as<status>;
};

}  // namespace hotset
