// SPDX-License-Identifier: Apache-2.0
#include "lab/files/gguf.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

constexpr std::array types = {
    gguf_type{0, "F32", 1, 4},         gguf_type{1, "F16", 1, 2},
    gguf_type{2, "Q4_0", 32, 18},      gguf_type{3, "Q4_1", 32, 20},
    gguf_type{6, "Q5_0", 32, 22},      gguf_type{7, "Q5_1", 32, 24},
    gguf_type{8, "Q8_0", 32, 34},      gguf_type{9, "Q8_1", 32, 40},
    gguf_type{10, "Q2_K", 256, 84},    gguf_type{11, "Q3_K", 256, 110},
    gguf_type{12, "Q4_K", 256, 144},   gguf_type{13, "Q5_K", 256, 176},
    gguf_type{14, "Q6_K", 256, 210},   gguf_type{15, "Q8_K", 256, 292},
    gguf_type{16, "IQ2_XXS", 256, 66}, gguf_type{17, "IQ2_XS", 256, 74},
    gguf_type{18, "IQ3_XXS", 256, 98}, gguf_type{19, "IQ1_S", 256, 50},
    gguf_type{20, "IQ4_NL", 32, 18},   gguf_type{21, "IQ3_S", 256, 110},
    gguf_type{22, "IQ2_S", 256, 82},   gguf_type{23, "IQ4_XS", 256, 136},
    gguf_type{24, "I8", 1, 1},         gguf_type{25, "I16", 1, 2},
    gguf_type{26, "I32", 1, 4},        gguf_type{27, "I64", 1, 8},
    gguf_type{28, "F64", 1, 8},        gguf_type{29, "IQ1_M", 256, 56},
    gguf_type{30, "BF16", 1, 2},       gguf_type{34, "TQ1_0", 256, 54},
    gguf_type{35, "TQ2_0", 256, 66},   gguf_type{39, "MXFP4", 32, 17},
    gguf_type{40, "NVFP4", 64, 36},    gguf_type{41, "Q1_0", 128, 18},
    gguf_type{42, "Q2_0", 64, 18},
};

constexpr std::uint64_t longest_key = 65535;
constexpr std::uint32_t most_dimensions = 4;
constexpr int deepest_array = 4;

/// Bytes of a scalar by value_type; 0 for strings and arrays, whose size the file gives.
constexpr std::array<std::size_t, 13> scalar_bytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr std::size_t size_of(gguf_file::value_type type) noexcept {
  return scalar_bytes[static_cast<std::size_t>(type)];
}

}  // namespace

std::optional<std::uint64_t> gguf_file::value::natural(std::uint64_t i) const noexcept {
  using enum value_type;
  const auto size = size_of(type);
  if (size == 0 || type == f32 || type == f64) return std::nullopt;
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + i * size, size);
  const bool has_sign = type == i8 || type == i16 || type == i32 || type == i64;
  if (has_sign && number >> (8 * size - 1) != 0) return std::nullopt;
  return number;
}

