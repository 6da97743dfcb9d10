// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Saved files: reads a whole file, and stores integers in little-endian order on every machine.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"

namespace hotset {

/// Reads the file. `accepted`: the expected content, for messages. Errors, after the file's name: it cannot be read,
/// it has more than `most` bytes, memory runs out.
[[nodiscard]] inline result<std::vector<std::byte>> file_bytes(
    const std::string& path, std::uint64_t most, const std::string& accepted = "a file") {
  using bytes = std::vector<std::byte>;
  const auto refused = [&](const std::string& why) {
    return error{printable(path, 4096) + ": " + why};
  };
  const auto read = [&]() -> result<bytes> {
    constexpr std::size_t piece = std::size_t{1} << 20U;
    std::ifstream file(path, std::ios::binary);
    bytes out;
    // Reads in pieces because the size of a stream is unknown until its end.
    while (file) {
      const auto before = out.size();
      out.resize(before + piece);
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes are read as characters
      file.read(reinterpret_cast<char*>(out.data() + before), std::streamsize{piece});
      out.resize(before + static_cast<std::size_t>(file.gcount()));
      if (out.size() > most)
        return refused("more than " + std::to_string(most) + " bytes, accepted: at most that");
    }
    if (file.bad() || !file.eof()) return refused("cannot be read, accepted: " + accepted);
    return out;
  };
  return unless_out_of_memory(read, result<bytes>(refused(no_host_memory().message)));
}

/// Appends 4 bytes in little-endian order.
inline void save_number(std::uint32_t n, std::vector<std::byte>& out) {
  for (unsigned shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<std::byte>((n >> shift) & 0xffU));
}
/// Reads 4 bytes at `at` in little-endian order. Pre: at + 4 <= bytes.size().
[[nodiscard]] inline std::uint32_t saved_number(std::span<const std::byte> bytes,
                                                std::size_t at) noexcept {
  std::uint32_t n = 0;
  for (unsigned i = 0; i < 4; ++i) n |= static_cast<std::uint32_t>(bytes[at + i]) << (8 * i);
  return n;
}

}  // namespace hotset
