// SPDX-License-Identifier: Apache-2.0
#include "lab/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::string_view accepted_header = "a JSON object in UTF-8";
constexpr std::string_view accepted_description = "an object with dtype, shape and data_offsets";

struct dtype_fact {
  std::string_view name;
  unsigned bits;
};
constexpr std::array dtypes = {
    dtype_fact{"BOOL", 8},    dtype_fact{"U8", 8},      dtype_fact{"I8", 8},
    dtype_fact{"F8_E5M2", 8}, dtype_fact{"F8_E4M3", 8}, dtype_fact{"F8_E8M0", 8},
    dtype_fact{"F4", 4},      dtype_fact{"F6_E2M3", 6}, dtype_fact{"F6_E3M2", 6},
    dtype_fact{"I16", 16},    dtype_fact{"U16", 16},    dtype_fact{"F16", 16},
    dtype_fact{"BF16", 16},   dtype_fact{"I32", 32},    dtype_fact{"U32", 32},
    dtype_fact{"F32", 32},    dtype_fact{"I64", 64},    dtype_fact{"U64", 64},
    dtype_fact{"F64", 64},    dtype_fact{"C64", 64},
};

/// Returns nothing if there are more than 2^60 bytes or the last byte is partial.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, unsigned bits) {
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  std::optional<std::size_t> total = bits;
  for (const auto extent : shape)
    if (total) total = detail::product({*total, extent});
  return total && *total % 8 == 0 ? std::optional<std::uint64_t>(*total / 8) : std::nullopt;
}