std::optional<std::string_view> gguf_file::value::text() const noexcept {
  if (type != value_type::string || is_array) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// Reads the header once, front to back. Every length is compared with the bytes that are left before it is used.
class gguf_file::reader {
 public:
  reader(gguf_file& out, file_extent extent)
      : out_(out), file_(out.path_.string()), bytes_(out.map_.bytes()), extent_(extent) {}

  void read() {
    read_start();
    const auto tensors = count("the tensor count", smallest_tensor);
    const auto entries = count("the metadata count", smallest_entry);
    for (std::uint64_t i = 0; i < entries; ++i) read_entry();
    read_alignment();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    check_places();
  }

 private:
  static constexpr std::uint64_t smallest_entry = 8 + 4 + 1;
  static constexpr std::uint64_t smallest_tensor = 8 + 4 + 4 + 8;

  [[nodiscard]] std::uint64_t left() const noexcept { return bytes_.size() - at_; }
  [[noreturn]] void refuse(const std::string& place, const std::string& found,
                           const std::string& accepted) const {
    refuse_input(file_, place, found, accepted);
  }

  [[nodiscard]] static std::string byte(std::size_t at) { return fmt::format("byte {}", at); }
  [[nodiscard]] static std::string tensor_place(const tensor& t) {
    return fmt::format("tensor '{}'", t.name);
  }
  [[noreturn]] void refuse_key(const std::string& key, const std::string& found,
                               const std::string& accepted) const {
    refuse_input(file_, fmt::format("key '{}'", key), found, accepted);
  }

  template <class T>
  T take(const char* what) {
    if (left() < sizeof(T))
      refuse(byte(at_), fmt::format("the file ends before {}", what), "an intact GGUF file");
    T out;
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return out;
  }
  /// Reads a count of items that take at least `smallest` bytes each.
  std::uint64_t count(const char* what, std::uint64_t smallest) {
    const auto begin = at_;
    const auto number = take<std::uint64_t>(what);
    if (number > left() / smallest)
      refuse(byte(begin), fmt::format("{} is {}", what, number),
             fmt::format("0..{}, which the file has room for", left() / smallest));
    return number;
  }
  std::string_view string(const char* what) {
    const auto length = count(what, 1);
    const auto* const begin = reinterpret_cast<const char*>(bytes_.data() + at_);
    at_ += static_cast<std::size_t>(length);
    return {begin, static_cast<std::size_t>(length)};
  }

  void read_start() {
    constexpr std::uint32_t magic = 0x46554747;  // "GGUF"
    if (left() < 4 || take<std::uint32_t>("the magic") != magic)
      refuse("byte 0", "does not begin with 'GGUF'", "a GGUF file");
    out_.version_ = take<std::uint32_t>("the version");
    if (out_.version_ != 2 && out_.version_ != 3)
      refuse("byte 4",
             out_.version_ > 0xffff ? "the version is that of a big-endian file"
                                    : fmt::format("version {}", out_.version_),
             "2 or 3, little-endian");
  }

  value_type type(const std::string& key) {
    const auto id = take<std::uint32_t>("a value's type");
    if (id > static_cast<std::uint32_t>(value_type::f64))
      refuse_key(key, fmt::format("value type {} is unknown", id), "0..12");
    return static_cast<value_type>(id);
  }

  void read_entry() {
    const auto begin = at_;
    const std::string key(string("a key's length"));
    if (key.empty() || key.size() > longest_key)
      refuse(byte(begin), fmt::format("a key of {} bytes", key.size()),
             fmt::format("1..{}", longest_key));
    auto found = read_value(key, type(key));
    if (!out_.metadata_.emplace(key, found).second)
      refuse_key(key, "appears twice", "each key once");
  }

  value read_value(const std::string& key, value_type kind) {
    value out;
    out.type = kind;
    if (kind == value_type::array) {
      out.is_array = true;
      out.type = type(key);
      out.count = count("an array's length", smallest_of(out.type));
    }
    if (kind == value_type::string) {
      const auto text = string("a string's length");
      out.bytes = bytes_.subspan(at_ - text.size(), text.size());
      return out;
    }
    const auto begin = at_;
    skip(key, out.type, out.count, 1);
    out.bytes = bytes_.subspan(begin, at_ - begin);
    return out;
  }

  [[nodiscard]] static std::uint64_t smallest_of(value_type kind) noexcept {
    if (kind == value_type::string) return 8;
    if (kind == value_type::array) return 12;
    return size_of(kind);
  }

  /// Skips `number` elements of a kind.
  void skip(const std::string& key, value_type kind, std::uint64_t number, int depth) {
    if (const auto size = size_of(kind); size > 0) {
      if (number > left() / size)
        refuse_key(key, "its value passes the file's end", "an intact GGUF file");
      at_ += static_cast<std::size_t>(number) * size;
      return;
    }
    if (depth > deepest_array)
      refuse_key(key, "arrays in arrays, too deep", fmt::format("up to {} of them", deepest_array));
    for (std::uint64_t i = 0; i < number; ++i) {
      if (kind == value_type::string) {
        (void)string("a string's length");
        continue;
      }
      const auto inner = type(key);
      skip(key, inner, count("an array's length", smallest_of(inner)), depth + 1);
    }
  }

  void read_alignment() {
    const auto* const given = out_.find("general.alignment");
    if (given == nullptr) return;
    const auto number = given->is_array ? std::nullopt : given->natural();
    constexpr std::uint64_t most = 1U << 30U;
    if (!number || *number < 8 || *number > most || *number % 8 != 0)
      refuse_key("general.alignment", number ? fmt::format("is {}", *number) : "is no integer",
                 fmt::format("a multiple of 8 in 8..{}", most));
    alignment_ = *number;
  }

  void read_tensor() {
    gguf_file::tensor t;
    t.name = string("the length of a tensor's name");
    const auto place = tensor_place(t);
    if (t.name.empty() || !names_.insert(t.name).second)
      refuse(place, t.name.empty() ? "has no name" : "the name appears twice", "each name once");
    const auto rank = take<std::uint32_t>("a tensor's rank");
    if (rank < 1 || rank > most_dimensions)
      refuse(place, fmt::format("{} dimensions", rank), fmt::format("1..{}", most_dimensions));
    for (std::uint32_t d = 0; d < rank; ++d)
      t.dimensions.push_back(take<std::uint64_t>("a tensor's extent"));
    const auto id = take<std::uint32_t>("a tensor's type");
    const auto* const fact = std::ranges::find(types, id, &gguf_type::id);
    if (fact == types.end())
      refuse(place, fmt::format("type {} is unknown", id),
             "the types of ggml up to 42 that are not withdrawn");
    t.type = fact->name;
    t.bytes = bytes_of(t, *fact);
    t.offset = take<std::uint64_t>("a tensor's offset");
    out_.tensors_.push_back(std::move(t));
  }

  [[nodiscard]] std::uint64_t bytes_of(const gguf_file::tensor& t, const gguf_type& fact) const {
    std::optional<std::size_t> elements = 1;
    for (const auto extent : t.dimensions)
      elements = elements && extent > 0 ? detail::product({*elements, extent}) : std::nullopt;
    const auto bytes =
        elements ? detail::product({*elements / fact.block, fact.bytes}) : std::nullopt;
    if (!bytes || t.dimensions.front() % fact.block != 0)
      refuse(tensor_place(t),
             fmt::format("extents [{}] of {}", fmt::join(t.dimensions, ", "), t.type),
             fmt::format("extents of 1 or more, the first a multiple of {}, whose bytes fit a file",
                         fact.block));
    return *bytes;
  }

  /// Checks the offsets relative to the data, and makes them relative to the file.
  void check_places() {
    const auto padding = (alignment_ - at_ % alignment_) % alignment_;
    const auto data = padding <= left() ? left() - padding : 0;
    const auto most = extent_ == file_extent::whole ? data : most_described_bytes;
    std::vector<const tensor*> placed;
    for (const auto& t : out_.tensors_) {
      if (t.offset % alignment_ != 0)
        refuse(tensor_place(t), fmt::format("offset {}", t.offset),
               fmt::format("a multiple of {}", alignment_));
      if (t.offset > most || t.bytes > most - t.offset)
        refuse(tensor_place(t),
               fmt::format("its {} bytes at {} pass the file's end", t.bytes, t.offset),
               fmt::format("an end of at most {}, the bytes after the header", most));
      placed.push_back(&t);
    }
    std::ranges::sort(placed, {}, &tensor::offset);
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const auto& t = *placed[i];
      if (t.offset + t.bytes > data) out_.missing_ += t.offset + t.bytes - std::max(t.offset, data);
      if (i > 0 && t.offset < placed[i - 1]->offset + placed[i - 1]->bytes)
        refuse(tensor_place(t), fmt::format("overlaps '{}'", placed[i - 1]->name),
               "tensors that lie apart");
    }
    for (auto& t : out_.tensors_) t.offset += at_ + padding;
  }

  gguf_file& out_;
  std::string file_;
  std::span<const std::byte> bytes_;
  file_extent extent_;
  std::size_t at_ = 0;
  std::uint64_t alignment_ = 32;
  std::set<std::string, std::less<>> names_;
};

std::span<const gguf_type> gguf_types() noexcept { return types; }

gguf_file::gguf_file(const std::filesystem::path& path, file_extent extent)
    : path_(path), map_(path) {
  reader(*this, extent).read();
}

const gguf_file::value* gguf_file::find(std::string_view key) const {
  const auto at = metadata_.find(key);
  return at == metadata_.end() ? nullptr : &at->second;
}

}  // namespace hotset::lab
