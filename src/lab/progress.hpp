// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far a long computation is: told to whoever asked in this thread, and free where nobody did.

#include <cstdint>
#include <functional>
#include <limits>

#include "hotset/version.hpp"

namespace hotset::lab {

/// Called now and then with what is done and what there is to do.
using progress_report = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// While one lives, the computations of this thread report to it; the innermost one counts.
class progress_scope {
 public:
  /// An empty report: nobody asks.
  explicit progress_scope(progress_report report);
  ~progress_scope();
  progress_scope(const progress_scope&) = delete;
  progress_scope& operator=(const progress_scope&) = delete;

 private:
  progress_report report_;
  const progress_report* outer_;
};

/// Of one computation: a comparison at each step, and some five hundred reports in all.
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
