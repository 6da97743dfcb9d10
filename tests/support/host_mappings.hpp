// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The kernel's view of this process's memory, independent of a host_virtual_memory's own data.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace hotset::support {

/// Mappings of memory files named "hotset".
inline std::size_t memory_file_mappings() {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:hotset ") != std::string::npos) ++count;
  return count;
}

/// Units: bytes used by this process's memory files named "hotset".
inline std::uint64_t memory_file_bytes() {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(file.path(), gone);
    struct stat about {};
    if (!gone && target.string().starts_with("/memfd:hotset ") &&
        ::stat(file.path().c_str(), &about) == 0)
      bytes += static_cast<std::uint64_t>(about.st_blocks) * 512;
  }
  return bytes;
}

/// Asks the kernel, because a direct access could crash.
inline bool is_readable(const std::byte* at) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return false;
  const bool readable = ::write(ends[1], at, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return readable;
}

}  // namespace hotset::support
