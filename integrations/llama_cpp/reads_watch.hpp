// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Notices that a process reads far more from disks than is copied into slots.

#include <cstdint>

namespace hotset_llama_cpp {

/// If the slots take too much memory, the system drops the pages of the other weights, which every token reads again.
/// Hit rates do not show it.
class reads_watch {
 public:
  static constexpr std::uint64_t period = 64;  ///< decodes between two looks

  /// Totals so far: bytes that the process has read, bytes copied into slots, and visits that passed the slots. An
  /// interval with such visits does not count, because they read the model's own weights.
  void look(std::uint64_t read, std::uint64_t copied, std::uint64_t passed) {
    if (looked_ && passed == passed_seen_) {
      read_ += read - read_seen_;
      copied_ += copied - copied_seen_;
    }
    looked_ = true;
    read_seen_ = read;
    copied_seen_ = copied;
    passed_seen_ = passed;
  }
  /// Ten times as much as was copied, and more than all experts.
  [[nodiscard]] bool is_too_much(std::uint64_t of_all_experts) const {
    return read_ > of_all_experts && read_ / 10 > copied_;
  }
  [[nodiscard]] std::uint64_t read() const { return read_; }
  [[nodiscard]] std::uint64_t copied() const { return copied_; }

 private:
  bool looked_ = false;
  std::uint64_t read_seen_ = 0;
  std::uint64_t copied_seen_ = 0;
  std::uint64_t passed_seen_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t copied_ = 0;
};

}  // namespace hotset_llama_cpp
