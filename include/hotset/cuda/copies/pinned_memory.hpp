// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Page-locked host memory within a stated budget. A backend copies from it without staging.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Page-locked host memory: allocated by the runtime, or caller memory that is page-locked while this object lives.
/// Page-locks exactly the requested bytes, without rounding to a power of two.
class pinned_buffer {
 public:
  /// Errors: 0 bytes; those of the runtime.
  static result<pinned_buffer> allocate(runtime& api, std::size_t bytes) noexcept {
    if (bytes == 0) return error{"0 bytes of page-locked memory, accepted: 1 or more"};
    void* memory = nullptr;
    if (const auto code = api.allocate_host(memory, bytes); code != error_code::success)
      return refused(api, {code, "cudaHostAlloc"}, bytes);
    pinned_buffer made({static_cast<std::byte*>(memory), bytes});
    made.taken_ = {api, memory};
    return made;
  }
  /// Page-locks memory that the caller keeps, such as a mapped file. `read_only`: the memory may not be written.
  /// Errors: 0 bytes; those of the runtime.
  static result<pinned_buffer> lock(runtime& api, std::span<const std::byte> memory,
                                    bool read_only = false) noexcept {
    if (memory.empty()) return error{"0 bytes of page-locked memory, accepted: 1 or more"};
    // The runtime's signature is not const.
    auto* const first = const_cast<std::byte*>(memory.data());
    if (const auto code = api.register_host(first, memory.size(), read_only);
        code != error_code::success)
      return refused(api, {code, "cudaHostRegister"}, memory.size());
    pinned_buffer made({first, memory.size()});
    made.locked_ = {api, first};
    return made;
  }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit pinned_buffer(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  static error refused(const runtime& api, const failure& what, std::size_t bytes) {
    return refusal("cannot page-lock ", bytes, " bytes: ", describe(api, what).message);
  }

  std::span<std::byte> bytes_;
  owned<void*, &runtime::free_host> taken_{};
  owned<void*, &runtime::unregister_host> locked_{};
};

/// Page-locked ranges within a budget. Must outlive the backends that copy from it: they finish their copies first,
/// so no copy reads freed memory.
/// Threads: compatible; many threads may call `holds` while none adds a range.
class pinned_memory {
 public:
  /// Units: bytes that may be page-locked at one time.
  pinned_memory(runtime& api, std::uint64_t budget) noexcept : api_(api), budget_(budget) {}

  /// Allocates new memory. Errors: the budget would be exceeded; those of the runtime. On an error nothing has
  /// changed.
  result<std::span<std::byte>> allocate(std::size_t bytes) {
    if (auto over = exceeds(bytes)) return *std::move(over);
    auto made = pinned_buffer::allocate(api_, bytes);
    if (!made) return made.error();
    return keep(*std::move(made));
  }
  /// Page-locks memory that the caller keeps until this object ends. Page-lock a mapped file in one piece: the
  /// runtime refuses ranges that share a page. Errors: those of allocate.
  validation lock(std::span<const std::byte> memory, bool read_only = false) {
    if (auto over = exceeds(memory.size())) return over;
    auto made = pinned_buffer::lock(api_, memory, read_only);
    if (!made) return made.error();
    keep(*std::move(made));
    return std::nullopt;
  }

  /// Returns whether the whole range is page-locked here. Complexity: O(log ranges).
  [[nodiscard]] bool holds(std::span<const std::byte> memory) const noexcept {
    const auto after = std::ranges::upper_bound(
        ranges_, memory.data(), {},
        [](const pinned_buffer& b) -> const std::byte* { return b.bytes().data(); });
    if (after == ranges_.begin()) return false;
    const auto range = std::prev(after)->bytes();
    return memory.data() + memory.size() <= range.data() + range.size();
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return used_; }

 private:
  [[nodiscard]] validation exceeds(std::size_t bytes) const {
    if (bytes <= budget_ - used_) return std::nullopt;
    return refusal("cannot page-lock ", bytes, " bytes: ", used_, " of a budget of ", budget_,
                   " are in use, accepted: at most ", budget_ - used_);
  }
  std::span<std::byte> keep(pinned_buffer made) {
    const auto bytes = made.bytes();
    used_ += bytes.size();
    const auto before = std::ranges::upper_bound(
        ranges_, bytes.data(), {}, [](const pinned_buffer& b) { return b.bytes().data(); });
    ranges_.insert(before, std::move(made));
    return bytes;
  }

  runtime& api_;
  std::uint64_t budget_;
  std::uint64_t used_ = 0;
  std::vector<pinned_buffer> ranges_;  ///< by address
};

}  // namespace hotset::cuda
