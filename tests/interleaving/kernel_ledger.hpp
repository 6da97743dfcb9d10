// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine's record of its launched kernels: the bytes that each must read, and whether their step was lost.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unruly_backend.hpp"

namespace hotset::interleaving {

struct expected_read {
  slot_id slot = no_slot;
  support::slot_bytes bytes{};
};

/// A kernel that read other bytes is a debt until a call returns fill_failed: then the steps of all kernels resolved
/// so far are lost and repeated. A step that ends with ok leaves no debt.
class kernel_ledger {
 public:
  kernel_ledger(support::unruly_backend& backend, support::event_trail& trail)
      : backend_(backend), trail_(trail) {
    backend.on_kernel = [this](std::size_t id) { read(id); };
  }

  /// Registers the reads of a group that was just resolved; returns its kernel, to be launched once.
  std::size_t resolved(std::vector<expected_read> reads) {
    kernels_.push_back({std::move(reads), losses_});
    return kernels_.size() - 1;
  }
  /// A call reported that the step of everything resolved so far is lost.
  void lost() {
    ++losses_;
    debt_.clear();
  }
  [[nodiscard]] bool is_lost(std::size_t id) const { return kernels_[id].losses < losses_; }
  [[nodiscard]] std::span<const expected_read> reads(std::size_t id) const {
    return kernels_[id].reads;
  }
  /// All launched kernels have run, and every call returned ok.
  void step_ends() {
    if (!debt_.empty()) trail_.fault("nobody was told that " + debt_);
  }

 private:
  struct kernel {
    std::vector<expected_read> reads;
    std::uint64_t losses = 0;  ///< reported before it was resolved
  };
  void read(std::size_t id) {
    if (is_lost(id)) return;
    for (const auto& [slot, bytes] : kernels_[id].reads) {
      const auto& found = backend_.bytes(slot);
      if (found == bytes) continue;
      trail_.note("kernel % reads wrong bytes in slot %", id, slot);
      if (debt_.empty())
        debt_ = "kernel " + std::to_string(id) + " read " + words(found) + " in slot " +
                to_string(slot) + " instead of " + words(bytes);
    }
  }
  static std::string words(const support::slot_bytes& bytes) {
    if (bytes.key == no_key) return "nothing whole";
    return "expert " + to_string(bytes.key.layer) + "." + to_string(bytes.key.expert) +
           " (precision " + to_string(bytes.precision) + ", version " +
           std::to_string(bytes.version) + ")";
  }

  support::unruly_backend& backend_;
  support::event_trail& trail_;
  std::vector<kernel> kernels_;
  std::uint64_t losses_ = 0;
  std::string debt_;
};

}  // namespace hotset::interleaving
