// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Architecture rules that a header's text can violate, as functions that describe each violation.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotset_rules {

/// One header: its path below include/hotset, and what it holds.
struct header {
  std::string path;
  std::string text;
};

/// One sentence for each violation; it starts with the header's path.
using breaches = std::vector<std::string>;

/// One include line: the name, and whether it stood in angle brackets.
struct include_line {
  std::string name;
  bool angled = false;
};

inline std::vector<header> read_headers(const std::filesystem::path& folder) {
  std::vector<header> headers;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".hpp") continue;
    std::ifstream file(entry.path());
    headers.push_back({entry.path().lexically_relative(folder).generic_string(),
                       {std::istreambuf_iterator<char>(file), {}}});
    if (!file) throw std::runtime_error("cannot read " + entry.path().string());
  }
  std::sort(headers.begin(), headers.end(),
            [](const header& a, const header& b) { return a.path < b.path; });
  return headers;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find_first_not_of(" \t");
    const auto last = line.find_last_not_of(" \t\r");
    lines.push_back(first == std::string::npos ? "" : line.substr(first, last - first + 1));
  }
  return lines;
}

inline std::vector<include_line> includes_of(const std::string& text) {
  std::vector<include_line> found;
  for (const std::string& line : lines_of(text)) {
    if (line.empty() || line.front() != '#') continue;
    const auto word = line.find_first_not_of(" \t", 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) continue;
    const auto open = line.find_first_of("<\"", word);
    if (open == std::string::npos) continue;
    const bool angled = line[open] == '<';
    const auto close = line.find(angled ? '>' : '"', open + 1);
    if (close != std::string::npos)
      found.push_back({line.substr(open + 1, close - open - 1), angled});
  }
  return found;
}

/// Folder of a header: the first part of its path below include/hotset; empty at the root.
inline std::string folder_of(std::string_view path) {
  const auto slash = path.find('/');
  return slash == std::string_view::npos ? std::string{} : std::string(path.substr(0, slash));
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Folders of the library with their floors.
inline const std::map<std::string, int>& rooms() {
  static const std::map<std::string, int> floors = {
      {"core", 0},      {"policy", 1},   {"predict", 2},  {"trace", 2},   {"transfer", 2},
      {"eviction", 3},  {"prefetch", 3}, {"miss", 3},     {"routing", 3}, {"adapters", 3},
      {"placement", 3}, {"testing", 3},  {"http", 3},     {"uring", 3},   {"admission", 4},
      {"paging", 5},    {"cache", 6},    {"registry", 6}, {"cuda", 6},    {"planning", 6},
      {"lab", 7},
  };
  return floors;
}
/// Folders beside the library. They may use the library; it may not use them.
inline const std::set<std::string>& edges() {
  static const std::set<std::string> rooms = {"cuda", "http", "lab", "testing", "uring"};
  return rooms;
}
/// Folders in which each header is a policy.
inline const std::set<std::string>& policy_rooms() {
  static const std::set<std::string> rooms = {"eviction", "admission", "prefetch", "miss",
                                              "routing"};
  return rooms;
}

/// Floor of a header: 0 to 7, and -1 for version.hpp. None if the folder is unknown.
inline std::optional<int> floor_of(std::string_view path) {
  if (path == "version.hpp") return -1;  // below the house
  const auto found = rooms().find(folder_of(path));
  if (found == rooms().end()) return std::nullopt;
  return found->second;
}

/// A header includes only lower floors and its own folder.
inline breaches floor_breaches(const header& h) {
  const auto own = floor_of(h.path);
  if (!own) return {h.path + ": its folder has no floor"};
  breaches found;
  for (const include_line& line : includes_of(h.text)) {
    if (!line.name.starts_with("hotset/")) continue;
    const std::string target = line.name.substr(7);
    const auto floor = floor_of(target);
    if (!floor) {
      found.push_back(h.path + ": includes " + target + ", whose folder has no floor");
      continue;
    }
    const std::string from = folder_of(h.path);
    const std::string to = folder_of(target);
    if (*floor >= *own && from != to) {
      found.push_back(h.path + " (floor " + std::to_string(*own) + "): includes " + target +
                      " (floor " + std::to_string(*floor) + ")");
    }
  }
  return found;
}

/// Library headers that may include system headers: {header, name}. Each needs a reason.
inline const std::set<std::pair<std::string, std::string>>& allowed_foreign_includes() {
  static const std::set<std::pair<std::string, std::string>> pairs = {
      // does not exist: stops the compiler if C++ is too old
      {"version.hpp", "hotset_needs_cxx_20"},
      // the standard library cannot map memory
      {"transfer/memory/host_virtual_memory.hpp", "fcntl.h"},
      {"transfer/memory/host_virtual_memory.hpp", "sys/mman.h"},
      {"transfer/memory/host_virtual_memory.hpp", "unistd.h"},
      // the standard library cannot read at an offset or bypass the page cache
      {"transfer/file_expert_source.hpp", "fcntl.h"},
      {"transfer/file_expert_source.hpp", "sys/stat.h"},
      {"transfer/file_expert_source.hpp", "unistd.h"},
      // the standard library cannot keep mode and owner, or detect a device
      {"trace/file_writer.hpp", "fcntl.h"},
      {"trace/file_writer.hpp", "poll.h"},
      {"trace/file_writer.hpp", "sys/stat.h"},
      {"trace/file_writer.hpp", "unistd.h"},
      // the standard library has no sockets
      {"cache/metrics_endpoint.hpp", "arpa/inet.h"},
      {"cache/metrics_endpoint.hpp", "fcntl.h"},
      {"cache/metrics_endpoint.hpp", "netinet/in.h"},
      {"cache/metrics_endpoint.hpp", "poll.h"},
      {"cache/metrics_endpoint.hpp", "sys/socket.h"},
      {"cache/metrics_endpoint.hpp", "unistd.h"},
  };
  return pairs;
}

/// The library includes only the standard library, itself by full path, and the explicitly allowed headers.
inline breaches foreign_include_breaches(const header& h) {
  // A standard header has no folder and no extension; these two are compiler headers for vector instructions.
  static const std::set<std::string> of_vectors = {"immintrin.h", "arm_neon.h"};
  if (edges().contains(folder_of(h.path))) return {};
  breaches found;
  for (const include_line& line : includes_of(h.text)) {
    if (line.name.starts_with("hotset/")) continue;
    if (!line.angled) {
      found.push_back(h.path + ": includes \"" + line.name + "\" by a relative name");
    } else if (line.name.find_first_of("./") != std::string::npos &&
               !of_vectors.contains(line.name) &&
               !allowed_foreign_includes().contains({h.path, line.name})) {
      found.push_back(h.path + ": includes <" + line.name +
                      ">, which is not of the standard library");
    }
  }
  return found;
}

/// A header opens with SPDX, #pragma once and one `///` sentence.
inline breaches opening_breaches(const header& h) {
  std::vector<std::string> lines = lines_of(h.text);
  std::erase(lines, std::string{});
  if (lines.empty() || lines[0] != "// SPDX-License-Identifier: Apache-2.0") {
    return {h.path + ": the first line is not its SPDX line"};
  }
  if (lines.size() < 2 || lines[1] != "#pragma once") {
    return {h.path + ": #pragma once does not follow the SPDX line"};
  }
  std::string sentence;
  for (std::size_t i = 2; i < lines.size() && lines[i].starts_with("///"); ++i) {
    sentence += lines[i].substr(3);
  }
  if (sentence.find_first_not_of(' ') == std::string::npos) {
    return {h.path + ": no /// sentence stands before the first include or declaration"};
  }
  if (sentence.find('.') == std::string::npos) {
    return {h.path + ": the opening /// comment is not a sentence"};
  }
  return {};
}

/// A policy's header also states its rule, source, deviations, exactness and cost.
inline breaches policy_breaches(const header& h) {
  if (!policy_rooms().contains(folder_of(h.path))) return {};
  if (h.path.starts_with("eviction/order/")) return {};  // what policies are made of
  breaches found;
  const std::vector<std::string> lines = lines_of(h.text);
  for (const std::string_view label : {"Rule:", "Source:", "Deviations:", "Exact:", "Cost:"}) {
    const bool said = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      if (!line.starts_with("///")) return false;
      const auto at = line.find(label);
      return at != std::string::npos &&
             line.find_first_not_of(" /", at + label.size()) != std::string::npos;
    });
    if (!said) found.push_back(h.path + ": does not say " + std::string(label));
  }
  return found;
}

