// SPDX-License-Identifier: Apache-2.0
#include "memory_limit.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace hotset_llama_cpp {

namespace fs = std::filesystem;

namespace {

/// The number after `name` at the start of a line, as in /proc/meminfo and memory.stat.
std::optional<std::uint64_t> number_of(const fs::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first;
    std::uint64_t number = 0;
    if (words >> first >> number && first == name) return number;
  }
  return std::nullopt;
}
/// The number that a file holds; nothing for "max".
std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// The files of one version of cgroups.
struct version {
  fs::path mount;
  const char* limit;
  std::vector<const char*> used;  ///< names in memory.stat of memory that cannot be reclaimed
};
const version first_version{
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", {"total_rss", "total_shmem"}};
const version second_version{"sys/fs/cgroup",
                             "memory.max",
                             {"anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable"}};

/// Bytes that one cgroup leaves; nothing if it has no limit.
std::optional<std::uint64_t> left_in(const fs::path& group, const version& v) {
  const auto limit = number_in(group / v.limit);
  if (!limit) return std::nullopt;
  std::uint64_t used = 0;
  for (const auto* const name : v.used) used += number_of(group / "memory.stat", name).value_or(0);
  return *limit - std::min(*limit, used);
}

/// Paths of the process's cgroups, "/" in a namespace of its own: {second version?, path}.
std::vector<std::pair<bool, fs::path>> groups_of_process(const fs::path& root) {
  std::vector<std::pair<bool, fs::path>> out;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "<number>:<controllers>:<path>"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_second = controllers == ",,";
    if (is_second || controllers.find(",memory,") != std::string::npos)
      out.emplace_back(is_second, fs::path(line.substr(second + 1)).relative_path());
  }
  return out;
}

}  // namespace

memory_limit available_memory(const fs::path& root) {
  std::optional<memory_limit> least;
  const auto take = [&](std::optional<std::uint64_t> bytes, const char* name) {
    if (bytes && (!least || *bytes < least->bytes)) least = {*bytes, name};
  };
  if (const auto kibibytes = number_of(root / "proc/meminfo", "MemAvailable:"))
    take(*kibibytes * 1024, "the machine's memory");
  for (const auto& [is_second, path] : groups_of_process(root)) {
    const auto& v = is_second ? second_version : first_version;
    // A container sees its own group at the mount, but may be told the path outside.
    for (auto group = path;; group = group.parent_path()) {
      take(left_in(root / v.mount / group, v), "the cgroup's limit");
      if (group.empty()) break;
    }
  }
  return least.value_or(memory_limit{0, "an unknown limit"});
}

std::uint64_t bytes_read_from_disks() {
  return number_of("/proc/self/io", "read_bytes:").value_or(0);
}

}  // namespace hotset_llama_cpp
