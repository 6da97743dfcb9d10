// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sizes, rates and durations of a command line: read with a reason for every refusal, and written as people write them.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lab/errors.hpp"

namespace hotset::lab {

/// Runs make and puts the option's name before what it has to say against its value. Errors: usage_error.
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

/// Reads "24GiB". `usual` is the unit that a bare number is guessed to lack, for the message alone.
/// Units: bytes. Errors: usage_error for no size, one without a unit, or 0.
[[nodiscard]] std::uint64_t read_size(std::string_view text, std::string_view usual = "GiB");
/// The same, and "0".
[[nodiscard]] std::uint64_t read_size_or_none(std::string_view text,
                                              std::string_view usual = "GiB");

/// Reads "25GB/s". Returns bytes a second, or nothing for any other text or less than 1.
[[nodiscard]] std::optional<std::uint64_t> parse_rate(std::string_view text) noexcept;
/// Reads "10us", "1.5ms" or "0". Returns nanoseconds, or nothing for any other text or more than 1000 s.
[[nodiscard]] std::optional<std::uint64_t> parse_duration(std::string_view text) noexcept;

/// Reads "25GB/s". Units: bytes a second. Errors: usage_error.
[[nodiscard]] std::uint64_t read_rate(std::string_view text);

/// Reads "10us" or "0". Units: nanoseconds. Errors: usage_error.
[[nodiscard]] std::uint64_t read_duration(std::string_view text);

/// "24 GiB" if that is exact, else "13.6 MiB": the largest binary unit that leaves 1 or more before the point.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// What to ask for where so many bytes are needed: "8.1GiB", rounded up, as read_size takes it.
[[nodiscard]] std::string least_size_text(std::uint64_t bytes);
/// "8.0GiB (8585113600B) or more"; where a size is exact it is said once.
[[nodiscard]] std::string at_least_text(std::uint64_t bytes);

/// Behind each "6442450944 bytes" of a message: " (6 GiB)". The core's messages have no other sizes.
[[nodiscard]] std::string with_sizes(std::string_view message);

}  // namespace hotset::lab
