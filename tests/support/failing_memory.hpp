// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A virtual_memory of which one call can be made to fail before it reaches the underlying memory.

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset::support {

template <virtual_memory Memory>
class failing_memory {
 public:
  explicit failing_memory(Memory behind) : behind_(std::move(behind)) {}

  /// The n-th call from now on fails once; n = 1 is the next, 0 is none.
  void fail(std::size_t nth) { left_ = nth; }
  [[nodiscard]] bool armed() const { return left_ != 0; }
  [[nodiscard]] Memory& behind() { return behind_; }
  /// Called with the name of each call before it is made or fails.
  std::function<void(const char*)> on_call{};

  [[nodiscard]] std::size_t granularity() const noexcept { return behind_.granularity(); }
  memory_status reserve(std::size_t bytes, std::span<std::byte>& range) noexcept {
    return fails("reserve") ? memory_status::out_of_memory : behind_.reserve(bytes, range);
  }
  memory_status release(std::span<std::byte> range) noexcept {
    return fails("release") ? memory_status::failed : behind_.release(range);
  }
  memory_status create_block(std::size_t bytes, memory_block& block) noexcept {
    return fails("create_block") ? memory_status::out_of_memory
                                 : behind_.create_block(bytes, block);
  }
  memory_status destroy_block(memory_block block) noexcept {
    return fails("destroy_block") ? memory_status::failed : behind_.destroy_block(block);
  }
  memory_status map(std::span<std::byte> range, std::size_t offset, memory_block block) noexcept {
    return fails("map") ? memory_status::out_of_memory : behind_.map(range, offset, block);
  }
  memory_status unmap(std::span<std::byte> range, std::size_t offset, std::size_t bytes) noexcept {
    return fails("unmap") ? memory_status::failed : behind_.unmap(range, offset, bytes);
  }

 private:
  bool fails(const char* call) {
    if (on_call) on_call(call);
    return left_ != 0 && --left_ == 0;
  }

  Memory behind_;
  std::size_t left_ = 0;
};

}  // namespace hotset::support
