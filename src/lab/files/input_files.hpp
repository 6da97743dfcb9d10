// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Whole inputs in memory: a plain file, a compressed file (.gz .xz .zst), a tar or zip archive or a folder.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// One file of an input. name: the last part of its path.
struct input_entry {
  std::string name;
  std::string text;
};

/// What is read at most, after decompression; more is refused. Recorded traces pack 3 to 20 times: a file that unpacks to
/// far more than that is unpacked by hand, or not meant well.
struct input_limits {
  std::uint64_t bytes = std::uint64_t{16} << 30U;
  std::uint64_t files = 65536;
  std::uint64_t packed_floor = std::uint64_t{2} << 20U;  ///< of one packed file, whatever its size
  std::uint64_t packed_ratio = 50;                       ///< and so many bytes for each of its own
};

/// All regular files of an input, sorted by name; recognised by content, not by extension. A folder's
/// subfolders are not entered. Errors: trace_error.
[[nodiscard]] std::vector<input_entry> read_input(const std::filesystem::path& path,
                                                  const input_limits& limits = {});

/// The text of an input of one file. Errors: trace_error, also for an archive or folder of several or of none.
[[nodiscard]] std::string read_single_input(const std::filesystem::path& path);

/// What a recogniser looks at.
struct input_beginning {
  std::string text;         ///< the first bytes of the only, or first, file; empty for a folder
  bool collection = false;  ///< a folder or an archive
};

/// Decompresses only as far as needed. Errors: trace_error.
[[nodiscard]] input_beginning read_beginning(const std::filesystem::path& path, std::size_t bytes);

}  // namespace hotset::lab
