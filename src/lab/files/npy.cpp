// SPDX-License-Identifier: Apache-2.0
#include "lab/files/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/registry/parameters.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::string_view accepted_dict = "a dictionary of 'descr', 'fortran_order' and 'shape'";

/// Reads a little-endian integer.
std::uint64_t bits_at(std::string_view bytes, std::size_t at, std::size_t width) noexcept {
  std::uint64_t out = 0;
  std::memcpy(&out, bytes.data() + at, width);
  return out;
}

/// Reads the header: a dictionary in Python's notation.
class header_reader {
 public:
  header_reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void read_into(npy_array& array) const {
    read_type(array, value_of("descr"));
    const auto order = value_of("fortran_order");
    array.first_axis_fastest = order.starts_with("True");
    if (!array.first_axis_fastest && !order.starts_with("False")) refuse("has no order of axes");
    read_shape(array, value_of("shape"));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    refuse_input(file_, "header", what, accepted_dict);
  }
  /// Returns the text after the key, up to the header's end.
  [[nodiscard]] std::string_view value_of(const std::string& key) const {
    for (const char quote : {'\'', '"'}) {
      const auto name = quote + key + quote;
      const auto at = text_.find(name);
      if (at == text_.npos) continue;
      const auto value = text_.find_first_not_of(": ", at + name.size());
      if (value != text_.npos) return text_.substr(value);
    }
    refuse(fmt::format("has no '{}'", key));
  }

  void read_type(npy_array& array, std::string_view text) const {
    if (text.starts_with('['))
      refuse_input(file_, "header", "the array holds records of several fields", "plain numbers");
    const auto type = text.substr(1, std::min(text.find(text[0], 1), text.size()) - 1);
    constexpr std::array<std::string_view, 12> known{"i1", "i2", "i4", "i8", "u1", "u2",
                                                     "u4", "u8", "f2", "f4", "f8", "b1"};
    if (type.empty() || std::string_view("<|=").find(type[0]) == type.npos ||
        std::ranges::find(known, type.substr(1)) == known.end())
      refuse_input(file_, "header", fmt::format("the array is of type '{}'", type),
                   "integers of 1, 2, 4 or 8 bytes, real numbers of 2, 4 or 8, truth values, the "
                   "lowest byte first");
    array.kind = type[1];
    array.item = static_cast<std::size_t>(type[2] - '0');
  }
  void read_shape(npy_array& array, std::string_view text) const {
    const auto refuse_shape = [&] { refuse("has a shape that is no list of whole numbers"); };
    const auto end = text.find(')');
    if (!text.starts_with('(') || end == text.npos) refuse_shape();
    for (const auto item : detail::split_at(text.substr(1, end - 1), ',')) {
      if (trimmed(item).empty()) continue;  // after the last comma
      const auto extent = parse_number<std::size_t>(trimmed(item));
      if (!extent) refuse_shape();
      array.shape.push_back(*extent);
    }
  }

  std::string_view text_;
  const std::string& file_;
};

std::string_view header_of(std::string_view bytes, const std::string& file,
                           std::string_view& numbers) {
  if (bytes.size() < 10 || !looks_like_npy(bytes))
    refuse_input(file, "byte 0", "is no array of NumPy's", "a .npy file");
  const auto version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3)
    refuse_input(file, "byte 6", "version " + std::to_string(version) + " of the format", "1..3");
  const std::size_t width = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + width;
  const auto length = bytes.size() < begin ? bytes.size() : bits_at(bytes, 8, width);
  if (begin + length > bytes.size())
    refuse_input(file, "byte 8", "the file ends inside its header", "a whole .npy file");
  numbers = bytes.substr(begin + length);
  return bytes.substr(begin, length);
}

/// Calls visit(offset in bytes) for each number in row-major order.
template <class Visit>
void in_order(const npy_array& array, Visit visit) {
  if (!array.first_axis_fastest || array.shape.size() < 2) {
    for (std::size_t i = 0; i < array.size(); ++i) visit(i * array.item);
    return;
  }
  std::vector<std::size_t> place(array.shape.size());
  for (std::size_t n = 0; n < array.size(); ++n) {
    std::size_t at = 0;
    for (std::size_t axis = place.size(); axis-- > 0;) at = at * array.shape[axis] + place[axis];
    visit(at * array.item);
    for (std::size_t axis = place.size(); axis-- > 0;) {
      if (++place[axis] < array.shape[axis]) break;
      place[axis] = 0;
    }
  }
}

std::int64_t integer_at(const npy_array& array, std::size_t at) noexcept {
  const auto bits = bits_at(array.bytes, at, array.item);
  const auto unused = static_cast<unsigned>(64 - 8 * array.item);
  if (array.kind == 'i') return static_cast<std::int64_t>(bits << unused) >> unused;
  return bits >> 63U != 0 ? -1 : static_cast<std::int64_t>(bits);
}

float real_at(const npy_array& array, std::size_t at) noexcept {
  if (array.is_integer()) return static_cast<float>(integer_at(array, at));
  const auto bits = bits_at(array.bytes, at, array.item);
  if (array.item == 2) return half_to_float(static_cast<std::uint16_t>(bits));
  if (array.item == 4) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace

std::string npy_array::description() const {
  const auto* const type = kind == 'f'   ? "float"
                           : kind == 'u' ? "uint"
                           : kind == 'b' ? "bool"
                                         : "int";
  return fmt::format("{}{} of shape [{}]", type, kind == 'b' ? "" : std::to_string(8 * item),
                     fmt::join(shape, ", "));
}

bool looks_like_npy(std::string_view beginning) noexcept { return beginning.starts_with(magic); }

npy_array parse_npy(std::string_view bytes, const std::string& file) {
  npy_array array;
  array.name = std::filesystem::path(file).stem().string();
  header_reader(header_of(bytes, file, array.bytes), file).read_into(array);
  std::optional<std::size_t> count = 1;
  for (const auto extent : array.shape)
    if (count) count = detail::product({*count, extent});
  if (!count || *count != array.size() || array.bytes.size() % array.item != 0)
    refuse_input(
        file, "",
        fmt::format("{} bytes behind the header of {}", array.bytes.size(), array.description()),
        "as many as its numbers take");
  return array;
}

std::vector<std::int64_t> integers_of(const npy_array& array) {
  std::vector<std::int64_t> out;
  out.reserve(array.size());
  in_order(array, [&](std::size_t at) { out.push_back(integer_at(array, at)); });
  return out;
}

std::vector<float> floats_of(const npy_array& array) {
  std::vector<float> out;
  out.reserve(array.size());
  in_order(array, [&](std::size_t at) { out.push_back(real_at(array, at)); });
  return out;
}

}  // namespace hotset::lab
