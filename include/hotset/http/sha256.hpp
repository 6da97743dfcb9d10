// SPDX-License-Identifier: Apache-2.0
#pragma once
/// SHA-256 of a tensor's bytes, by OpenSSL.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

#include <openssl/evp.h>

#include "hotset/core/error.hpp"

namespace hotset {

/// The 32 bytes of a SHA-256.
using sha256_bytes = std::array<std::byte, 32>;

/// Returns true if the bytes have the hash. Returns false, too, if OpenSSL has no memory.
[[nodiscard]] inline bool has_sha256(std::span<const std::byte> bytes,
                                     const sha256_bytes& wanted) noexcept {
  std::array<unsigned char, EVP_MAX_MD_SIZE> found{};
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), found.data(), &length, EVP_sha256(), nullptr) != 1)
    return false;
  return std::ranges::equal(std::as_bytes(std::span(found).first(length)), wanted);
}

/// Reads 64 hexadecimal digits, as sha256sum prints them. Errors: another text.
[[nodiscard]] inline result<sha256_bytes> read_sha256(std::string_view digits) {
  sha256_bytes out{};
  if (digits.size() != 2 * out.size())
    return refusal("a SHA-256 of ", digits.size(), " characters, accepted: 64 hexadecimal digits");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto pair = digits.substr(2 * i, 2);
    std::uint8_t value = 0;
    const auto [end, code] = std::from_chars(pair.data(), pair.data() + pair.size(), value, 16);
    if (code != std::errc() || end != pair.data() + pair.size())
      return refusal("a SHA-256 with '", pair, "', accepted: 64 hexadecimal digits");
    out[i] = std::byte{value};
  }
  return out;
}

}  // namespace hotset
