// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs many works on a few threads.

#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace hotset::lab {

/// Calls run(0) to run(works - 1), up to `jobs` at a time. The first exception is thrown; works not begun are dropped.
/// Dynamic scheduling: each worker takes the next item. Static ranges left one worker with twice the work.
template <class Run>
void run_all(std::size_t works, unsigned jobs, Run run) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    try {
      for (auto n = next++; n < works; n = next++) run(n);
    } catch (...) {
      next = works;
      throw;
    }
  };
  const auto threads = std::min<std::size_t>(jobs, works);
  if (threads <= 1) return work();
  std::vector<std::future<void>> workers;
  for (std::size_t n = 0; n < threads; ++n) workers.push_back(std::async(std::launch::async, work));
  for (auto& worker : workers) worker.get();
}

}  // namespace hotset::lab
