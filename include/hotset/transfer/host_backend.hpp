// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots on a thread of its own, demand before speculation, each in order of submission.

#include <cstddef>

#include "hotset/transfer/copy_thread.hpp"

namespace hotset::inline v0 {

/// As fast as the memory is. Large experts give way to demand at every MiB.
/// Threads: safe. No allocation after construction; a full queue refuses fills (`accepted` tells).
template <expert_source Source>
class host_backend : public copy_thread<Source, unpaced> {
 public:
  struct config {
    std::size_t most_fills = 4096;  ///< waiting at one time
  };

  /// `source` and `bank` outlive the backend.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup = {})
      : copy_thread<Source, unpaced>(source, bank, setup.most_fills, unpaced{}) {}
};

}  // namespace hotset::inline v0
