// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What became of a request to an adapter_registry.

#include <cstdint>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

// clang-format off: version 14 takes an attributed enum for a function
/// What became of a call.
enum class [[nodiscard]] adapter_status : std::uint8_t{
    ok = 0,
    unknown,      ///< no adapter of that name was added
    pinned,       ///< somebody has acquired it
    not_pinned,   ///< nobody has acquired it
    no_room,      ///< places or pages: what is there is pinned, or it would not suffice
    not_read,     ///< the loader failed, or there is no host memory
    not_mapped,   ///< the device's memory refused
    not_copied,   ///< a copy or its fence failed
    not_drained,  ///< the wait for the readers of an adapter that was to leave failed
};
// clang-format on

/// Complexity: O(1). Returns a sentence fragment fit for a message.
[[nodiscard]] constexpr std::string_view describe(adapter_status s) noexcept {
  switch (s) {
    case adapter_status::ok: return "ok";
    case adapter_status::unknown: return "no adapter of that name";
    case adapter_status::pinned: return "somebody uses the adapter";
    case adapter_status::not_pinned: return "nobody uses the adapter";
    case adapter_status::no_room: return "no room: the adapters on the device are in use";
    case adapter_status::not_read: return "the adapter could not be read";
    case adapter_status::not_mapped: return "the device has no memory for the adapter";
    case adapter_status::not_copied: return "the adapter could not be copied";
    case adapter_status::not_drained: return "the readers of another adapter did not end";
  }
  return "unknown adapter status";
}

}  // namespace hotset
