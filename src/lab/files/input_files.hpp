// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads whole inputs into memory: a plain file, a compressed file (.gz .xz .zst), a tar or zip archive or a folder.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// Paths in a folder, sorted; `ending`: only those with this extension, unless it is empty. Errors: trace_error.
[[nodiscard]] std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder,
                                                          std::string_view ending = "");

/// One file of an input. name: the last part of its path.
struct input_entry {
  std::string name;
  std::string text;
};

/// Reads all regular files of an input, sorted by name. The format is recognised by content, not by extension. A
/// folder's subfolders are skipped. A packed file may unpack to at most 2 MiB plus 50 times its size: recorded traces
/// pack 3 to 20 times. Errors: trace_error, also for more than `most_bytes` in all.
[[nodiscard]] std::vector<input_entry> read_input(const std::filesystem::path& path,
                                                  std::uint64_t most_bytes = std::uint64_t{16}
                                                                             << 30U);

/// Reads an input of one file. Errors: trace_error, also for an archive or folder with several files or none.
[[nodiscard]] std::string read_single_input(const std::filesystem::path& path);

/// The part of an input that recognisers read.
struct input_beginning {
  std::string text;         ///< first bytes of the first file; empty for a folder
  bool collection = false;  ///< a folder or an archive
};

/// Decompresses only the bytes needed. Errors: trace_error.
[[nodiscard]] input_beginning read_beginning(const std::filesystem::path& path, std::size_t bytes);

}  // namespace hotset::lab
