// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Simulates a system that refuses threads. Programs that use it link refused_threads.cpp.

#include <string>

namespace hotset::support {

/// During its lifetime the next `allowed` threads start, and all later ones are refused.
class refused_threads {
 public:
  explicit refused_threads(int allowed);
  refused_threads(const refused_threads&) = delete;
  refused_threads& operator=(const refused_threads&) = delete;
  ~refused_threads();
  /// Threads that have run and ended since the last construction.
  [[nodiscard]] static int ended();
  /// The reason why threads cannot be refused here; empty if they can.
  static std::string why_not();
};

}  // namespace hotset::support
