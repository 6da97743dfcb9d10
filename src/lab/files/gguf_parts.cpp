// SPDX-License-Identifier: Apache-2.0
#include "lab/files/gguf_parts.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

/// Numbers in a name: "model-00002-of-00003.gguf" is part 2 of 3.
struct name_parts {
  std::string model;
  std::uint64_t number = 1;
  std::uint64_t count = 1;
};
std::optional<name_parts> read_name(std::string_view name) {
  constexpr std::string_view ending = ".gguf";
  constexpr std::size_t tail = std::string_view("-00002-of-00003").size();
  if (!name.ends_with(ending) || name.size() < ending.size() + tail) return std::nullopt;
  name.remove_suffix(ending.size());
  const auto numbers = name.substr(name.size() - tail);
  if (numbers[0] != '-' || numbers.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = parse_number<std::uint64_t>(numbers.substr(1, 5));
  const auto count = parse_number<std::uint64_t>(numbers.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return name_parts{std::string(name.substr(0, name.size() - tail)), *number, *count};
}

/// Path of another part of the same model.
fs::path part_of(const fs::path& path, const name_parts& name, std::uint64_t number) {
  return path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name.model, number, name.count);
}

std::uint64_t number_in(const gguf_file& file, std::string_view key, std::uint64_t otherwise) {
  const auto* const value = file.find(key);
  return value == nullptr || value->is_array ? otherwise : value->natural().value_or(otherwise);
}

/// Pre: `number` counts from 1.
void check_part(const gguf_file& file, const name_parts& name, std::uint64_t number) {
  const auto refuse = [&](std::string_view key, const std::string& found,
                          const std::string& accepted) {
    refuse_input(file.path().string(), fmt::format("key '{}'", key), found, accepted);
  };
  if (const auto count = number_in(file, "split.count", 1); count != name.count)
    refuse("split.count", fmt::format("is {}: the file is one of as many parts", count),
           fmt::format("{}, as its name says (model-00001-of-00003.gguf is the first of 3)",
                       name.count));
  if (const auto place = number_in(file, "split.no", number - 1); place != number - 1)
    refuse("split.no", fmt::format("is {}", place),
           fmt::format("{}, as its name says", number - 1));
}

}  // namespace

std::vector<gguf_file> open_gguf_parts(const fs::path& path, file_extent extent) {
  const auto found = read_name(path.filename().string());
  const auto name = found.value_or(name_parts{});
  std::vector<gguf_file> out;
  std::uint64_t tensors = 0;
  for (std::uint64_t n = 1; n <= name.count; ++n) {
    const auto part = found ? part_of(path, name, n) : path;
    std::error_code ignored;
    if (name.count > 1 && !fs::exists(part, ignored))
      refuse_input(part.string(), "", fmt::format("is missing: part {} of {}", n, name.count),
                   "all parts in one folder");
    check_part(out.emplace_back(part, extent), name, n);
    tensors += out.back().tensors().size();
  }
  if (const auto all = number_in(out.front(), "split.tensors.count", tensors); all != tensors)
    refuse_input(out.front().path().string(), "key 'split.tensors.count'",
                 fmt::format("is {}", all), fmt::format("{}, as the parts have", tensors));
  return out;
}

fs::path first_gguf_part(const fs::path& path) {
  const auto found = read_name(path.filename().string());
  return found ? part_of(path, *found, 1) : path;
}

std::string gguf_name(const fs::path& path) {
  const auto part = read_name(path.filename().string());
  return part ? part->model : path.stem().string();
}

}  // namespace hotset::lab
