// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A system that refuses threads. A program that uses it links refused_threads.cpp.

#include <string>

namespace hotset::support {

/// As long as it lives, the program's next `allowed` threads start, and the system refuses all after them.
class refused_threads {
 public:
  explicit refused_threads(int allowed);
  refused_threads(const refused_threads&) = delete;
  refused_threads& operator=(const refused_threads&) = delete;
  ~refused_threads();
  /// Threads that ran since the last construction and have ended.
  [[nodiscard]] static int ended();
  /// Why threads cannot be refused here; empty if they can.
  static std::string why_not();
};

}  // namespace hotset::support