/// A trailing comment must not split a declaration; it stands above instead.
inline breaches comment_breaches(const header& h) {
  static constexpr std::string_view ends_of_lines = ";{}(,:&|\"";
  breaches found;
  std::string before;
  std::size_t number = 0;
  for (const std::string& line : lines_of(h.text)) {
    ++number;
    const auto first = line.find_first_not_of(' ');
    const auto comment = line.find("///<");
    if (comment != std::string::npos && comment != first && !before.empty() &&
        before.find("//") == std::string::npos &&
        ends_of_lines.find(before.back()) == std::string_view::npos)
      found.push_back(h.path + ":" + std::to_string(number) +
                      ": a comment behind a declaration of two lines, accepted: one above it");
    const auto last = line.find_last_not_of(' ');
    before = last == std::string::npos ? std::string{} : line.substr(0, last + 1);
  }
  return found;
}

/// A struct that carries a status is [[nodiscard]], as a status is.
inline breaches dropped_status_breaches(const header& h) {
  static const std::regex status_member(R"(^status code\b)");
  breaches found;
  std::string holder;
  for (const std::string& line : lines_of(h.text)) {
    if (line.starts_with("struct ") || line.starts_with("class ")) holder = line;
    if (std::regex_search(line, status_member) && holder.find("[[nodiscard]]") == std::string::npos)
      found.push_back(h.path + ": `" + holder + "` has a status, accepted: struct [[nodiscard]]");
  }
  return found;
}

/// A header of the pager or the cache is short enough to read at once.
inline breaches length_breaches(const header& h) {
  constexpr std::size_t most_lines = 500;
  if (folder_of(h.path) != "paging" && folder_of(h.path) != "cache") return {};
  const auto lines = lines_of(h.text).size();
  if (lines <= most_lines) return {};
  return {h.path + ": has " + std::to_string(lines) +
          " lines, accepted: " + std::to_string(most_lines)};
}

/// Every include starts with the language check: a header that includes no other hotset header includes version.hpp.
inline breaches language_breaches(const header& h) {
  if (h.path == "version.hpp") return {};
  const auto lines = includes_of(h.text);
  const bool includes_hotset = std::any_of(lines.begin(), lines.end(), [](const auto& line) {
    return line.name.starts_with("hotset/");
  });
  if (includes_hotset) return {};
  return {h.path + ": includes no header of hotset, accepted: one, or hotset/version.hpp"};
}

}  // namespace hotset_rules
