// SPDX-License-Identifier: Apache-2.0
#include "lab/progress.hpp"

#include <algorithm>
#include <utility>

namespace hotset::lab {
namespace {

// Thread-local: the computing loops are far below the caller that shows their progress.
thread_local const progress_report* running = nullptr;  // NOLINT

}  // namespace

progress_scope::progress_scope(progress_report report)
    : report_(std::move(report)), outer_(std::exchange(running, report_ ? &report_ : nullptr)) {}

progress_scope::~progress_scope() { running = outer_; }

progress::progress(std::uint64_t total) : report_(running), total_(total) {
  if (report_ != nullptr && total > 0) next_ = 0;
}

void progress::tell(std::uint64_t done) {
  next_ = std::max(done + 1, std::min(done + total_ / 512, total_));  // the end is always reported
  (*report_)(done, total_);
}

}  // namespace hotset::lab
