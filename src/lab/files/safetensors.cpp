// SPDX-License-Identifier: Apache-2.0
#include "lab/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

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

const dtype_fact* find_dtype(std::string_view name) noexcept {
  const auto at = std::find_if(dtypes.begin(), dtypes.end(),
                               [&](const dtype_fact& fact) { return fact.name == name; });
  return at == dtypes.end() ? nullptr : &*at;
}

std::string dtype_names() {
  std::string all;
  for (const auto& fact : dtypes) all.append(all.empty() ? "" : " ").append(fact.name);
  return all;
}

struct entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

/// Reads the header event by event, so that a duplicate name is seen and nothing deep is ever built.
class header_reader : public nlohmann::json_sax<json> {
 public:
  std::vector<entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string found;     ///< what was refused
  std::string accepted;  ///< what would have been accepted
  std::string place;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return unexpected("the number " + std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != state::numbers) return unexpected("the number " + std::to_string(value));
    numbers_.push_back(value);
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + text);
  }
  bool string(string_t& text) override {
    if (state_ == state::metadata) {
      metadata.emplace_back(key_, std::move(text));
      return true;
    }
    if (state_ != state::fields || key_ != "dtype") return unexpected("a string");
    if (entries.back().dtype) return refuse_duplicate();
    entries.back().dtype = std::move(text);
    return true;
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(std::size_t) override {
    switch (state_) {
      case state::before: state_ = state::names; return true;
      case state::names:
        if (key_ == "__metadata__") {
          if (std::exchange(has_metadata_, true)) return refuse_duplicate();
          state_ = state::metadata;
        } else {
          entries.push_back({key_, {}, {}, {}});
          state_ = state::fields;
        }
        return true;
      default: return unexpected("an object");
    }
  }
  bool key(string_t& text) override {
    key_ = std::move(text);
    if (state_ == state::names) tensor_ = key_;
    return true;
  }
  bool end_object() override {
    state_ = state_ == state::names ? state::after : state::names;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ != state::fields || (key_ != "shape" && key_ != "data_offsets"))
      return unexpected("an array");
    numbers_.clear();
    state_ = state::numbers;
    return true;
  }
  bool end_array() override {
    auto& target = key_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (target) return refuse_duplicate();
    target = std::move(numbers_);
    state_ = state::fields;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    place = "byte " + std::to_string(8 + (position > 0 ? position - 1 : 0));
    found = "the header is not JSON here";
    accepted = "a JSON object in UTF-8";
    return false;
  }

 private:
  enum class state : std::uint8_t { before, names, metadata, fields, numbers, after };

  bool refuse(std::string what, std::string instead) {
    place = tensor_.empty() ? "header" : "tensor '" + tensor_ + "'";
    found = std::move(what);
    accepted = std::move(instead);
    return false;
  }
  bool refuse_duplicate() { return refuse("'" + key_ + "' appears twice", "each name once"); }
  bool unexpected(const std::string& what) {
    switch (state_) {
      case state::before: return refuse("the header is " + what, "a JSON object");
      case state::names:
        return refuse("its description is " + what, "an object with dtype, shape and data_offsets");
      case state::metadata: return refuse("the value of '" + key_ + "' is " + what, "strings only");
      case state::numbers: return refuse("'" + key_ + "' holds " + what, "integers of 0 or more");
      default:
        return refuse("'" + key_ + "' is " + what,
                      "dtype (a string), shape and data_offsets (arrays of integers)");
    }
  }

  state state_ = state::before;
  std::string key_;
  std::string tensor_;
  std::vector<std::uint64_t> numbers_;
  bool has_metadata_ = false;
};

