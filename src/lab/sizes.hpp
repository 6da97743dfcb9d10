// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Parses and formats sizes, rates and durations; every refusal has a reason.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lab/errors.hpp"

namespace hotset::lab {

/// Calls make and prefixes its error with the option's name. Errors: usage_error.
template <class Make>
auto for_option(std::string_view option, Make&& make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {  // usage_error, invalid_config
    const std::string_view reason = error.what();
    if (reason.starts_with(option)) throw usage_error(error.what());
    throw usage_error(std::string(option).append(": ").append(reason));
  }
}

/// Parses "24GiB". `usual` is the unit that an error suggests for a bare number.
/// Units: bytes. Errors: usage_error for no size, a missing unit, or 0.
[[nodiscard]] std::uint64_t read_size(std::string_view text, std::string_view usual = "GiB");
/// Parses a size, or "0".
[[nodiscard]] std::uint64_t read_size_or_none(std::string_view text,
                                              std::string_view usual = "GiB");

/// Parses "25GB/s". Returns bytes per second, or nothing for any other text or less than 1.
[[nodiscard]] std::optional<std::uint64_t> parse_rate(std::string_view text) noexcept;
/// Parses "10us", "1.5ms" or "0". Returns nanoseconds, or nothing for any other text or more than 1000 s.
[[nodiscard]] std::optional<std::uint64_t> parse_duration(std::string_view text) noexcept;

/// Parses "25GB/s". Units: bytes per second. Errors: usage_error.
[[nodiscard]] std::uint64_t read_rate(std::string_view text);

/// Parses "10us" or "0". Units: nanoseconds. Errors: usage_error.
[[nodiscard]] std::uint64_t read_duration(std::string_view text);

/// Formats "24 GiB" if exact, else "13.6 MiB": in the largest binary unit in which the value is at least 1.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// Formats the smallest accepted option value for these bytes: "8.1GiB", rounded up, as read_size parses it.
[[nodiscard]] std::string least_size_text(std::uint64_t bytes);
/// Formats "8.0GiB (8585113600B) or more"; an exact size appears once.
[[nodiscard]] std::string at_least_text(std::uint64_t bytes);

/// Adds " (6 GiB)" after each "6442450944 bytes" of a message. The core's messages give sizes only in bytes.
[[nodiscard]] std::string with_sizes(std::string_view message);

}  // namespace hotset::lab