std::string text_of(const std::vector<std::uint64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

/// Checks tensor descriptions, one property after the other.
class description_reader {
 public:
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
  description_reader(const std::string& file, const std::string& name, const json& about)
      : file_(file), name_(name), about_(about) {
    if (!about.is_object()) refuse("its description is " + described(about), accepted_description);
    for (const auto& [key, value] : about.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        refuse(fmt::format("its description has '{}'", printable(key, 60)), accepted_description);
    if (about.size() != 3) refuse("dtype, shape or data_offsets is missing", "all three");
  }

  /// `data`: the bytes after the header; `most`: the accepted end.
  [[nodiscard]] safetensors_file::tensor read(std::span<const std::byte> data,
                                              std::uint64_t most) const {
    const auto& fact = dtype();
    auto shape = numbers("shape");
    const auto offsets = numbers("data_offsets");
    if (offsets.size() != 2)
      refuse(fmt::format("data_offsets has {} entries", offsets.size()), "2: begin and end");
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (begin > end || end > most)
      refuse(fmt::format("data_offsets {} are out of range", text_of(offsets)),
             fmt::format("0 <= begin <= end <= {}, the bytes after the header", most));
    const auto size = bytes_of(shape, fact.bits);
    if (!size || *size != end - begin)
      refuse(fmt::format("data_offsets {} hold {} bytes", text_of(offsets), end - begin),
             size ? fmt::format("{}, which is shape {} of {}", *size, text_of(shape), fact.name)
                  : "a shape whose bytes fit a file");
    const auto bytes =
        end > data.size() ? std::span<const std::byte>() : data.subspan(begin, *size);
    return {fact.name, std::move(shape), bytes, *size, begin};
  }

 private:
  [[noreturn]] void refuse(std::string_view found, std::string_view accepted) const {
    refuse_input(file_, fmt::format("tensor '{}'", name_), found, accepted);
  }
  [[nodiscard]] const dtype_fact& dtype() const {
    const auto& value = about_.at("dtype");
    if (!value.is_string()) refuse("'dtype' is " + described(value), "a string");
    const auto* const fact =
        std::ranges::find(dtypes, value.get_ref<const std::string&>(), &dtype_fact::name);
    if (fact != dtypes.end()) return *fact;
    std::string all;
    for (const auto& known : dtypes) all.append(all.empty() ? "" : " ").append(known.name);
    refuse("dtype " + described(value) + " is unknown", all);
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers(const char* key) const {
    constexpr std::string_view accepted = "an array of integers of 0 or more";
    const auto& values = about_.at(key);
    if (!values.is_array()) refuse(fmt::format("'{}' is {}", key, described(values)), accepted);
    std::vector<std::uint64_t> out;
    for (const auto& value : values) {
      if (!value.is_number_unsigned())
        refuse(fmt::format("'{}' holds {}", key, described(value)), accepted);
      out.push_back(value.get<std::uint64_t>());
    }
    return out;
  }

  const std::string& file_;
  const std::string& name_;
  const json& about_;
};

std::string_view header_of(const std::string& file, std::span<const std::byte> bytes) {
  if (bytes.size() < 8)
    refuse_input(file, "byte 0", fmt::format("the file has {} bytes", bytes.size()),
                 "8 or more: a safetensors file begins with the length of its header");
  const auto length = read_unaligned<std::uint64_t>(bytes, 0);
  const auto most = bytes.size() - 8;
  if (length > most || length < 2)
    refuse_input(
        file, "byte 0",
        fmt::format("header length {}{}", length, length > most ? " passes the file's end" : ""),
        fmt::format("2..{}", most));
  const std::string_view header(reinterpret_cast<const char*>(bytes.data() + 8), length);
  if (!header.starts_with('{'))
    refuse_input(file, "byte 8", "the header does not begin with '{'", accepted_header);
  return header;
}

std::map<std::string, std::string> metadata_of(const std::string& file, const json& held) {
  const auto refuse = [&](const std::string& found) {
    refuse_input(file, "__metadata__", found, "an object of strings only");
  };
  if (!held.is_object()) refuse("is " + described(held));
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : held.items()) {
    if (!value.is_string())
      refuse(fmt::format("the value of '{}' is {}", printable(key, 60), described(value)));
    out.emplace(key, value.get<std::string>());
  }
  return out;
}

}  // namespace

safetensors_file::safetensors_file(const std::filesystem::path& path, file_extent extent)
    : path_(path), map_(path) {
  const auto file = path.string();
  const auto header = header_of(file, map_.bytes());
  const auto data = map_.bytes().subspan(8 + header.size());
  const auto most = extent == file_extent::whole ? data.size() : most_described_bytes;
  const auto root = parse_json_object(header, file + ": header", accepted_header, header.size());
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>> ranges;
  for (const auto& [name, about] : root.items()) {
    if (name == "__metadata__") {
      metadata_ = metadata_of(file, about);
      continue;
    }
    auto described = description_reader(file, name, about).read(data, most);
    ranges.emplace_back(described.offset, described.offset + described.described_bytes, name);
    described.offset += 8 + header.size();
    tensors_.emplace(name, std::move(described));
  }
  std::ranges::sort(ranges);
  std::uint64_t covered = 0;
  for (const auto& [begin, end, name] : ranges) {
    if (begin != covered)
      refuse_input(file, fmt::format("tensor '{}'", name),
                   fmt::format("{} the tensor before it: begins at {}",
                               begin < covered ? "overlaps" : "leaves a hole after", begin),
                   fmt::format("{}, where the tensor before it ends", covered));
    covered = end;
    names_.push_back(name);
  }
  if (covered > data.size()) missing_ = covered - data.size();
  if (covered < data.size())
    refuse_input(file, fmt::format("byte {}", 8 + header.size() + covered),
                 fmt::format("{} bytes belong to no tensor", data.size() - covered),
                 "a file that ends where its last tensor ends");
}

const safetensors_file::tensor* safetensors_file::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

const safetensors_file::tensor& safetensors_file::at(std::string_view name) const {
  const auto* const found = find(name);
  if (found == nullptr)
    refuse_input(path_.string(), "tensor '" + std::string(name) + "'", "is missing",
                 "a file that holds it");
  return *found;
}

}  // namespace hotset::lab