/// Returns nothing when the product does not fit.
std::optional<std::uint64_t> times(std::uint64_t a, std::uint64_t b) noexcept {
  if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, unsigned bits) {
  std::uint64_t total = bits;
  bool empty = false;
  for (const auto extent : shape) empty = empty || extent == 0;
  if (empty) return 0;
  for (const auto extent : shape) {
    const auto product = times(total, extent);
    if (!product) return std::nullopt;
    total = *product;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

std::string text_of(const std::vector<std::uint64_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size() && i < 9; ++i)
    text.append(i == 0 ? "" : ", ").append(i == 8 ? "..." : std::to_string(numbers[i]));
  return text + "]";
}

/// The checks of one description, in the order in which a reader would ask.
safetensors_file::tensor checked(const std::string& file, entry& described,
                                 std::span<const std::byte> data, std::uint64_t most) {
  const auto refuse = [&](const std::string& found, const std::string& accepted) {
    refuse_input(file, "tensor '" + described.name + "'", found, accepted);
  };
  if (!described.dtype || !described.shape || !described.offsets)
    refuse("dtype, shape or data_offsets is missing", "all three");
  const auto* const fact = find_dtype(*described.dtype);
  if (fact == nullptr) refuse("dtype '" + *described.dtype + "' is unknown", dtype_names());
  const auto& offsets = *described.offsets;
  if (offsets.size() != 2)
    refuse("data_offsets has " + std::to_string(offsets.size()) + " entries", "2: begin and end");
  if (offsets[0] > offsets[1] || offsets[1] > most)
    refuse("data_offsets " + text_of(offsets) + " are out of range",
           "0 <= begin <= end <= " + std::to_string(most) + ", the bytes after the header");
  const auto size = bytes_of(*described.shape, fact->bits);
  if (!size || *size != offsets[1] - offsets[0])
    refuse("data_offsets " + text_of(offsets) + " hold " + std::to_string(offsets[1] - offsets[0]) +
               " bytes",
           size ? std::to_string(*size) + ", which is shape " + text_of(*described.shape) + " of " +
                      *described.dtype
                : "a shape whose bytes fit a file");
  const auto bytes = offsets[1] > data.size() ? std::span<const std::byte>()
                                              : data.subspan(static_cast<std::size_t>(offsets[0]),
                                                             static_cast<std::size_t>(*size));
  return {fact->name, std::move(*described.shape), bytes, *size, offsets[0]};
}

struct header_text {
  const char* begin;
  std::size_t length;
};

header_text find_header(const std::string& file, std::span<const std::byte> bytes) {
  if (bytes.size() < 8)
    refuse_input(file, "byte 0", "the file has " + std::to_string(bytes.size()) + " bytes",
                 "8 or more: a safetensors file begins with the length of its header");
  const auto length = read_unaligned<std::uint64_t>(bytes, 0);
  if (length > bytes.size() - 8)
    refuse_input(file, "byte 0",
                 "header length " + std::to_string(length) + " passes the file's end",
                 "2.." + std::to_string(bytes.size() - 8));
  if (length < 2)
    refuse_input(file, "byte 0", "header length " + std::to_string(length),
                 "2.." + std::to_string(bytes.size() - 8));
  return {reinterpret_cast<const char*>(bytes.data() + 8), static_cast<std::size_t>(length)};
}

header_reader read_header(const std::string& file, header_text text) {
  header_reader reader;
  if (text.begin[0] != '{')
    refuse_input(file, "byte 8", "the header does not begin with '{'", "a JSON object in UTF-8");
  if (!json::sax_parse(text.begin, text.begin + text.length, &reader))
    refuse_input(file, reader.place, reader.found, reader.accepted);
  return reader;
}

}  // namespace

unsigned dtype_bits(std::string_view dtype) noexcept {
  const auto* const fact = find_dtype(dtype);
  return fact == nullptr ? 0 : fact->bits;
}

safetensors_file::safetensors_file(const std::filesystem::path& path, file_extent extent)
    : path_(path), map_(path) {
  const auto file = path.string();
  const auto text = find_header(file, map_.bytes());
  const auto data = map_.bytes().subspan(8 + text.length);
  auto header = read_header(file, text);
  for (auto& [name, value] : header.metadata)
    if (!metadata_.emplace(name, std::move(value)).second)
      refuse_input(file, "__metadata__", "'" + name + "' appears twice", "each name once");

  struct range {
    std::uint64_t begin, end;
    const std::string* name;
  };
  const auto most = extent == file_extent::whole ? data.size() : most_described_bytes;
  std::vector<range> ranges;
  for (auto& described : header.entries) {
    const auto [at, fresh] = tensors_.try_emplace(described.name);
    if (!fresh)
      refuse_input(file, "tensor '" + described.name + "'", "the name appears twice",
                   "each name once");
    at->second = checked(file, described, data, most);
    at->second.offset += 8 + text.length;
    ranges.push_back({(*described.offsets)[0], (*described.offsets)[1], &at->first});
  }
  std::sort(ranges.begin(), ranges.end(), [](const range& a, const range& b) {
    return std::tie(a.begin, a.end, *a.name) < std::tie(b.begin, b.end, *b.name);
  });
  std::uint64_t covered = 0;
  for (const auto& next : ranges) {
    if (next.begin != covered)
      refuse_input(file, "tensor '" + *next.name + "'",
                   (next.begin < covered ? "overlaps the tensor before it: begins at "
                                         : "leaves a hole before it: begins at ") +
                       std::to_string(next.begin),
                   std::to_string(covered) + ", where the tensor before it ends");
    covered = next.end;
    names_.push_back(*next.name);
  }
  if (covered > data.size()) missing_ = covered - data.size();
  if (covered < data.size())
    refuse_input(file, "byte " + std::to_string(8 + text.length + covered),
                 std::to_string(data.size() - covered) + " bytes belong to no tensor",
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
