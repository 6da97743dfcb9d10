// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What an engine knows of the kernels that it launched: what each must read, and whether their step was lost.

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

/// A kernel that read something else is a debt until a call answers fill_failed: then the steps of all kernels that
/// were resolved by then are lost, and done again. A step whose end is ok leaves no debt.
class kernel_ledger {
 public:
  kernel_ledger(support::unruly_backend& backend, support::event_trail& trail)
      : backend_(backend), trail_(trail) {
    backend.on_kernel = [this](std::size_t id) { read(id); };
  }

  /// The reads of a group that was resolved just now; returns its kernel, to be launched once.
  std::size_t resolved(std::vector<expected_read> reads) {
    kernels_.push_back({std::move(reads), losses_});
    return kernels_.size() - 1;
  }
  /// The step of what is resolved by now is lost: a call said so.
  void lost() {
    ++losses_;
    debt_.clear();
  }
  [[nodiscard]] bool is_lost(std::size_t id) const { return kernels_[id].losses < losses_; }
  [[nodiscard]] std::span<const expected_read> reads(std::size_t id) const {
    return kernels_[id].reads;
  }
  /// Everything that was launched has run, and the engine was told that all is well.
  void step_ends() {
    if (!debt_.empty()) trail_.fault("nobody was told that " + debt_);
  }

 private:
  struct kernel {
    std::vector<expected_read> reads;
    std::uint64_t losses = 0;  ///< that were told before it was resolved
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
