// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Starts the threads of a backend or a stream, or reports that the system refused one.

#include <cstddef>
#include <thread>
#include <vector>

#include "hotset/core/error.hpp"

#if HOTSET_EXCEPTIONS
#include <system_error>
#endif

namespace hotset::detail {

/// Appends `count` threads that run `loop` to `out`. Errors: the system refuses a thread. `out` then holds the started
/// threads, and its owner joins them as usual. Without exceptions a refusal ends the program, because std::thread has
/// no other way to report it.
template <class Loop>
[[nodiscard]] validation start_threads(std::vector<std::thread>& out, std::size_t count,
                                       Loop loop) {
  const auto before = out.size();
  out.reserve(before + count);
#if HOTSET_EXCEPTIONS
  try {
    while (out.size() != before + count) out.emplace_back(loop);
  } catch (const std::system_error& refused) {
    return refusal("cannot start thread ", out.size() - before + 1, " of ", count, ": ",
                   refused.code().message(),
                   ", accepted: fewer threads, or a higher limit of threads or of memory");
  }
#else
  while (out.size() != before + count) out.emplace_back(loop);
#endif
  return std::nullopt;
}

}  // namespace hotset::detail
