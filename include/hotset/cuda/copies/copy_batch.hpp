// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers copies and gives them to the runtime in as few calls as it takes, copies of one size together.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/platform/assert.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// A batch of mixed sizes makes `cudaMemcpyBatchAsync` synchronous, so each batch holds one size.
/// No allocation after construction.
class copy_batch {
 public:
  /// `capacity`: copies gathered at most between two calls of `issue`.
  copy_batch(runtime& api, std::size_t capacity) : api_(api), has_batch_(api.has_copy_batch()) {
    copies_.reserve(capacity);
    to_.reserve(capacity);
    from_.reserve(capacity);
    bytes_.reserve(capacity);
  }

  /// Pre: fewer than `capacity` are gathered.
  void add(const copy_request& copy) noexcept {
    HOTSET_ASSERT(copies_.size() < copies_.capacity());
    copies_.push_back(copy);
  }
  /// Enqueues all, in order of size, and forgets them. Stops at the first call that fails.
  bool issue(stream_handle stream, sticky_failure& failures) noexcept {
    std::ranges::sort(copies_, {}, [](const copy_request& c) { return c.bytes; });
    bool ok = true;
    for (std::size_t first = 0; ok && first < copies_.size();) {
      const auto end = static_cast<std::size_t>(
          std::ranges::upper_bound(copies_, copies_[first].bytes, {},
                                   [](const copy_request& c) { return c.bytes; }) -
          copies_.begin());
      ok = issue_one_size(std::span(copies_).subspan(first, end - first), stream, failures);
      first = end;
    }
    copies_.clear();
    return ok;
  }

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  /// Units: bytes given to the runtime.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_copied_; }

 private:
  bool issue_one_size(std::span<const copy_request> copies, stream_handle stream,
                      sticky_failure& failures) noexcept {
    if (has_batch_ && copies.size() > 1) return issue_batch(copies, stream, failures);
    for (const auto& copy : copies) {
      ++calls_;
      if (!failures.note(api_.copy(copy, stream), "cudaMemcpyAsync")) return false;
      bytes_copied_ += copy.bytes;
    }
    return true;
  }
  bool issue_batch(std::span<const copy_request> copies, stream_handle stream,
                   sticky_failure& failures) noexcept {
    to_.clear();
    from_.clear();
    bytes_.clear();
    for (const auto& copy : copies) {
      to_.push_back(copy.to);
      from_.push_back(copy.from);
      bytes_.push_back(copy.bytes);
    }
    ++calls_;
    if (!failures.note(api_.copy_batch(to_, from_, bytes_, stream), "cudaMemcpyBatchAsync"))
      return false;
    bytes_copied_ += copies.size() * copies.front().bytes;
    return true;
  }

  runtime& api_;
  bool has_batch_;
  std::vector<copy_request> copies_;
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  std::uint64_t calls_ = 0;
  std::uint64_t bytes_copied_ = 0;
};

}  // namespace hotset::cuda
