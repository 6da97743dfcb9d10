// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where warnings and errors go that no call returns: to a callback of the engine's, never to a logging library.

#include <cstdint>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

/// How bad it is.
enum class log_level : std::uint8_t { warning, error };

/// Copyable; empty by default, and then nothing is told. The callback must not call back into the object that
/// tells it, and must not throw; nothing is told on the way of a visit in which all goes well.
struct log_sink {
  void (*write)(void* context, log_level level, std::string_view text) noexcept = nullptr;
  void* context = nullptr;

  void operator()(log_level level, std::string_view text) const noexcept {
    if (write != nullptr) write(context, level, text);
  }
};

}  // namespace hotset
