// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads a file whole, for what was saved to be loaded again.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"

namespace hotset {

/// `accepted`: what the file should be. Errors, behind the file's name: one that cannot be read, one of more than `most` bytes,
/// no memory.
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
    // Piece by piece: how long a file is, its end says.
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

}  // namespace hotset
