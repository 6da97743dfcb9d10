// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes copies to the runtime in as few calls as possible, grouped by size.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// A batch of mixed sizes makes `cudaMemcpyBatchAsync` synchronous, so each batch holds one size.
/// No allocation after construction.
class copy_batch {
 public:
  /// `most`: most copies in one call of `issue`.
  copy_batch(runtime& api, std::size_t most) : api_(api), has_batch_(api.has_copy_batch()) {
    to_.reserve(most);
    from_.reserve(most);
    bytes_.reserve(most);
  }

  /// Enqueues all copies, sorted by size. Stops at the first call that fails.
  bool issue(std::span<copy_request> copies, stream_handle stream,
             sticky_failure& failures) noexcept {
    std::ranges::sort(copies, {}, &copy_request::bytes);
    while (!copies.empty()) {
      const auto end =
          std::ranges::upper_bound(copies, copies.front().bytes, {}, &copy_request::bytes);
      const auto count = static_cast<std::size_t>(end - copies.begin());
      if (!issue_one_size(copies.first(count), stream, failures)) return false;
      copies = copies.subspan(count);
    }
    return true;
  }

  /// Units: bytes passed to the runtime.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_copied_; }

 private:
  bool issue_one_size(std::span<const copy_request> copies, stream_handle stream,
                      sticky_failure& failures) noexcept {
    if (has_batch_ && copies.size() > 1) return issue_batch(copies, stream, failures);
    for (const auto& copy : copies) {
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
    if (!failures.note(api_.copy_batch(to_, from_, bytes_, stream), "cudaMemcpyBatchAsync"))
      return false;
    bytes_copied_ += copies.size() * copies.front().bytes;
    return true;
  }

  runtime& api_;
  bool has_batch_;
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  std::uint64_t bytes_copied_ = 0;
};

}  // namespace hotset::cuda
