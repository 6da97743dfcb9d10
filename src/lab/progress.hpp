// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Progress of a long computation, reported to the innermost scope of its thread; almost free without one.

#include <cstdint>
#include <functional>
#include <limits>

#include "hotset/version.hpp"

namespace hotset::lab {

/// Called occasionally with the amounts done and total.
using progress_report = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// While one exists, computations of this thread report to it; the innermost one is used.
class progress_scope {
 public:
  /// An empty report turns reporting off.
  explicit progress_scope(progress_report report);
  ~progress_scope();
  progress_scope(const progress_scope&) = delete;
  progress_scope& operator=(const progress_scope&) = delete;

 private:
  progress_report report_;
  const progress_report* outer_;
};

/// Progress of one computation. Cost: a comparison for each step, and about five hundred reports in all.
class progress {
 public:
  explicit progress(std::uint64_t total);

  /// `done` never falls. Errors: what the report throws.
  void at(std::uint64_t done) {
    if (done >= next_) tell(done);
  }

 private:
  void tell(std::uint64_t done);

  const progress_report* report_;
  std::uint64_t total_;
  std::uint64_t next_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace hotset::lab
