// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory that this process may still use, and what it has read from disks.

#include <cstdint>
#include <filesystem>
#include <string>

namespace hotset_llama_cpp {

struct memory_limit {
  std::uint64_t bytes = 0;  ///< what is left: memory that can be reclaimed counts as left
  std::string name;         ///< "the cgroup's limit" or "the machine's memory"
};

/// The least that the machine and the process's cgroups (v1 or v2, with their parents) leave. `root`: where /proc and
/// /sys are. If nothing can be read, 0 bytes of "an unknown limit".
[[nodiscard]] memory_limit available_memory(const std::filesystem::path& root = "/");

/// Bytes that the process has read from disks, page faults included; 0 if the system does not say.
[[nodiscard]] std::uint64_t bytes_read_from_disks();

}  // namespace hotset_llama_cpp
