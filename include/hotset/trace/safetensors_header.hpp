// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The header of a safetensors file that is to be written: arrays one behind the other, as they are added.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hotset/version.hpp"

namespace hotset {

namespace detail {

/// Length of the well-formed UTF-8 sequence at the front of text, or 0.
[[nodiscard]] inline std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  const std::size_t length = first >= 0xf0U ? 4 : first >= 0xe0U ? 3 : 2;
  if (first < 0xc2U || first > 0xf4U || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0U && second < 0xa0U) || (first == 0xedU && second > 0x9fU) ||
      (first == 0xf0U && second < 0x90U) || (first == 0xf4U && second > 0x8fU))
    return 0;
  return length;
}

/// Bytes that are not UTF-8 become '?'.
inline void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    const auto length = utf8_sequence(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text.front();
    } else if (c < 0x20U) {
      out.append("\\u00").append(1, digits[c >> 4U]).append(1, digits[c & 15U]);
    } else if (length == 0) {
      out += '?';
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

}  // namespace detail

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

class safetensors_header {
 public:
  /// Pre: names differ; the bytes of all arrays fit 64 bits.
  void add(std::string_view name, std::string_view dtype, std::span<const std::uint64_t> shape,
           std::uint64_t element_bytes) {
    arrays_ += ',';
    detail::append_json_string(arrays_, name);
    arrays_.append(":{\"dtype\":\"").append(dtype).append("\",\"shape\":[");
    auto size = element_bytes;
    bool first = true;
    for (const auto extent : shape) {
      arrays_.append(std::exchange(first, false) ? "" : ",").append(std::to_string(extent));
      size *= extent;
    }
    arrays_.append("],\"data_offsets\":[").append(std::to_string(end_));
    end_ += size;
    arrays_.append(",").append(std::to_string(end_)).append("]}");
  }

  /// Length and JSON, padded with spaces so that the data begins at a multiple of 64.
  [[nodiscard]] std::string bytes(const std::map<std::string, std::string>& metadata) const {
    std::string json = "{\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!std::exchange(first, false)) json += ',';
      detail::append_json_string(json, key);
      json += ':';
      detail::append_json_string(json, value);
    }
    json += '}';
    json += arrays_;
    json += '}';
    json.append((64 - (8 + json.size()) % 64) % 64, ' ');
    const std::uint64_t length = json.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + json;
  }

 private:
  std::string arrays_;
  std::uint64_t end_ = 0;
};

}  // namespace hotset
